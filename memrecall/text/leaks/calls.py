"""What a call is: a streaming reader of JSON that may be one, and the names of hidden calls.

An object is a call if it names a registered tool and has arguments. The keys may come in any order,
so arguments are skipped, however deep. An object with a key that no call has, or a name that no
tool has, is data.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from memrecall.text.leaks.automaton import SPACES
from memrecall.text.leaks.formats import FormatKind, FormatRow

MAX_JSON_LENGTH = 4096  # characters after which an undecided object counts as data
_MAX_DEPTH = 64


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAME_KEYS = _words(
    "name tool tool_name toolname function function_name action method recipient_name api_name api"
    " command operation plugin"
)
CALL_KEYS = _words(
    "function tool function_call tool_call call action tool_use functioncall toolcall tooluse"
)
LIST_KEYS = _words("tool_calls tool_uses function_calls toolcalls functioncalls calls actions")
ARGUMENT_KEYS = _words(
    "arguments parameters args params kwargs input inputs tool_input action_input tool_args"
    " tool_arguments function_arguments"
)
OTHER_KEYS = _words(
    "id type index tool_call_id call_id tooluseid role thought jsonrpc content text reasoning"
    " reason server server_name finish_reason"
)
# Next to a name: of a declaration, a setting or a log.
_DATA_KEYS = _words("description enabled status line file version count time level")
_KEYS = NAME_KEYS | CALL_KEYS | LIST_KEYS | ARGUMENT_KEYS | OTHER_KEYS
NAMESPACE = r"(?:functions|tools|default_api)[.:]|mcp__[A-Za-z0-9_\-]+__"
_NAMESPACES = _words("functions. functions: tools. tools: default_api. default_api:")
_MCP = "mcp__"  # before the name of a server and two more underscores
_STRING_ENDS = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'“”"}
_CLOSING = {"“": "”"}


class CallVerdict(Enum):
    """Whether a text is a call, as far as is known."""

    OPEN = "open"  # it may still be one
    YES = "yes"
    NO = "no"


class NamePrefixes(NamedTuple):
    """The keys and names of calls, and all their prefixes."""

    tools: frozenset[str]
    tool_prefixes: frozenset[str]
    tool_keys: frozenset[str]  # the keys of a call and the tools' names
    tool_key_prefixes: frozenset[str]
    are_keys: bool  # whether a tool's name may be the key of its arguments after a text

    @classmethod
    def from_tools(cls, tools: tuple[str, ...], *, are_keys: bool) -> "NamePrefixes":
        """Return the keys and names for some tools."""
        names = frozenset(tool.lower() for tool in (*tools, "tools/call"))  # of JSON-RPC
        values, keys = names | _NAMESPACES | {_MCP}, _KEYS | names
        return cls(names, _prefixes_of(values), keys, _prefixes_of(keys), are_keys)


class Expected(Enum):
    """The token that may come next."""

    VALUE = "value"
    KEY = "key"
    COLON = "colon"
    COMMA = "comma"


@dataclass(slots=True)
class JsonFrame:
    """An open object or list."""

    closing: str
    may_be_call: bool  # or a list of calls
    has_name: bool = False
    has_arguments: bool = False
    key: str = ""


class JsonReader:
    """A reader of one value.

    With `whole` the value begins the answer, and a name without arguments is a call. There, in a
    list, and where `names` allow it, a name may also be the key of its arguments.
    """

    def __init__(self, names: NamePrefixes, *, whole: bool) -> None:
        self._names = names
        self._whole = whole
        self._frames: list[JsonFrame] = []
        self._expected = Expected.VALUE
        self._quote = ""  # of the current string
        self._word: str | None = None  # its text so far, if it matters
        self._escaped = False
        self.verdict = CallVerdict.OPEN

    @property
    def is_truncated_call(self) -> bool:
        """Whether a text that ends here is a truncated call."""
        keys = NAME_KEYS | CALL_KEYS | LIST_KEYS | ARGUMENT_KEYS
        if any(f.may_be_call and (f.has_name or f.key in keys) for f in self._frames):
            return True
        return bool(self._quote and self._word)  # a part of a key or name

    def read(self, text: str, position: int, end: int) -> int:
        """Read from `position` to the verdict or `end`, and return where reading stopped."""
        while position < end and self.verdict is CallVerdict.OPEN:
            if self._quote:
                position = self._read_string(text, position, end)
                continue
            char = text[position]
            position += 1
            if char in SPACES:
                continue
            if char in _STRING_ENDS and self._expected in (Expected.KEY, Expected.VALUE):
                self._begin_string(char)
            elif not self._accept(char):
                self.verdict = CallVerdict.NO
        return position

    def _accept(self, char: str) -> bool:
        """Process a character outside strings; return False if it is not allowed here."""
        match self._expected:
            case Expected.VALUE if char in "{[":
                return self._open(char)
            case Expected.VALUE | Expected.COMMA if self._frames and char == self._top.closing:
                return self._close()
            case Expected.KEY if char == "}":
                return self._close()
            case Expected.VALUE if self._frames and (char.isalnum() or char in "-+."):
                return self._is_skipped  # numbers, true, false and null do not matter
            case Expected.COLON if char == ":":
                self._expected = Expected.VALUE
                return True
            case Expected.VALUE | Expected.COMMA if self._frames and char == ",":
                self._expected = Expected.KEY if self._top.closing == "}" else Expected.VALUE
                return True
        return False

    @property
    def _top(self) -> JsonFrame:
        return self._frames[-1]

    @property
    def _is_skipped(self) -> bool:
        return not self._top.may_be_call or self._top.key in ARGUMENT_KEYS | OTHER_KEYS

    def _open(self, char: str) -> bool:
        may_be_call = True
        if self._frames:
            key, in_list = self._top.key, self._top.closing == "]"
            if key in self._names.tools and self._top.may_be_call and not in_list:
                self.verdict = CallVerdict.YES if char == "{" else CallVerdict.NO
                return True
            may_be_call = self._top.may_be_call and (
                in_list or key in (CALL_KEYS if char == "{" else LIST_KEYS)
            )
            if self._top.may_be_call and not may_be_call and key not in ARGUMENT_KEYS:
                return False
        self._frames.append(JsonFrame("}" if char == "{" else "]", may_be_call))
        self._expected = Expected.KEY if char == "{" else Expected.VALUE
        return len(self._frames) <= _MAX_DEPTH

    def _close(self) -> bool:
        frame = self._frames.pop()
        if frame.has_name and self._whole:
            self.verdict = CallVerdict.YES
        elif not self._frames:  # a call would have been recognised before its end
            self.verdict = CallVerdict.NO
        else:
            self._top.has_name = self._top.has_name or frame.has_name
        self._expected = Expected.COMMA
        return True

    def _begin_string(self, char: str) -> None:
        top = self._frames[-1] if self._frames else None
        if top is None or (
            self._expected is Expected.VALUE and top.may_be_call and top.closing == "]"
        ):
            self.verdict = CallVerdict.NO
            return
        self._quote = _CLOSING.get(char, char)
        is_key = self._expected is Expected.KEY
        matters = top.may_be_call and (is_key or top.key in NAME_KEYS)
        if top.may_be_call and not is_key and not matters and not self._is_skipped:
            self.verdict = CallVerdict.NO
        self._word = "" if matters else None

    def _read_string(self, text: str, position: int, end: int) -> int:
        if self._escaped:
            self._escaped = False
            return position + 1
        if self._word is not None:
            return self._read_word(text[position], position)
        match = _STRING_ENDS[self._quote].search(text, position, end)
        if match is None:
            return end
        if match[0] == "\\":
            self._escaped = True
        else:
            self._end_string()
        return match.end()

    def _read_word(self, char: str, position: int) -> int:
        """Read a character of a key or name, which must continue a known one."""
        if char == self._quote:
            self._end_string()
        else:
            self._word = f"{self._word}{char.lower()}"
            if self._expected is Expected.VALUE:
                self._word = re.sub(rf"\A(?:{NAMESPACE})", "", self._word)
                known = self._names.tool_prefixes
            elif self._top.has_name:
                return position + 1  # next to the name, an unknown key is an argument
            else:
                known = self._names.tool_key_prefixes if self._names_are_keys else _KEY_PREFIXES
            if self._word not in known and not self._word.startswith(_MCP):
                self.verdict = CallVerdict.NO
        return position + 1

    @property
    def _names_are_keys(self) -> bool:
        return self._whole or self._names.are_keys or self._frames[0].closing == "]"

    def _end_string(self) -> None:
        self._quote = ""
        word, self._word = self._word, None
        if self._expected is Expected.KEY:
            self._expected = Expected.COLON
            if self._top.may_be_call:
                self._take_key(word or "")
            return
        self._expected = Expected.COMMA
        if word is None:
            return
        if word not in self._names.tools:
            self.verdict = CallVerdict.NO
            return
        self._top.has_name = True
        self._decide()

    def _take_key(self, word: str) -> None:
        self._top.key = word
        if word not in (self._names.tool_keys if self._names_are_keys else _KEYS):
            is_call = self._top.has_name and word not in _DATA_KEYS
            self.verdict = CallVerdict.YES if is_call else CallVerdict.NO
        elif word in ARGUMENT_KEYS:
            self._top.has_arguments = True
            self._decide()

    def _decide(self) -> None:
        if self._top.has_name and self._top.has_arguments:
            self.verdict = CallVerdict.YES


def _prefixes_of(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word[:length] for word in words for length in range(len(word) + 1))


_KEY_PREFIXES = _prefixes_of(_KEYS)


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
    if calls := min(filter(None, formats), key=lambda calls: calls[0][0], default=None):
        return calls
    if named := next(_matches(_JSON_NAME, text), None):
        return [named]
    # The longer name of two at one position.
    mentioned = [(text.find(tool), -len(tool), tool) for tool in tools if tool in text]
    return [(position, tool) for position, _, tool in sorted(mentioned)[:1]]


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

    The position is where the call begins, or where its name does for further calls in the same
    block.
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
