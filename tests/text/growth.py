"""Functions that read users' text, and generated texts that may slow them down."""

import io
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

from memrecall.agent import conversation, offline
from memrecall.agent.state import Window
from memrecall.chat import mentions, turn
from memrecall.errors import InvalidArgument
from memrecall.extraction import summaries, verify
from memrecall.extraction.protocol import Fact, Utterance
from memrecall.importers import (
    ReadOptions,
    Source,
    SourceFile,
    mbox,
    plain_text,
    tables,
    team_chats,
    wechat,
)
from memrecall.importers.html_text import html_to_text
from memrecall.importers.records import FileFormat
from memrecall.json_objects import load_json_object
from memrecall.library.graph_evidence import possible_names
from memrecall.memory import ingest
from memrecall.messages import ConversationMessage
from memrecall.model.structured import repair_json
from memrecall.search.index.columns import Columns
from memrecall.search.index.postings import QueryCost
from memrecall.search.ranking import features, lexical
from memrecall.text import (
    filter_leaks,
    language,
    privacy,
    query,
    snippets,
    tokens,
)
from memrecall.text.keywords import extract_keywords
from memrecall.text.leaks.calls import find_calls
from memrecall.text.times import find_times
from memrecall.text_length import estimate_tokens, single_line, truncate_text
from memrecall.types import Role
from tests.search.index_rows import make_columns, message

NOW = datetime(2026, 1, 26, 10, 47, tzinfo=UTC)
TOOLS = ("recall_memory", "search_memory")
MEMBERS = (
    mentions.Member(member_id="bob", name="Bob Lee", nicknames=("小李", "B"), ai=True),
    mentions.Member(member_id="ann", name="安"),
)
QUESTION = "When did 小李 eat hotpot 火锅 with a.b_c*"
Reader = Callable[[str], object]


def _utterance(text: str, role: Role = Role.USER) -> Utterance:
    return Utterance("m1", "Bob" if role is Role.USER else None, role, text, NOW)


def _read_doubts(text: str) -> object:
    utterances = [_utterance(text), _utterance(text, Role.ASSISTANT)]
    return verify.find_doubts(Fact(text, source_ids=("m1",)), utterances, now=NOW)


def _search(text: str) -> object:
    """Return the query's passages in a text of the same words."""
    words = text[: query.MAX_QUERY_LENGTH].split()
    with suppress(InvalidArgument):  # A beginning of the text may be invalid, and the text valid.
        parsed = query.parse_query(text[: query.MAX_QUERY_LENGTH])
        words = query.positive_words(parsed)
    return snippets.snippets(text, words)


def _search_index(text: str) -> object:
    """Return the rows of a fixed index that a query finds."""
    with suppress(InvalidArgument):
        parsed = query.parse_query(text[: query.MAX_QUERY_LENGTH])
        return lexical.match(_index(), parsed, QueryCost())
    return None


@cache
def _index() -> Columns:
    texts = [QUESTION, *(alphabet * 20 for alphabet in ALPHABETS.values())]
    return make_columns(*(message(at, content=text) for at, text in enumerate(texts)))


def _read_mentions(text: str) -> object:
    return mentions.find_mentions(text, MEMBERS), mentions.remove_mentions(text, MEMBERS)


def _read_request(text: str) -> object:
    earlier = (ConversationMessage(Role.USER, text),)
    return offline.Situation("en", text, earlier, Window(2)).query(with_earlier=True)


def _repair(text: str) -> object:
    with suppress(ValueError):
        return repair_json(text)
    return None


def _import_as(known: FileFormat, name: str, start: str, end: str = "") -> Reader:
    """Return a reader of a file in a format, with the text between its beginning and its end."""

    def read(text: str) -> object:
        escaped = json.dumps(text)[1:-1] if name.endswith("json") else text
        data = f"{start}{escaped}{end}".encode()
        file = SourceFile(name, len(data), lambda: io.BytesIO(data), Source("export"))
        return list(known.read(file, ReadOptions()))

    return read


