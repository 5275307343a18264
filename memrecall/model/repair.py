"""JSON as models write it: fenced, with prose around, half Python, cut off in the middle."""

import json
import re
from collections.abc import Iterator
from itertools import islice

LITERALS = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
DEEPEST = 200
# How many places of a text are tried as the beginning: a bound, so that the time stays linear.
STARTS = 32

TOKEN = re.compile(
    r"""(?:\s|//[^\n]*+|,)*+(?:
        (?P<mark>[{}\[\]:])
      | "(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)(?P<double_end>"|\\?\Z)
      | '(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*+)(?P<single_end>'|\\?\Z)
      | (?P<number>-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)(?=[^\w.])
      | (?P<word>[^\W\d][\w-]*+)
      | (?P<end>[-+.\deE]*+\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\(.)", re.DOTALL)
PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""}
KEPT_ESCAPES = "\"'\\/"


def repair_json(text: str) -> object:
    """Read the JSON value in a text; valid JSON as it is, otherwise what was most likely meant.

    Bears code fences, prose around an object or list, trailing and missing commas, single quotes,
    Python's literals, names without quotes, and an end that was cut off: there, what is complete
    is kept, and the beginning of a string. Raises ValueError if nothing of the kind is there.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    word = text.strip(" \t\r\n`")
    if word in LITERALS:
        return LITERALS[word]
    problem = "no JSON object or list in the text"
    for start in islice(_starts(text), STARTS):
        try:
            return _Reader(text, start).read()
        except ValueError as error:
            problem = str(error)
    raise ValueError(problem)


def _starts(text: str) -> Iterator[int]:
    """Where an object or list may begin: in code fences first."""
    for fence in islice(re.finditer(r"```\w*+\s*+(?=[{\[])", text), STARTS // 4):
        yield fence.end()
    for bracket in re.finditer(r"[{\[]", text):
        yield bracket.start()


class _Reader:
    """Reads one value from a place on, without recursion."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._position = start
        self._open: list[dict[str, object] | list[object]] = []
        self._keys: list[str | None] = []  # of each open object: the key that awaits its value

    def read(self) -> object:
        """The value, closed where the text ends if it was not."""
        while True:
            token = TOKEN.match(self._text, self._position)
            if token is None:
                raise ValueError(f"no JSON at position {self._position}")
            self._position = token.end()
            if token["end"] is not None:
                return self._open[0]
            if (mark := token["mark"]) is None:
                self._take(token)
            elif mark in "{[":
                self._begin({} if mark == "{" else [])
            elif mark != ":" and self._finish(dict if mark == "}" else list):
                return self._open[0]

    def _begin(self, container: dict[str, object] | list[object]) -> None:
        if len(self._open) == DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST} levels")
        if self._open:
            self._put(container)
        self._open.append(container)
        self._keys.append(None)

    def _finish(self, kind: type) -> bool:
        """Close the innermost of that kind, and what was left open in it; whether all is closed."""
        if not any(isinstance(container, kind) for container in self._open):
            raise ValueError(f"brackets do not match at position {self._position}")
        while not isinstance(self._open[-1], kind):
            self._open.pop()
            self._keys.pop()
        if len(self._open) == 1:
            return True
        self._open.pop()
        self._keys.pop()
        return False

    def _take(self, token: re.Match[str]) -> None:
        if isinstance(self._open[-1], dict) and self._keys[-1] is None:
            self._take_key(token)
        elif (word := token["word"]) is None:
            self._put(_scalar(token))
        elif word in LITERALS:
            self._put(LITERALS[word])
        elif self._position < len(self._text):  # else the word was cut off: nobody knows it
            raise ValueError(f"{word[:20]!r} is no JSON at position {token.start()}")

    def _take_key(self, token: re.Match[str]) -> None:
        colon = re.compile(r"\s*+:").match(self._text, self._position)
        if colon is not None:
            self._keys[-1] = token["word"] or str(_scalar(token))
            self._position = colon.end()
        elif self._text[self._position :].strip():
            raise ValueError(f"a name without a value at position {token.start()}")
        else:
            self._position = len(self._text)

    def _put(self, value: object) -> None:
        container = self._open[-1]
        if isinstance(container, list):
            container.append(value)
            return
        key = self._keys[-1]
        if key is None:
            raise ValueError(f"a value without a name at position {self._position}")
        container[key] = value
        self._keys[-1] = None


def _scalar(token: re.Match[str]) -> object:
    if (number := token["number"]) is not None:
        return float(number) if re.search(r"[.eE]", number) else int(number)
    body = token["double"] if token["double"] is not None else token["single"]
    return ESCAPE.sub(_unescape, body)


def _unescape(escape: re.Match[str]) -> str:
    character = escape[1]
    if character is None:
        return str(json.loads(f'"{escape[0]}"'))
    if character in KEPT_ESCAPES:
        return character
    return PLAIN_ESCAPES.get(character, escape[0])
