"""Whether a user's message needs a recall at all."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from memrecall.agent.offline.references import (
    FIRST_PERSON,
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
    pattern_ignoring_case,
)
from memrecall.text.times import TimeSpan, find_times

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAGGED = re.compile(
    r"<([A-Za-z_][\w:\-]*)(?:\s[^<>]*)?>.*?</\1>|<[A-Za-z_/!?][^<>\n]*>", re.DOTALL
)
_OBJECT = re.compile(r"[\[{]\s*(?:[\"'\[{\d].*[\]}]|\}|\])", re.DOTALL)
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
# A task on a text that follows it: "Translate this: …", 总结下面这段话：…
_GIVEN = re.compile(
    r"(?:following|below|this|these|下面|以下|下列|如下|这段|这句|这篇|这个|这些)"
    r"[^:：\n]{0,40}[:：\n]\s*\S"
    r"|\b(?:translate|summari[sz]e|proofread|paraphrase|rewrite)\b[^:\n]{0,60}[:\n]\s*\S"
    r"|(?:翻译|总结|概括|润色|改写|校对)[^:：\n]{0,20}[:：\n]\s*\S",
    re.IGNORECASE,
)
_MOST_MACHINE = 0.6  # of the lines; with more, the whole is machine-made


def human_part(text: str) -> str:
    """What of a message a person wrote to be answered; empty if a machine made it all."""
    if _TEMPLATE.search(text):
        return ""
    part = _TAGGED.sub(" ", _FENCE.sub(" ", text))
    part = _OBJECT.sub(" ", part)
    lines = [line for line in part.splitlines() if line.strip()]
    machine = [line for line in lines if _MACHINE_LINE.match(line)]
    if lines and len(machine) / len(lines) >= _MOST_MACHINE:
        return ""
    if machine:
        part = "\n".join(line for line in lines if line not in machine)
    given = _GIVEN.search(part)
    return (part[: given.end() - 1] if given else part).strip()


# Only whether a time is past matters here, not which one it is.
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
# 之前 and 以前 behind a verb or a time are "before that", not "earlier".
_BEFORE = re.compile(
    r"(?<=[^\W我你您他她们咱的了在跟和按照像是得时候下，。,.\s])[之以]前(?!的|我|你|说|聊|讨论|提)"
)
_TO_DO = pattern_ignoring_case(
    r"^\W*(?:please )?remember (?:to|that|my|this|i)\b",
    "记得(?!吗|我|你|上|之|以|那)[^吗？?]*$",
)
_AGAIN = frozenset({"again", "once more", "the same", "same way"})
_NOT_ALIKE = pattern_ignoring_case(
    r"\bthe same\b(?=\s*(?:\?|$|time\b|thing\b"
    r"|as\b(?!\s+(?:before|last|usual|always|my|our)\b)))"
)
_SENTENCE = (
    chinese_pattern("了,是,在,去,我,他,她"),
    english_pattern("is,was,were,are,went,had,has,i,we,he,she,they,did"),
)
_FRAGMENT_LENGTH = 24


@dataclass(frozen=True, slots=True)
class RecallNeed:
    """Whether a recall is needed, and why."""

    needed: bool
    why: str


def needs_recall(text: str, earlier_texts: Sequence[str]) -> RecallNeed:
    """Judge a message: does it point at the past or ask about the user?

    What a reference means may stand in the earlier messages: then nothing needs to be recalled.
    """
    asked = human_part(text[: 4 * MAX_PARSED_LENGTH])[:MAX_PARSED_LENGTH]
    if not asked:
        return RecallNeed(False, "machine-made, or a text that has all it needs")
    if is_greeting(asked):
        return RecallNeed(False, "a greeting or a nod")
    here = any(said.strip() and not is_greeting(said) for said in earlier_texts)
    return _judge_references(asked, here) or _judge_question(asked)


def is_greeting(text: str) -> bool:
    """Whether it is only a greeting, thanks or a nod."""
    return _GREETING.fullmatch(text) is not None


def _judge_references(text: str, here: bool) -> RecallNeed | None:
    """A verdict by references: those that reach out of the conversation, or find nothing in it."""
    found = _true_references(text)
    near = [one for one in found if one.to == "near"]
    for one in found:
        if one.to == "near" or (one.to == "thing" and here):
            continue
        if here and (one.text.lower() in _AGAIN or (near and one.to in ("said", "thing"))):
            continue
        return RecallNeed(True, f"refers to something earlier: {one.text}")
    if near and not here and not extract_content_words(text):
        return RecallNeed(True, f"goes on with something that is not shown: {near[0].text}")
    return None


def _true_references(text: str) -> list[Reference]:
    """The references of a text without look-alikes: fillers, "before lunch", reminders."""
    found = list(find_references(text))
    if _FILLER.match(text):
        found = [one for one in found if one.start > 1]
    not_earlier = {match.start() for match in _BEFORE.finditer(text)}
    not_earlier |= {match.start() for match in _NOT_ALIKE.finditer(text)}
    found = [one for one in found if one.start not in not_earlier]
    if _TO_DO.search(text):
        found = [one for one in found if one.to != "said"]
    return found


def _judge_question(text: str) -> RecallNeed:
    asking = any(pattern.search(text) for pattern in QUESTION_MARKERS)
    if any(pattern.search(text) for pattern in QUESTIONS_ABOUT_USER):
        return RecallNeed(True, "asks about the user or what was done together")
    if any(pattern.search(text) for pattern in PERSONAL_ADVICE):
        return RecallNeed(True, "asks for advice that depends on the user")
    past = [span.text for span in find_times(text, _NOW, _UTC) if _is_past(span)]
    if past and FIRST_PERSON.search(text) and asking:
        return RecallNeed(True, f"asks about a time in the past: {past[0]}")
    if past and not asking and _is_fragment(text):
        return RecallNeed(True, f"names something of the past: {past[0]}")
    return RecallNeed(False, "says all that it needs")


def _is_past(span: TimeSpan) -> bool:
    return (span.start or span.end or _NOW) < _NOW and (span.end or _NOW) <= _NOW


def _is_fragment(text: str) -> bool:
    """Whether it only names a thing, as one does who wants it: "yesterday's list"."""
    bare = text
    for pattern in POLITE_PHRASES:
        bare = pattern.sub(" ", bare)
    short = len(bare) <= _FRAGMENT_LENGTH * (1 if not bare.isascii() else 2)
    return short and not any(pattern.search(bare) for pattern in _SENTENCE)
