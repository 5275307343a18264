"""What each word list and pattern earns: the figures of every question with it switched off.

    python benchmarks/ablation.py FOLDER… [--only NAME…] [--out FILE]

A folder is an evaluation set (docs/evaluation.md). A row is a list that is switched off alone, and
the differences to all of them on, in questions of a hundred. Each list is measured where it
decides, and each author is a table of their own:

- `questions`, with search and a recall without a model: of answerable questions, evidence first and
  among the first three results; first and at all among the items; answered with nothing; and the
  AUROC of the confidence, in points.
- `about the user`: the same for questions written as models write them, about "the user" (用户).
- `asked before`: the same after each question was asked with an address before it.
- `hooks`: what a hook adds after each question was asked with one more word: of answerable
  questions, a block with evidence; of all, a block without.
- `messages`, without a search: how many questions and how many messages of users get a recall, and
  for how many the language of a chat is that of its author.

The weights that were fitted with a list are not fitted again without it, so that what a list earns
is not understated. `--out` keeps what the file has of other authors and rows.
"""

import sys

if not __package__:  # run as a file: this folder has modules named like those of the library
    sys.path.pop(0)

import argparse
import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from benchmarks.pairs import Answer, as_messages, open_set, run, share, summarize  # noqa: E402
from benchmarks.report import Figures, print_figures, say, write_figures  # noqa: E402
from memrecall import recall  # noqa: E402
from memrecall.agent import blocks, conversation, offline  # noqa: E402
from memrecall.agent.tools import search  # noqa: E402
from memrecall.chat import turn  # noqa: E402
from memrecall.evaluation.datasets import Question  # noqa: E402
from memrecall.memory import Library  # noqa: E402
from memrecall.search import engine  # noqa: E402
from memrecall.search.ranking import features, lexical, rerank  # noqa: E402
from memrecall.text import keywords as text_keywords  # noqa: E402
from memrecall.text.language import language_of, language_of_most  # noqa: E402

_NEVER = re.compile(r"(?!)")
_NO_WORDS: frozenset[str] = frozenset()
_STOP_WORDS = ("STOP_TERMS", "STOP_CHARS", "STOP_WORDS")
_BLOCK_CHARACTERS = 4_000
Patch = tuple[Any, str, object]
Row = Mapping[str, float]


