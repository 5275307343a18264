"""A reader of large JSON texts: one value in memory at a time.

The package ijson takes quadratic time for nested brackets (43 s for 80 KB) and refuses the raw
control characters that some exporters write.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

from memrecall.errors import InvalidArgument
from memrecall.importers.source import SourceFile

MAX_VALUE = 64 * 1024**2  # characters of one value: a conversation, or a message
_CHUNK = 64 * 1024
_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
# Raw control characters inside of strings are not JSON, but some exporters write them.
_DECODER = json.JSONDecoder(strict=False)
_LONGEST_TOKEN = 20  # An error this near to the end may vanish with more text.


class JsonStream:
    """A cursor in a JSON text.

    After `members` or `elements` has yielded, exactly one of `value`, `skip`, `members` and
    `elements` reads what stands there.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text = ""
        self._position = 0
        self._consumed = 0
        self._is_ended = False

    def peek(self) -> str:
        """Return the first character of the next value; empty at the end of the text."""
        while True:
            match = _SPACE.match(self._text, self._position)
            self._position = match.end() if match else self._position
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._fill(_CHUNK):
                return ""

    def members(self) -> Iterator[str]:
        """Yield the names of an object's members; the caller reads the value of each."""
        yield from self._enter("{", "}", named=True)

    def elements(self) -> Iterator[int]:
        """Yield the numbers of an array's elements, from 1; the caller reads each."""
        for number, _ in enumerate(self._enter("[", "]", named=False), 1):
            yield number

    def value(self) -> Any:
        """Return the next value; InvalidArgument if it is invalid or above `MAX_VALUE`."""
        self.peek()
        while True:
            problem: ValueError | None = None
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                problem = error
                if not self._may_be_cut(error):
                    raise self._fault(error.msg, error.pos) from None
            except RecursionError:
                raise self._fault("values are nested too deeply", self._position) from None
            except ValueError as error:  # a number of more digits than Python reads
                raise self._fault(str(error), self._position) from None
            if problem is None and not self._may_go_on(value, end):
                self._position = end
                return value
            if not self._grow() and problem is not None:
                raise self._fault("it ends too early", len(self._text)) from None

    def skip(self) -> None:
        """Read over the next value without keeping it."""
        try:
            self._skip()
        except RecursionError:
            raise self._fault("values are nested too deeply", self._position) from None

    def _skip(self) -> None:
        first = self.peek()
        if first == "{":
            for _ in self.members():
                self._skip()
        elif first == "[":
            for _ in self.elements():
                self._skip()
        else:
            self.value()

    def _enter(self, opening: str, closing: str, *, named: bool) -> Iterator[str]:
        self._expect(opening)
        if self.peek() == closing:
            self._position += 1
            return
        while True:
            name = self._read_name() if named else ""
            yield name
            if self.peek() == closing:
                self._position += 1
                return
            self._expect(",")

    def _read_name(self) -> str:
        if self.peek() != '"':
            raise self._fault("a name in quotes is missing", self._position)
        name = self.value()
        self._expect(":")
        return str(name)

    def _expect(self, character: str) -> None:
        if self.peek() != character:
            raise self._fault(f"{character!r} is missing", self._position)
        self._position += 1

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        is_near = error.pos >= len(self._text) - _LONGEST_TOKEN
        return not self._is_ended and (is_near or error.msg.startswith("Unterminated string"))

    def _may_go_on(self, value: Any, end: int) -> bool:
        """Return True for a number at the end of the buffer, of which more may come."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and not self._is_ended and self._text[end:].strip(".eE+-") == ""

    def _grow(self) -> bool:
        """Read as much again as is waiting, so that the work stays linear."""
        waiting = len(self._text) - self._position
        if waiting > MAX_VALUE:
            raise self._fault(f"a value has more than {MAX_VALUE:,} characters", self._position)
        return self._fill(max(_CHUNK, waiting))

    def _fill(self, size: int) -> bool:
        chunk = self._stream.read(size)
        self._is_ended = not chunk
        self._consumed += self._position
        self._text = self._text[self._position :] + chunk
        self._position = 0
        return bool(chunk)

    def _fault(self, reason: str, position: int) -> InvalidArgument:
        return InvalidArgument(
            f"not JSON at character {self._consumed + position + 1:,}: {reason}",
            hint="Download or export the file again",
        )


def read_values(file: SourceFile) -> Iterator[tuple[int, Any]]:
    """Yield the elements of JSON lists and other values that follow each other, from number 1."""
    with file.text() as stream:
        reader = JsonStream(stream)
        number = 0
        while reader.peek():
            for _ in reader.elements() if reader.peek() == "[" else (1,):
                number += 1
                yield number, reader.value()


def read_objects(file: SourceFile | None) -> list[dict[str, Any]]:
    """Return the objects of a list beside the chats; none if there is no such file."""
    try:
        return [item for _, item in read_values(file) if isinstance(item, dict)] if file else []
    except InvalidArgument:
        return []  # of another application


def has_members(sample: str, *names: str) -> bool:
    """Return True if objects in the beginning of a JSON text have members of all these names.

    A name inside of a text does not count: its quotes are escaped there.
    """
    return sample.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") and all(
        re.search(rf'[{{,]\s*"{re.escape(name)}"\s*:', sample) for name in names
    )
