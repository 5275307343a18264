"""JSON objects that may be calls, read a character at a time.

An object is a call if it names a registered tool and has arguments. The keys may come in any order,
so arguments are read over, however deep. The first key that no call has, and the first name that no
tool has, end the reading: such an object is somebody's data.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

LONGEST_JSON = 4096  # characters that are read before an object is taken for data
_DEEPEST = 64

NAME_KEYS = frozenset(
    {
        *("name", "tool", "tool_name", "toolname", "function", "function_name"),
        *("action", "recipient_name", "api_name"),
    }
)
CALL_KEYS = frozenset({"function", "tool", "function_call", "tool_call", "call", "action"})
LIST_KEYS = frozenset({"tool_calls", "tool_uses", "function_calls", "calls", "actions"})
ARGUMENT_KEYS = frozenset(
    {
        *("arguments", "parameters", "args", "params", "kwargs", "input", "inputs"),
        *("tool_input", "action_input", "tool_args", "tool_arguments", "function_arguments"),
    }
)
OTHER_KEYS = frozenset({"id", "type", "index", "tool_call_id", "call_id", "role", "thought"})
_KEYS = NAME_KEYS | CALL_KEYS | LIST_KEYS | ARGUMENT_KEYS | OTHER_KEYS
_PREFIXES = ("functions.", "tools.", "default_api.")
_STRING_ENDS = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'“”"}
_CLOSING = {"“": "”"}
_SPACES = " \t\r\n"


class CallVerdict(Enum):
    """Whether a text is a call, as far as is known."""

    OPEN = "open"  # it may still be one
    YES = "yes"
    NO = "no"


class NamePrefixes(NamedTuple):
    """The words that keys and names are held against, and all their beginnings."""

    tools: frozenset[str]
    tool_starts: frozenset[str]
    tool_keys: frozenset[str]  # the keys of a call, and names as keys
    tool_key_starts: frozenset[str]

    @classmethod
    def of(cls, tools: tuple[str, ...]) -> "NamePrefixes":
        """Those of some tools."""
        names = frozenset((p + tool).lower() for tool in tools for p in ("", *_PREFIXES))
        keys = _KEYS | {tool.lower() for tool in tools}
        return cls(names, _starts(names), keys, _starts(keys))


class Expected(Enum):
    """What may come next."""

    VALUE = "value"
    KEY = "key"
    COLON = "colon"
    COMMA = "comma"


@dataclass(slots=True)
class JsonFrame:
    """An open object or list; `call`: whether it may be a call or a list of calls."""

    closing: str
    call: bool
    named: bool = False
    has_arguments: bool = False
    key: str = ""


class JsonReader:
    """Reads one value. `whole`: it begins the answer, and a name without arguments is a call.

    There, and in a list, a name may also be the key of its arguments.
    """

    def __init__(self, names: NamePrefixes, *, whole: bool) -> None:
        self._names = names
        self._whole = whole
        self._frames: list[JsonFrame] = []
        self._expected = Expected.VALUE
        self._quote = ""  # of the string that is being read
        self._word: str | None = None  # what was read of it, if it matters
        self._escaped = False
        self.verdict = CallVerdict.OPEN

    @property
    def cut_off(self) -> bool:
        """Whether a text that ends here was going to be a call."""
        if any(frame.named for frame in self._frames):
            return True
        return bool(self._quote and self._word and self._expected is Expected.VALUE)

    def read(self, text: str, at: int, end: int) -> int:
        """Read on from `at` until the verdict or the end; how far it was read."""
        while at < end and self.verdict is CallVerdict.OPEN:
            at = self._read_string(text, at, end) if self._quote else self._read_mark(text, at)
        return at

    def _read_mark(self, text: str, at: int) -> int:
        char = text[at]
        if char in _SPACES:
            return at + 1
        if char in _STRING_ENDS and self._expected in (Expected.KEY, Expected.VALUE):
            self._begin_string(char)
        elif not self._accept(char):
            self.verdict = CallVerdict.NO
        return at + 1

    def _accept(self, char: str) -> bool:
        """Take a mark or a character of a number or word; whether it may stand here."""
        match self._expected:
            case Expected.VALUE if char in "{[":
                return self._open(char)
            case Expected.VALUE | Expected.COMMA if self._frames and char == self._top.closing:
                return self._close()
            case Expected.KEY if char == "}":
                return self._close()
            case Expected.VALUE if self._frames and (char.isalnum() or char in "-+."):
                return self._is_skipped  # a number, true, false or null: nothing hangs on it
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
        """Whether the value that comes next is of no interest."""
        return not self._top.call or self._top.key in ARGUMENT_KEYS | OTHER_KEYS

    def _open(self, char: str) -> bool:
        call = True
        if self._frames:
            key, in_list = self._top.key, self._top.closing == "]"
            if key in self._names.tools and self._top.call and not in_list:
                self.verdict = CallVerdict.YES if char == "{" else CallVerdict.NO
                return True
            call = self._top.call and (in_list or key in (CALL_KEYS if char == "{" else LIST_KEYS))
            if self._top.call and not call and key not in ARGUMENT_KEYS:
                return False
        self._frames.append(JsonFrame("}" if char == "{" else "]", call))
        self._expected = Expected.KEY if char == "{" else Expected.VALUE
        return len(self._frames) <= _DEEPEST

    def _close(self) -> bool:
        frame = self._frames.pop()
        if frame.call:  # a call would have been seen before its end
            is_call = frame.named and self._whole
            self.verdict = CallVerdict.YES if is_call else CallVerdict.NO
        self._expected = Expected.COMMA
        return True

    def _begin_string(self, char: str) -> None:
        top = self._frames[-1] if self._frames else None
        if top is None or (self._expected is Expected.VALUE and top.call and top.closing == "]"):
            self.verdict = CallVerdict.NO
            return
        self._quote = _CLOSING.get(char, char)
        is_key = self._expected is Expected.KEY
        matters = top.call and (is_key or top.key in NAME_KEYS)
        if top.call and not is_key and not matters and not self._is_skipped:
            self.verdict = CallVerdict.NO
        self._word = "" if matters else None

    def _read_string(self, text: str, at: int, end: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        if self._word is not None:
            return self._read_word(text[at], at)
        found = _STRING_ENDS[self._quote].search(text, at, end)
        if found is None:
            return end
        if found[0] == "\\":
            self._escaped = True
        else:
            self._end_string()
        return found.end()

    def _read_word(self, char: str, at: int) -> int:
        """Read a character of a key or a name, of which each must be one that may follow."""
        if char == self._quote:
            self._end_string()
        else:
            self._word = f"{self._word}{char.lower()}"
            if self._word not in self._starts:
                self.verdict = CallVerdict.NO
        return at + 1

    @property
    def _starts(self) -> frozenset[str]:
        if self._expected is not Expected.KEY:
            return self._names.tool_starts
        return self._names.tool_key_starts if self._names_are_keys else _KEY_STARTS

    @property
    def _names_are_keys(self) -> bool:
        return self._whole or self._frames[0].closing == "]"

    def _end_string(self) -> None:
        self._quote = ""
        word, self._word = self._word, None
        if self._expected is Expected.KEY:
            self._expected = Expected.COLON
            if self._top.call:
                self._take_key(word or "")
            return
        self._expected = Expected.COMMA
        if word is not None:
            self._take_name(word)

    def _take_key(self, word: str) -> None:
        self._top.key = word
        if word not in (self._names.tool_keys if self._names_are_keys else _KEYS):
            self.verdict = CallVerdict.NO
        elif word in ARGUMENT_KEYS:
            self._top.has_arguments = True
            self._decide()

    def _take_name(self, word: str) -> None:
        if word not in self._names.tools:
            self.verdict = CallVerdict.NO
            return
        self._top.named = True
        self._decide()

    def _decide(self) -> None:
        if self._top.named and self._top.has_arguments:
            self.verdict = CallVerdict.YES


def _starts(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word[:length] for word in words for length in range(len(word) + 1))


_KEY_STARTS = _starts(_KEYS)
