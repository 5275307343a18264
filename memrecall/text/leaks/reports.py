"""What a filter tells: the calls that it hid."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memrecall.text.leaks.json_calls import CALL_KEYS, LIST_KEYS, NAME_KEYS

_NAME = r"([^\s<>＜＞\"'`{}()\[\]|｜,;:=&/\\]+)"
_BAR = r"[|｜‖│∣∥¦￨❘ǀ]"
# Ways of naming a tool, each with the name as its only group. The one that is found first is the
# one that a text uses.
_WAYS = tuple(
    re.compile(way, re.IGNORECASE)
    for way in (
        rf"(?:[<＜:]|{_BAR})\s?invoke\s[^<>]{{0,80}}?\bname\s*=\s*[\"']?{_NAME}",
        rf"<\s?function\s*=\s*[\"']?{_NAME}",
        rf"<\s?function\s?[^<>]{{0,80}}?name\s*=\s*[\"']?{_NAME}",
        rf"tool[_▁ ]call[_▁ ]begin{_BAR}>\s*(?:function<{_BAR}tool[_▁ ]sep{_BAR}>)?"
        rf"(?!function<)(?:functions\.)?{_NAME}(?=<{_BAR}|:\d|\n)",
        rf"tools_prefix\|>\s*\[\s*\{{\s*\"{_NAME}\"",
        rf"call tool=\"{_NAME}\"",
        rf"\bto=(?:functions\.|tools\.)?{_NAME}(?=[\s<{{(])",
        rf"\bcall:{_NAME}\{{",
        rf"\[TOOL_CALLS?\]\s*{_NAME}\s*(?=[\[{{])",
        rf"<tool_calls?\b[^<>]*>\s*{_NAME}\s*(?=[<({{\n])",
        rf"\bfunctions\.{_NAME}(?=\s*[({{]|:\d)",
        rf"<\s?(?:tool|function)[_-]?(?:call|use)s?\s[^<>]{{0,80}}?\bname\s*=\s*[\"']?{_NAME}",
        rf"\bAction:\s*{_NAME}(?=\s)",
        rf"<(?:tool_name|function_name|tool|function)>\s*{_NAME}\s*<",
        rf"(?:\[|\b\w+>|[,;)]\s*|^|\n|print\(|await ){_NAME}\((?=\s*(?:\w+\s*=|[){{\"'\[]))",
    )
)
_JSON_BEGIN = re.compile(r"[\[{](?=\s*[\[{\"'])")
_JSON_NAME = re.compile(
    rf"[\"'](?:{'|'.join(sorted(NAME_KEYS))})[\"']\s*:\s*[\"'](?:functions\.)?{_NAME}[\"']", re.I
)
_DECODER = json.JSONDecoder()


def find_names(text: str, tools: Iterable[str]) -> list[tuple[int, str]]:
    """The calls in a text, as far as they can be told: where each is, and the tool's name.

    Where nothing says so, it is the first of the registered tools that the text mentions.
    """
    found = [list(_matches(way, text)) for way in _WAYS]
    found.append(list(_json_calls(text)))
    fallback = next(_matches(_JSON_NAME, text), None) or _first_mentioned(text, tools)
    calls = min(filter(None, found), key=lambda calls: calls[0][0], default=None)
    return calls or ([fallback] if fallback else [])


def _first_mentioned(text: str, tools: Iterable[str]) -> tuple[int, str] | None:
    """A registered tool; of two that begin at the same place, the longer name."""
    places = [(text.find(tool), -len(tool), tool) for tool in tools if tool in text]
    place, _, tool = min(places, default=(0, 0, None))
    return None if tool is None else (place, tool)


def _matches(way: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    return ((match.start(), match[1]) for match in way.finditer(text))


def _json_calls(text: str) -> Iterator[tuple[int, str]]:
    """The calls among the JSON values of a text; of one that is cut off, the first name."""
    at = 0
    while begin := _JSON_BEGIN.search(text, at):
        try:
            value, at = _DECODER.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            name = _JSON_NAME.search(text, begin.start())
            if name:
                yield begin.start(), name[1]
            return
        place = begin.start()
        for named in _names_in(value):
            place = max(place, text.find(named, place))
            yield place, named


def _names_in(value: Any) -> Iterator[str]:
    """The names of calls in a decoded value, not those inside of arguments."""
    if isinstance(value, list):
        for item in value:
            yield from _names_in(item)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in NAME_KEYS and isinstance(inner, str):
                yield inner.removeprefix("functions.")
            elif key in CALL_KEYS | LIST_KEYS:
                yield from _names_in(inner)


LONGEST_KEPT = 65_536  # characters of a hidden text in which the names of tools are looked for


@dataclass(frozen=True, slots=True)
class Leak:
    """A call that was written as text: its form, where it is, and the tool, if it is named.

    The position in the text is that of the call's first character; of further calls in the same
    block it is where they are named.
    """

    family: str
    position: int
    name: str | None = None


class Filtered(NamedTuple):
    """What a reader may see of a text, and the calls that were in it."""

    visible: str
    leaks: list[Leak]


@dataclass(slots=True)
class Hidden:
    """A text that was hidden from a call on."""

    family: str
    position: int
    tools: tuple[str, ...]  # the registered ones
    _pieces: list[str] = field(default_factory=list)
    _left: int = LONGEST_KEPT

    def keep(self, text: str) -> None:
        """Note what was hidden, as far as names are looked for in it."""
        if self._left and text:
            self._pieces.append(text[: self._left])
            self._left -= len(self._pieces[-1])

    def leaks(self) -> list[Leak]:
        """The calls in it: one at least, at its beginning."""
        found = find_names("".join(self._pieces), self.tools)
        more = [Leak(self.family, self.position + at, name) for at, name in found[1:]]
        return [Leak(self.family, self.position, found[0][1] if found else None), *more]
