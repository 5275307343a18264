"""Reports of the calls that a filter hid."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memrecall.text.leaks.formats import FormatKind, FormatRow
from memrecall.text.leaks.json_calls import CALL_KEYS, LIST_KEYS, NAME_KEYS, NAMESPACE

_NAME = rf"(?:{NAMESPACE})?([^\sĠĊ<>＜＞【】\"'`{{}}()\[\]|｜,;:=&/*\\]+)"
_BAR = r"[|｜‖│∣∥¦￨❘ǀ]"
# Formats of calls, with the tool's name as the only group. A text uses the one that matches first.
_CALL_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:[<＜:]|{_BAR})\s?invoke\s[^<>]{{0,80}}?\bname\s*=\s*[\"']?{_NAME}",
        rf"<\s?function\s*=\s*[\"']?{_NAME}",
        rf"<\s?(?:tool|function)[_-]?(?:call|use)?s?\s?[^<>]{{0,80}}?name\s*=\s*[\"']?{_NAME}",
        rf"tool[_▁ ]call[_▁ ]begin{_BAR}>\s*(?:function<{_BAR}tool[_▁ ]sep{_BAR}>)?"
        rf"(?!function<){_NAME}(?=<{_BAR}|:\d|\n)",
        rf"call tool=\"{_NAME}\"",
        rf"\bto={_NAME}(?=[\s<{{(])",
        rf"\[TOOL_CALLS?\]\s*{_NAME}\s*(?=[\[{{])",
        rf"<tool_calls?\b[^<>]*>\s*{_NAME}\s*(?=[<({{\n])",
        rf"\bfunctions\.{_NAME}(?=\s*[({{]|:\d)",
        rf"<(?:tool_name|function_name|tool|function)>\s*{_NAME}\s*<",
        rf"(?:\[|\b\w+>|[,;)，]\s*|^|\n|print\(|await )[@*/]{{0,3}}{_NAME}\*{{0,3}}"
        r"\((?=\s*(?:\w+\s*=|[){\"'\[]))",
    )
)
_JSON_BEGIN = re.compile(r"[\[{](?=\s*[\[{\"'])")
_JSON_NAME = re.compile(
    rf"[\"'](?:{'|'.join(sorted(NAME_KEYS))})[\"']\s*:\s*[\"']{_NAME}[\"']", re.I
)
_DECODER = json.JSONDecoder()


def find_calls(text: str, tools: Iterable[str]) -> list[tuple[int, str]]:
    """Return the position and the tool's name of each call in a text.

    Without a recognisable call it is the first registered tool that the text mentions.
    """
    formats = [list(_matches(pattern, text)) for pattern in _CALL_PATTERNS]
    formats.append(list(_json_calls(text)))
    fallback = next(_matches(_JSON_NAME, text), None) or _first_mentioned(text, tools)
    calls = min(filter(None, formats), key=lambda calls: calls[0][0], default=None)
    return calls or ([fallback] if fallback else [])


def _first_mentioned(text: str, tools: Iterable[str]) -> tuple[int, str] | None:
    """Return the first registered tool in a text, the longer name of two at one position."""
    positions = [(text.find(tool), -len(tool), tool) for tool in tools if tool in text]
    position, _, tool = min(positions, default=(0, 0, None))
    return None if tool is None else (position, tool)


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    return ((match.start(), match[1]) for match in pattern.finditer(text))


def _json_calls(text: str) -> Iterator[tuple[int, str]]:
    """Yield the calls in the JSON values of a text, the first name of a truncated one."""
    end = 0
    while begin := _JSON_BEGIN.search(text, end):
        try:
            value, end = _DECODER.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            match = _JSON_NAME.search(text, begin.start())
            if match:
                yield begin.start(), match[1]
            return
        position = begin.start()
        for name in _names_in(value):
            position = max(position, text.find(name, position))
            yield position, name


def _names_in(value: Any) -> Iterator[str]:
    """Yield the names of the calls in a decoded value, without its arguments."""
    if isinstance(value, list):
        for item in value:
            yield from _names_in(item)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in NAME_KEYS and isinstance(inner, str):
                yield re.sub(rf"\A(?:{NAMESPACE})", "", inner)
            elif key in CALL_KEYS | LIST_KEYS:
                yield from _names_in(inner)


_MAX_SEARCHED_LENGTH = 65_536  # characters of hidden text that are searched for names


@dataclass(frozen=True, slots=True)
class Leak:
    """A call that was written as text: its format, its position and the tool's name if known.

    The position is that of the call's first character, or of the name for further calls in the
    same block.
    """

    family: str
    position: int
    name: str | None = None


class Filtered(NamedTuple):
    """The visible part of a text, and the calls that were in it."""

    visible: str
    leaks: list[Leak]


@dataclass(slots=True)
class HiddenText:
    """Text that is hidden from a call on."""

    row: FormatRow
    position: int
    tools: tuple[str, ...]  # the registered ones
    _pieces: list[str] = field(default_factory=list)
    _remaining: int = _MAX_SEARCHED_LENGTH

    def append(self, text: str) -> None:
        """Store hidden text, up to the length that is searched for names."""
        if self._remaining and text:
            self._pieces.append(text[: self._remaining])
            self._remaining -= len(self._pieces[-1])

    def leaks(self) -> list[Leak]:
        """Return the calls in it, at least one at its start, or none after the end of an answer."""
        if self.row.kind is FormatKind.END:
            return []
        calls = find_calls("".join(self._pieces), self.tools)
        more = [Leak(self.row.family, self.position + at, name) for at, name in calls[1:]]
        return [Leak(self.row.family, self.position, calls[0][1] if calls else None), *more]