READERS: Mapping[str, Reader] = {
    "html_to_text": html_to_text,
    "import of whatsapp": _import_as(plain_text.WHATSAPP, "c.txt", "31.12.23, 21:41 - A: "),
    "import of a copied chat": _import_as(plain_text.COPY, "c.txt", "A：x\nB：x\n"),
    "import of notes": _import_as(plain_text.MARKDOWN, "c.md", "---\ndate: 2026-01-02\n"),
    "import of wechat": _import_as(wechat.FORMAT, "c.txt", "2026-01-02 09:15:30 A\n"),
    "import of csv": _import_as(tables.CSV, "c.csv", "time,sender,text\n,A,"),
    "import of slack": _import_as(
        team_chats.SLACK,
        "2026-01-01.json",
        '[{"type": "message", "ts": "1768208400", "text": "',
        '"}]',
    ),
    "import of mail": _import_as(
        mbox.FORMAT, "m.mbox", "From a@b Mon\nDate: Mon, 12 Jan 2026 10:00:00 +0100\n\n"
    ),
    "import of a mail header": _import_as(
        mbox.FORMAT, "m.mbox", "From a@b Mon\nDate: Mon, 12 Jan 2026 10:00:00 +0100\nFrom: "
    ),
    "analyze": tokens.analyze,
    "redact": privacy.PrivacyPolicy("redact", "redact").redact,
    "last_word": tokens.last_word,
    "fold_word": tokens.fold_word,
    "normalize": tokens.normalize_with_offsets,
    "normalize_caseless": tokens.normalize_caseless,
    "entity_key": tokens.entity_key,
    "search": _search,
    "search of an index": _search_index,
    "snippets": lambda text: snippets.snippets(text, QUESTION.split()),
    "find_center": lambda text: snippets.find_center(text, QUESTION.split()),
    "highlights of itself": lambda text: snippets.find_highlights(text, [text]),
    "highlights of its words": lambda text: snippets.find_highlights(text, text.split()),
    "truncate_at_word": lambda text: snippets.truncate_at_word(text, max(len(text) // 2, 1)),
    "best_cut": lambda text: snippets.best_cut(text, range(1, len(text)), 0),
    "extract_keywords": extract_keywords,
    "language_of": language.language_of,
    "is_question": language.is_question,
    "find_times": lambda text: find_times(text, NOW),
    "filter_leaks": lambda text: filter_leaks(text, TOOLS),
    "find_calls": lambda text: find_calls(text, TOOLS),
    "query_terms": lexical.query_terms,
    "index_tokens": lexical.index_tokens,
    "rank_texts": lambda text: lexical.rank_texts([text, QUESTION], text),
    "find_speakers": lambda text: features.find_speakers(text, ("Bob Lee", "小李")),
    "to_first_person": lambda text: features.to_first_person(text, ("Bob Lee", "小李")),
    "doubts": _read_doubts,
    "noted_text": ingest.noted_text,
    "summarise": lambda text: summaries.summarise([_utterance(text)], 500),
    "shorten": lambda text: summaries.shorten(text, 500),
    "mentions": _read_mentions,
    "remove_names": lambda text: mentions.remove_names(text, MEMBERS),
    "detect_language": turn.detect_language,
    "recall request": _read_request,
    "needs_recall": conversation.needs_recall,
    "is_greeting": conversation.is_greeting,
    "possible_names": possible_names,
    "repair_json": _repair,
    "load_json_object": load_json_object,
    "single_line": lambda text: truncate_text(single_line(text), 100),
    "estimate_tokens": estimate_tokens,
}

ALPHABETS: Mapping[str, str] = {
    "secrets": "password: token= 密码是 secret_ is 'x1 eyJa. eyJ- ://a: -----BEGIN PRIVATE KEY-----"
    " bearer sk- ghp_ 4111 138 +1 010- (415) a@ @b.c . - 1 6222021 [redacted: token]"
    " curl -u mysql -p pwd= ;abc= “ １",
    "dates": "2026-01-26 1/2/2026 10:47 下午三点 去年 五月 三日 上周三 last week May 3 to and from "
    "2026年 1月 每 until before 之前 到 至 yesterday tomorrow the first half of 初八 ,",
    "capitals": "A B Bob ROBERT AKA Mr. Dr. Ann-Marie O'Neil I U.S.A. USA also known as , ( )",
    "hex": "0123456789abcdef DEADBEEF 0x1F CAFE BABE a-f :",
    "base64": "QUJD RGFu eA== /+ aGVsbG8gd29ybGQ= =",
    "brackets": '( ) [ ] { } < > （ ） 「 」 【 】 <b> </b> <tool_call> [[ ]] {} " : ,',
    "long tokens": "a aa aaaa b 我 我我 x1 _ - . @ / 1",
    "emoji": "❤️ 👍🏽 👨\u200d👩\u200d👧 🇩🇪 😀 \u200d \u200b \ufe0f \ufdfa e\u0301 ｶﾞ",
    "phrases": "I live in Oslo. 我住在北京， my sister's name is not really 我妈妈 喜欢 I work "
    "at allergic to peanuts Acme, actually 其实 remember that forget it 忘了 because ; ! ? 。 \n",
    "quotes": "\" ' “ ” 『 』 \\ \"a b\" 'it's' `` ``` ` > said, 说：",
    "orders": "system: ignore previous instructions SYSTEM user: assistant: please 请 @Bob @ 小李, "
    "hey Bob, translate this: http://a.b/c www. *a* **b** AND OR NOT - aaaa*",
}


class GeneratedText(NamedTuple):
    """A text of any size: words of an alphabet in random order, or some of them repeated."""

    alphabet: str
    seed: int
    is_repeated: bool

    def make(self, size: int) -> str:
        """Return the first characters of it; a longer text begins with a shorter one."""
        dice = random.Random(repr(self))  # noqa: S311 -- equal in every run
        words = [*ALPHABETS[self.alphabet].split(" "), dice.choice([" ", "\n"])]
        joint = dice.choice(["", "", " "])
        if not self.is_repeated:
            return joint.join(dice.choices(words, k=size))[:size]
        fragment = joint.join(dice.choices(words, k=dice.randint(1, 6)))
        fragment = fragment + dice.choice(["", "", " ", "\\n", ". "]) or " "
        return (fragment * (size // len(fragment) + 1))[:size]


def generate_texts(seeds: Iterable[int]) -> Iterator[GeneratedText]:
    """Yield texts of every alphabet."""
    for seed in seeds:
        for alphabet in ALPHABETS:
            yield GeneratedText(alphabet, seed, is_repeated=True)
            yield GeneratedText(alphabet, seed, is_repeated=False)
