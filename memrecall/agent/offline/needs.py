"""Whether a user's message needs a recall at all."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

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

_LONGEST_GREETING = 60  # characters
_GREETING = pattern_ignoring_case(
    r"\W*(?:(?:hi|hello|hey|there|good (?:morning|evening|afternoon|night)"
    r"|how are you(?: doing)?(?: today)?|how(?:'s| is) it going|what's up"
    r"|在吗|你好吗|您好吗|最近(?:怎么样|好吗|如何)|大家好"
    r"|thanks?(?: you)?(?: (?:so|very) much)?|thx|ok(?:ay)?|sure|great|nice|cool|bye|see you"
    r"|got it|yes|no|yep|nope|lol|haha+|你好|您好|早上好?|晚上好|下午好|早安|晚安|嗨|哈喽"
    r"|谢谢(?:你|您)?|多谢|辛苦了|好的?|嗯+|行|可以|没问题|收到|明白了?|知道了|再见|拜拜|哈+"
    r"|不用了?|对|是的?|没事)(?:[\s,.!?~，。！？～吧啊呀哦啦了]|$)*){1,3}"
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
_ONCE_KNOWN = re.compile(r"来着\W*$")  # a question for something that one has known
_SENTENCE_WORDS = (
    chinese_pattern("了,是,在,去,我,他,她"),
    english_pattern("is,was,were,are,went,had,has,i,we,he,she,they,did"),
)
_MAX_FRAGMENT_LENGTH = 24


def needs_recall(text: str, earlier_texts: Sequence[str]) -> bool:
    """Return True if a message refers to the past or asks about the user.

    A reference that the earlier messages explain needs no recall, nor does a greeting, a text that
    a machine wrote, or a task with its own text.
    """
    request = _human_part(text[: 4 * MAX_PARSED_LENGTH])[:MAX_PARSED_LENGTH]
    if not request or is_greeting(request):
        return False
    has_context = any(earlier.strip() and not is_greeting(earlier) for earlier in earlier_texts)
    return _has_open_reference(request, has_context) or _asks_about_past(request)


def is_greeting(text: str) -> bool:
    """Return True if a text is only a greeting, thanks or an acknowledgement."""
    return len(text) <= _LONGEST_GREETING and _GREETING.fullmatch(text) is not None


def _has_open_reference(text: str, has_context: bool) -> bool:
    """Return True if a reference points outside the conversation or at nothing in it."""
    references = _genuine_references(text)
    near = [reference for reference in references if reference.kind == "near"]
    for reference in references:
        if reference.kind == "near" or (reference.kind == "thing" and has_context):
            continue
        is_repetition = reference.text.lower() in _REPETITION
        is_near = near and reference.kind in ("said", "thing")
        if not (has_context and (is_repetition or is_near)):
            return True
    # "Go on" continues something that is not shown.
    return bool(near) and not has_context and not extract_content_words(text)


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


def _asks_about_past(text: str) -> bool:
    """Return True if a text asks about the user, or asks about or names a time in the past."""
    if matches_any(text, (*QUESTIONS_ABOUT_USER, *PERSONAL_ADVICE, _ONCE_KNOWN)):
        return True
    times = find_times(text, _NOW, _UTC)
    if not any((t.start or t.end or _NOW) < _NOW and (t.end or _NOW) <= _NOW for t in times):
        return False
    if matches_any(text, QUESTION_MARKERS):
        return FIRST_PERSON.search(text) is not None
    return _is_fragment(text)


def _is_fragment(text: str) -> bool:
    """Return True if a text only names a thing, as in "yesterday's list"."""
    for pattern in POLITE_PHRASES:
        text = pattern.sub(" ", text)
    is_short = len(text) <= _MAX_FRAGMENT_LENGTH * (2 if text.isascii() else 1)
    return is_short and not matches_any(text, _SENTENCE_WORDS)
