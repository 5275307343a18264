"""What of a message its sender said: no code, no data, no quotations, no recalled memories."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from memrecall.agent.prompt_view import BLOCK_END, BLOCK_START
from memrecall.extraction.protocol import Utterance
from memrecall.model.prompts import Language
from memrecall.types import Role

SPEAKING = frozenset({Role.USER, Role.OTHER})
"""Whose words are facts: people's. What an assistant or a tool wrote is evidence of nothing."""

LONGEST_READ = 20_000

_RECALLED = re.compile(rf"{re.escape(BLOCK_START)}.*?(?:{re.escape(BLOCK_END)}|\Z)", re.DOTALL)
_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAGGED = re.compile(r"<([A-Za-z_][\w:\-]*)(?:\s[^<>]*)?>.*?</\1>", re.DOTALL)
_DATA_LINE = re.compile(
    r"""\s*(?:
        >                                                   # a quoted line
      | [\[{]\s*["'\[{\]}]                                  # JSON
      | \[?\d{4}-\d\d-\d\d[T\s]\d\d:\d\d | \[?\d\d:\d\d:\d\d
      | (?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b
      | Traceback\s\(most | File\s".*",\sline\s\d | at\s[\w.$<>]+\(.*\)
      | \w+(?:\.\w+)*(?:Error|Exception):\s
      | [$\#]\s\S | [+\-]{3}\s | @@\s
      | (?:def|class|import|from|function|const|let|var|return)\s\S.*[:;({]\s*$
      | (?:SELECT|INSERT|UPDATE|DELETE|CREATE)\s[\w*"(]
      | [})\];]+\s*$
    )""",
    re.VERBOSE,
)
# A task on a text that follows it: what the text says is nobody's own words.
_TASK = re.compile(
    r"\b(?:translate|summari[sz]e|proofread|paraphrase|rewrite|rephrase|correct|polish|edit|review"
    r"|fix|improve|continue|analy[sz]e|classify|write|draft|compose|role-?play)\b"
    r"[^:\n.]{0,80}(?::\s*|\n\s*)(?=\S)"
    r"|(?:翻译|译成|总结|概括|润色|改写|校对|修改|改一下|检查|解释|分析|续写|扩写|造句|归纳|提炼"
    r"|写一[篇段封个首]|编一个|扮演)[^:：\n。]{0,30}(?:[:：]\s*|\n\s*)(?=\S)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"“([^”]*)”|\"([^\"\n]*)\"|「([^」]*)」|『([^』]*)』")
_SOMEBODY_SPEAKS = re.compile(r"\b(?:i|i'm|me|my|we|you)\b|我|你", re.IGNORECASE)
_LONGEST_NAME = 30

_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|approx|no|jr|sr|a\.m|p\.m)|\b[A-Z])\.$",
    re.IGNORECASE,
)
_END = re.compile(r"([.!?]+)[\"')\]]*(?=\s|$)|([。！？；]+|…+|[!?]+)[”」』）)]*|\n+|;\s")
_BULLET = re.compile(r"^\s*(?:[-*•·–]|\d{1,2}[.)、])\s+")
_HAN = re.compile(r"[\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence without its end; `asks` if that is a question mark."""

    text: str
    asks: bool
    language: Language


def speaks(utterance: Utterance) -> bool:
    """Whether a person said it."""
    return utterance.role in SPEAKING


def said(text: str) -> str:
    """The sender's own words of a text."""
    part = text[:LONGEST_READ].replace("’", "'").replace("‘", "'")
    for pattern in (_RECALLED, _FENCE, _TAGGED):
        part = pattern.sub("\n", part)
    part = "\n".join(line for line in part.split("\n") if not _DATA_LINE.match(line))
    if task := _TASK.search(part):
        part = part[: task.start()]
    return _QUOTED.sub(_unquote, part).strip()


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences that a sender said, in order."""
    for piece, end in _split(said(text)):
        bare = _BULLET.sub("", piece).strip()
        if bare:
            asks = "?" in end or "？" in end
            yield Sentence(bare, asks, "zh" if _HAN.search(bare) else "en")


def is_balanced(text: str) -> bool:
    """Whether every bracket that opens is closed: half of a remark is no statement."""
    return all(text.count(one) == text.count(other) for one, other in ("()", "（）", "[]", "【】"))


def _unquote(match: re.Match[str]) -> str:
    """A name keeps its words without the marks; what somebody says in a quotation is dropped."""
    inner = next(group for group in match.groups() if group is not None)
    if len(inner) > _LONGEST_NAME or _SOMEBODY_SPEAKS.search(inner):
        return " … "
    return inner


def _split(text: str) -> Iterator[tuple[str, str]]:
    start = 0
    for match in _END.finditer(text):
        if match.group(1) == "." and _ABBREVIATION.search(text, start, match.end(1)):
            continue
        yield text[start : match.start()], match.group()
        start = match.end()
    yield text[start:], ""