def _always(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


def _in_ranking(name: str, value: object) -> tuple[Patch, ...]:
    return (features, name, value), (rerank, name, value)


# A list by what it does, with the names in modules that are replaced, and what with; by measure.
LISTS: Mapping[str, Mapping[str, tuple[Patch, ...]]] = {
    "questions": {
        "stop words of queries": tuple((lexical, name, _NO_WORDS) for name in _STOP_WORDS),
        "stop words of keywords": tuple((text_keywords, name, _NO_WORDS) for name in _STOP_WORDS),
        "stop words in names": ((features, "STOP_TERMS", _NO_WORDS),),
        "questions": _in_ranking("is_question", _always(False)),
        "questions: trust in words": ((features, "is_question", _always(False)),),
        "first person": _in_ranking("FIRST_PERSON", _NEVER),
        "first person: personal": ((features, "FIRST_PERSON", _NEVER),),
        "times of a request": ((features, "find_times", _always([])),),
        "names of speakers": (
            *_in_ranking("find_speakers", _always({})),
            (engine, "find_speakers", _always({})),
        ),
        "names as the first person": ((engine, "to_first_person", lambda query, _: query),),
        "numbers in lines": ((rerank, "_NUMBER", _NEVER),),
        "greetings and thanks": ((offline, "is_greeting", _always(False)),),
        "follow-ups without a content word": (
            (offline.Situation, "is_follow_up", property(_always(False))),
        ),
        "lines before what is unlikely alone": ((offline, "LIKELY", 0.0),),
    },
    "about the user": {
        "the user as the first person": ((engine, "user_to_first_person", lambda query: query),),
    },
    "asked before": {
        "messages with the same words": (
            (search, "compare_texts", lambda _, texts: [False] * len(texts)),
        ),
        "addresses before a question": ((search, "_ADDRESSED", _NEVER),),
    },
    "hooks": {"stop words of hooks": ((blocks, "STOP_WORDS", _NO_WORDS),)},
    "messages": {
        "greetings and thanks": ((conversation, "is_greeting", _always(False)),),
        "words of a language": ((turn, "_ENGLISH", _NO_WORDS), (turn, "_CHINESE", _NEVER)),
    },
}
FIGURES = {
    "search first": "search first",
    "search three": "three",
    "recall first": "recall first",
    "recall any": "any",
    "wrongly nothing": "none answerable",
    "AUROC": "auroc",
}


@contextmanager
def without(patches: tuple[Patch, ...]) -> Iterator[None]:
    """Replace names in modules for a while."""
    kept = [(module, name, getattr(module, name)) for module, name, _ in patches]
    try:
        for module, name, value in patches:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


@dataclass(frozen=True, slots=True)
class Author:
    """An author's evaluation set, and where changed copies of it are kept."""

    folder: Path
    work: Path

    def read(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of one of its files."""
        return [json.loads(line) for line in (self.folder / name).read_text("utf-8").splitlines()]

    def copy(self, name: str, corpus: Sequence[Any], queries: Sequence[Any]) -> Path:
        """Write a changed copy of the set."""
        folder = self.work / f"{self.folder.name}-{name}"
        folder.mkdir(exist_ok=True)
        for file, rows in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (folder / file).write_text("".join(lines), "utf-8")
        return folder


async def measure_questions(author: Author) -> Row:
    """Return what search and recall find for the questions as they are."""
    return _pick(await run(author.folder, author.work))


async def measure_about_the_user(author: Author) -> Row:
    """Return the same for the questions about "the user", as models write them."""
    queries = [
        {**row, "query": _in_third_person(row["query"])} for row in author.read("queries.jsonl")
    ]
    return _pick(await run(author.copy("user", author.read("corpus.jsonl"), queries), author.work))


async def measure_asked_before(author: Author) -> Row:
    """Return the same after each question was asked with an address before it."""
    return _pick(await run(_ask_before(author, "@Helper ", "@助手 "), author.work))


async def measure_hooks(author: Author) -> Row:
    """Return what a hook adds after each question was asked with one more word."""
    async with open_set(_ask_before(author, "so ", "那"), author.work) as (library, questions):
        blocks = [await _hook_block(library, question) for question in questions]
    pairs = list(zip(questions, blocks, strict=True))
    right = [any(f'"{key}"' in block for key in each.evidence) for each, block in pairs]
    return {
        "with evidence": share(
            is_right for is_right, each in zip(right, questions, strict=True) if each.evidence
        ),
        "without": share(
            bool(block) and not is_right for is_right, block in zip(right, blocks, strict=True)
        ),
    }


async def measure_messages(author: Author) -> Row:
    """Return how many texts get a recall, and for how many the language of a chat is right."""
    questions = [row["query"] for row in author.read("queries.jsonl")]
    corpus = author.read("corpus.jsonl")
    said = [row["content"] for row in corpus if row["role"] == "user"]
    language = language_of_most(said)
    texts = [*questions, *said]
    return {
        "questions with a recall": share(map(conversation.needs_recall, questions)),
        "messages with a recall": share(map(conversation.needs_recall, said)),
        "language": share(turn.chat_language([text], []) == language for text in texts),
    }


MEASURES = {
    "questions": measure_questions,
    "about the user": measure_about_the_user,
    "asked before": measure_asked_before,
    "hooks": measure_hooks,
    "messages": measure_messages,
}


def _pick(answers: Sequence[Answer]) -> Row:
    figures = summarize(answers)
    return {name: figures[of] for name, of in FIGURES.items()}


def _in_third_person(query: str) -> str:
    for words, name in (
        (r"\b(?:my|our)\b", "the user's"),
        (r"\b(?:am i|are we)\b", "is the user"),
        (r"\b(?:i|me|we|us)\b", "the user"),
        ("我们|我|咱们|咱", "用户"),
    ):
        query = re.sub(words, name, query, flags=re.IGNORECASE)
    return query


def _ask_before(author: Author, english: str, chinese: str) -> Path:
    """Write a copy in which each question is also stored, with these words before it."""
    queries, corpus = author.read("queries.jsonl"), author.read("corpus.jsonl")
    for row in queries:
        now = row.get("as_of") and datetime.fromisoformat(row["as_of"])
        text = row["query"].splitlines()[-1]
        corpus.append(
            {
                "user_id": row["user_id"],
                "message_id": f"{row['query_id']}-before",
                "ts": ((now or datetime.now(UTC)) - timedelta(hours=1)).isoformat(),
                "role": "user",
                "content": (chinese if language_of(text) == "zh" else english) + text,
                "session_id": f"{row['query_id']}-before",
            }
        )
    return author.copy(f"before-{english.strip(' @')}", corpus, queries)


async def _hook_block(library: Library, question: Question) -> str:
    now = question.horizon
    result = await recall(
        as_messages(question.query),
        user_id=question.user_id,
        library=library,
        as_of=now,
        clock=lambda: now or datetime.now(UTC),
    )
    return blocks.write_relevant_block(
        result, _BLOCK_CHARACTERS, only_sure=True, request=question.query
    )


def measure_author(author: Author, names: Sequence[str]) -> dict[str, Figures]:
    """Return the tables of an author: all on, and the differences without each list."""
    tables: dict[str, Figures] = {}
    for measure, lists in LISTS.items():
        chosen = [name for name in lists if not names or name in names]
        if not chosen:
            continue
        base = asyncio.run(MEASURES[measure](author))
        table: Figures = {"all on": {name: 100 * value for name, value in base.items()}}
        for name in chosen:
            with without(lists[name]):
                figures = asyncio.run(MEASURES[measure](author))
            table[name] = {each: 100 * (figures[each] - base[each]) for each in base}
            rounded = (f"{each} {value:+.1f}" for each, value in table[name].items())
            say(f"{author.folder.name}, {measure}, {name}: {', '.join(rounded)}")
        tables[f"{author.folder.name}: {measure}"] = table
    return tables


def main() -> None:
    """Measure with all lists, then without each of them, and print the differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--work", type=Path, default=Path("/tmp/memrecall-pairs"))  # noqa: S108
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these lists")
    parser.add_argument("--out", type=Path, metavar="FILE", help="add the figures to this file")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for folder in options.folders:
        author = Author(folder.resolve(), options.work)
        tables = measure_author(author, options.only)
        for title, table in tables.items():
            print_figures(f"{title}; lists switched off, in questions of a hundred", table)
        if options.out is not None:
            kept = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
            tables = {title: {**kept.get(title, {}), **table} for title, table in tables.items()}
            write_figures(options.out, {**kept, **tables})


if __name__ == "__main__":
    main()
