"""Whether a user's message needs a recall at all."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from memrecall.agent.offline.keywords import read_json_lines
from memrecall.agent.offline.references import (
    PERSONAL_ADVICE,
    QUESTIONS_ABOUT_USER,
    Reference,
    find_references,
)
from memrecall.agent.offline.request import MAX_PARSED_LENGTH, extract_content_words
from memrecall.agent.offline.vocabulary import (
    POLITE_PHRASES,
    QUESTION_MARKERS,
    chinese_pattern,
    english_pattern,
    matches_any,
    pattern_ignoring_case,
)
from memrecall.model.offline import RuleAnswer, RuleRequest
from memrecall.text.language import FIRST_PERSON
from memrecall.text.times import find_times

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAGS = re.compile(r"<([A-Za-z_][\w:\-]*)(?:\s[^<>]*)?>.*?</\1>|<[A-Za-z_/!?][^<>\n]*>", re.DOTALL)
_JSON = re.compile(r"[\[{]\s*(?:[\"'\[{\d].*[\]}]|\}|\])", re.DOTALL)
_MACHINE_LINE = re.compile(
    r"""\s*(?:
        \[?\d{4}-\d\d-\d\d[T\s]\d\d:\d\d | \[?\d\d:\d\d:\d\d
      | (?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b
      | Traceback\s\(most | File\s".*",\sline\s\d | at\s[\w.$<>]+\(.*\)
      | \w+(?:\.\w+)*(?:Error|Exception)\b:? | Exception\sin\sthread | Caused\sby:
      | [$>\#]\s?\w | [+\-]{3}\s | @@\s
      | (?:def|class|import|from|function|const|let|var|public|private|return)\s\S
      | (?:SELECT|INSERT|UPDATE|DELETE|CREATE)\s
      | [})\];]+\s*$ | \S+\s?[=:{(]\s*[\w"'({\[]*[;,{(]\s*$
    )""",
    re.VERBOSE,
)
_TEMPLATE = re.compile(
    r"\{\{\s*\w+\s*\}\}"
    r"|^\s*\#{2,}\s*(?:instructions?|input|response|context|task|output)\b"
    r"|\byou are (?:a|an|the) [^.\n]{0,80}(?:assistant|agent|expert|model|bot)\b"
    r"|\b(?:respond|reply|answer|output|return) (?:only )?(?:with|in|as) "
    r"(?:a |valid |raw |strict )*json\b"
    r"|你是(?:一个|一名|一位)?[^。\n]{0,40}(?:助手|专家|智能体|机器人|模型)"
    r"|(?:严格)?按(?:照)?(?:以下|下列|如下)[^。\n]{0,8}(?:格式|要求|步骤|规则)"
    r"|(?:只|仅)(?:返回|输出|回复)[^。\n]{0,8}(?:JSON|json|结果|数字|代码)",
    re.IGNORECASE | re.MULTILINE,
)
# A task on a text that follows in the same message: "Translate this: …", 总结下面这段话：…
_ATTACHED_TEXT = re.compile(
    r"(?:following|below|this|these|下面|以下|下列|如下|这段|这句|这篇|这个|这些)"
    r"[^:：\n]{0,40}[:：\n]\s*\S"
    r"|\b(?:translate|summari[sz]e|proofread|paraphrase|rewrite)\b[^:\n]{0,60}[:\n]\s*\S"
    r"|(?:翻译|总结|概括|润色|改写|校对)[^:：\n]{0,20}[:：\n]\s*\S",
    re.IGNORECASE,
)
_MAX_MACHINE_SHARE = 0.6  # of the lines; with more, the whole text is machine-made


def _human_part(text: str) -> str:
    """Return the part of a message that a person wrote, empty if a machine wrote it all."""
    if _TEMPLATE.search(text):
        return ""
    part = _JSON.sub(" ", _TAGS.sub(" ", _FENCE.sub(" ", text)))
    lines = [line for line in part.splitlines() if line.strip()]
    machine_lines = [line for line in lines if _MACHINE_LINE.match(line)]
    if lines and len(machine_lines) / len(lines) >= _MAX_MACHINE_SHARE:
        return ""
    if machine_lines:
        part = "\n".join(line for line in lines if line not in machine_lines)
    attached = _ATTACHED_TEXT.search(part)
    return (part[: attached.end() - 1] if attached else part).strip()


# It only matters whether a time is in the past, not which one it is.
_NOW = datetime(2026, 6, 17, 12, tzinfo=UTC)
_UTC = ZoneInfo("UTC")

_GREETING = pattern_ignoring_case(
    r"\W*(?:hi|hello|hey|good (?:morning|evening|afternoon|night)"
    r"|thanks?(?: you)?(?: (?:so|very) much)?|thx|ok(?:ay)?|sure|great|nice|cool|bye|see you"
    r"|got it|yes|no|yep|nope|lol|haha+|你好|您好|早上好?|晚上好|下午好|早安|晚安|嗨|哈喽"
    r"|谢谢(?:你|您)?|多谢|辛苦了|好的?|嗯+|行|可以|没问题|收到|明白了?|知道了|再见|拜拜|哈+"
    r"|不用了?|对|是的?|没事)(?:[\s,.!~，。！～吧啊呀哦啦了]|$)*"
)
_FILLER = re.compile(r"^\W*(?:那个|这个)[，,、…\s]")
# 之前 and 以前 after a verb or a time mean "before that", not "earlier".
_BEFORE_EVENT = re.compile(
    r"(?<=[^\W我你您他她们咱的了在跟和按照像是得时候下，。,.\s])[之以]前(?!的|我|你|说|聊|讨论|提)"
)
_REMINDER = pattern_ignoring_case(
    r"^\W*(?:please )?remember (?:to|that|my|this|i)\b", "记得(?!吗|我|你|上|之|以|那)[^吗？?]*$"
)
_REPETITION = frozenset({"again", "once more", "the same", "same way"})
_NOT_AS_BEFORE = pattern_ignoring_case(
    r"\bthe same\b(?=\s*(?:\?|$|time\b|thing\b"
    r"|as\b(?!\s+(?:before|last|usual|always|my|our)\b)))"
)
_SENTENCE_WORDS = (
    chinese_pattern("了,是,在,去,我,他,她"),
    english_pattern("is,was,were,are,went,had,has,i,we,he,she,they,did"),
)
_MAX_FRAGMENT_LENGTH = 24


@dataclass(frozen=True, slots=True)
class RecallNeed:
    """Whether a recall is needed, and why."""

    needed: bool
    reason: str


def answer_needs_recall_prompt(request: RuleRequest) -> RuleAnswer:
    """Answer the prompt `needs_recall`: whether the last user message needs a recall."""
    lines = [line for line in read_json_lines(request.messages) if "text" in line]
    texts = [str(line["text"]) for line in lines]
    user_positions = [i for i, line in enumerate(lines) if line.get("role", "user") == "user"]
    position = user_positions[-1] if user_positions else len(texts) - 1
    needed = position >= 0 and needs_recall(texts[position], texts[:position]).needed
    return RuleAnswer(text=json.dumps({"needed": needed}))


def needs_recall(text: str, earlier_texts: Sequence[str]) -> RecallNeed:
    """Decide whether a message refers to the past or asks about the user.

    A reference that the earlier messages explain needs no recall.
    """
    request = _human_part(text[: 4 * MAX_PARSED_LENGTH])[:MAX_PARSED_LENGTH]
    if not request:
        return RecallNeed(False, "written by a machine, or a task with its own text")
    if is_greeting(request):
        return RecallNeed(False, "a greeting or an acknowledgement")
    has_context = any(earlier.strip() and not is_greeting(earlier) for earlier in earlier_texts)
    return _check_references(request, has_context) or _check_question(request)


def is_greeting(text: str) -> bool:
    """Return True if a text is only a greeting, thanks or an acknowledgement."""
    return _GREETING.fullmatch(text) is not None


def _check_references(text: str, has_context: bool) -> RecallNeed | None:
    """Return a need if a reference points outside the conversation or at nothing in it."""
    references = _genuine_references(text)
    near = [reference for reference in references if reference.kind == "near"]
    for reference in references:
        if reference.kind == "near" or (reference.kind == "thing" and has_context):
            continue
        is_repetition = reference.text.lower() in _REPETITION
        is_near = near and reference.kind in ("said", "thing")
        if has_context and (is_repetition or is_near):
            continue
        return RecallNeed(True, f"refers to something earlier: {reference.text}")
    if near and not has_context and not extract_content_words(text):
        return RecallNeed(True, f"continues something that is not shown: {near[0].text}")
    return None


def _genuine_references(text: str) -> list[Reference]:
    """Return the references without fillers, "before lunch", reminders and the like."""
    patterns = (_BEFORE_EVENT, _NOT_AS_BEFORE)
    excluded = {match.start() for pattern in patterns for match in pattern.finditer(text)}
    if _FILLER.match(text):
        excluded |= {0, 1}
    is_reminder = bool(_REMINDER.search(text))
    return [
        reference
        for reference in find_references(text)
        if reference.start not in excluded and not (is_reminder and reference.kind == "said")
    ]


def _check_question(text: str) -> RecallNeed:
    is_question = matches_any(text, QUESTION_MARKERS)
    if matches_any(text, QUESTIONS_ABOUT_USER):
        return RecallNeed(True, "asks about the user or about something done together")
    if matches_any(text, PERSONAL_ADVICE):
        return RecallNeed(True, "asks for advice that depends on the user")
    times = find_times(text, _NOW, _UTC)
    past = [t.text for t in times if (t.start or t.end or _NOW) < _NOW and (t.end or _NOW) <= _NOW]
    if past and FIRST_PERSON.search(text) and is_question:
        return RecallNeed(True, f"asks about a time in the past: {past[0]}")
    if past and not is_question and _is_fragment(text):
        return RecallNeed(True, f"names something of the past: {past[0]}")
    return RecallNeed(False, "is complete without the past")


def _is_fragment(text: str) -> bool:
    """Return True if a text only names a thing, as in "yesterday's list"."""
    for pattern in POLITE_PHRASES:
        text = pattern.sub(" ", text)
    is_short = len(text) <= _MAX_FRAGMENT_LENGTH * (2 if text.isascii() else 1)
    return is_short and not matches_any(text, _SENTENCE_WORDS)
