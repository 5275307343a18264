"""What an import reads: a file, a folder, a zip archive or standard input, within limits.

Nothing is unpacked to disk. Symbolic links inside folders and archives are never followed.
"""

import codecs
import io
import json
import os
import re
import stat
import sys
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, AnyStr, TextIO

from charset_normalizer import from_bytes

from memrecall.errors import InvalidArgument

MAX_FILES = 100_000
MAX_BYTES = 16 * 1024**3  # of one source, after decompression
MAX_RATIO = 200  # of the bytes in an archive to its size: chats compress to a tenth or so
_UNCHECKED = 16 * 1024**2  # bytes in an archive, however well they are compressed
MAX_LINE = 32 * 1024**2  # characters or bytes; a message has at most a million characters
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_LEFT_OUT = ("__MACOSX", ".DS_Store", "Thumbs.db")
_CHUNK = 1024**2
_SAMPLE = 64 * 1024
_CERTAIN = ("", "utf-8-sig", "utf-16", "utf-32")  # known from a byte order mark, or valid UTF-8
# Without a choice of encodings, short texts in Latin letters are taken for Romanian or Czech.
_ENCODINGS = ["utf_16", "utf_16_le", "utf_16_be", "utf_32", "gb18030", "cp1252"]


def _decode_sample(head: bytes) -> str:
    """Return the beginning of a file as text, whatever its encoding is."""
    return head.decode(_find_encoding(lambda: io.BytesIO(head)), errors="replace")


def _find_encoding(open_file: Callable[[], IO[bytes]]) -> str:
    """Return the encoding of a file, which is read up to the first bytes that are not UTF-8."""
    with open_file() as stream:
        sample = _find_other_text(stream)
    if not sample:
        return "utf-8-sig"
    guess = from_bytes(sample, cp_isolation=_ENCODINGS).best()
    return guess.encoding.replace("_", "-") if guess else "utf-8-sig"


def _find_other_text(stream: IO[bytes]) -> bytes:
    """Return the text from the first line that is not UTF-8; nothing if all of it is."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    while chunk := stream.read(_CHUNK):
        try:
            decoder.decode(chunk)
            fault = chunk.find(b"\0")  # valid in UTF-8, but usual only in UTF-16
        except UnicodeDecodeError as error:
            fault = error.start
        if fault >= 0:
            start = chunk.rfind(b"\n", 0, fault) + 1
            return chunk[start : start + _SAMPLE]
    return b""


@dataclass
class SourceFile:
    """One file of a source. `name` is its path inside the source, with slashes."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]
    source: "Source" = field(repr=False)

    @property
    def stem(self) -> str:
        """The file name without folders and extension."""
        return PurePosixPath(self.name).stem

    @property
    def folder(self) -> PurePosixPath:
        """The folder of the file inside its source."""
        return PurePosixPath(self.name).parent

    @property
    def suffix(self) -> str:
        """The extension in lower case, with its dot."""
        return PurePosixPath(self.name).suffix.lower()

    @cached_property
    def head(self) -> bytes:
        """The beginning of the file."""
        with self.open() as stream:
            return stream.read(_SAMPLE)

    @cached_property
    def sample(self) -> str:
        """The beginning of the file as text, by which its format is recognised."""
        return _decode_sample(self.head)

    @cached_property
    def encoding(self) -> str:
        """The encoding of the text; the whole file is read to find it."""
        return _find_encoding(self.open)

    @property
    def assumed_encoding(self) -> str:
        """The encoding that the text was read in, if it was neither marked nor UTF-8."""
        encoding = str(self.__dict__.get("encoding", ""))  # set once the text was read
        return "" if encoding in _CERTAIN else encoding.upper()

    def text(self) -> TextIO:
        """Open the file as text: line ends become newlines, and invalid bytes are replaced."""
        return io.TextIOWrapper(self.open(), encoding=self.encoding, errors="replace")

    def lines(self) -> Iterator[tuple[int, str | None]]:
        """Yield the number and the text of each line; None for a line above `MAX_LINE`."""
        with self.text() as stream:
            for number, line in _read_lines(stream, "\n"):
                yield number, None if line is None else line.rstrip("\n")

    def byte_lines(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield the number and the bytes of each line; None for a line above `MAX_LINE`."""
        with self.open() as stream:
            yield from _read_lines(stream, b"\n")


def _read_lines(stream: IO[AnyStr], newline: AnyStr) -> Iterator[tuple[int, AnyStr | None]]:
    number = 0
    while line := stream.readline(MAX_LINE):
        number += 1
        is_whole = line.endswith(newline) or len(line) < MAX_LINE
        yield number, line if is_whole else None
        while not is_whole and (line := stream.readline(MAX_LINE)):
            is_whole = line.endswith(newline)


@dataclass
class Source:
    """The files of an import, in the order of their names."""

    name: str
    files: list[SourceFile] = field(default_factory=list)
    is_single: bool = False
    left_out: Counter[str] = field(default_factory=Counter)
    shared: dict[str, Any] = field(default_factory=dict)  # what readers of several files keep
    _by_name: dict[str, SourceFile] = field(default_factory=dict, repr=False)

    def get(self, name: str) -> SourceFile | None:
        """Return the file with that path; None if there is none."""
        return self._by_name.get(name)

    def add(self, name: str, size: int, open_file: Callable[[], IO[bytes]]) -> None:
        """Add a file; InvalidArgument if there are too many."""
        file = SourceFile(name, size, open_file, self)
        self.files.append(file)
        self._by_name[name] = file
        if len(self.files) > MAX_FILES:
            raise _too_large(self.name, f"it has more than {MAX_FILES:,} files")


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open a file, a folder or an archive; `-` is standard input."""
    if str(path) == "-":
        with _spool_input() as copy:
            yield from _open_file(Path(copy), "standard input")
        return
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if stat.S_ISDIR(mode):
        yield _read_folder(path)
    elif stat.S_ISREG(mode):
        yield from _open_file(path, path.name)
    else:
        raise InvalidArgument(
            f"{path} is neither a file nor a folder", hint="Pass what it writes through a pipe: -"
        )


@contextmanager
def _spool_input() -> Iterator[str]:
    """Copy standard input to a temporary file: it is read more than once."""
    with tempfile.NamedTemporaryFile(prefix="memrecall-import-") as copy:
        while chunk := sys.stdin.buffer.read(1024**2):
            copy.write(chunk)
            if copy.tell() > MAX_BYTES:
                raise _too_large("standard input", f"it has more than {MAX_BYTES:,} bytes")
        copy.flush()
        yield copy.name


def _open_file(path: Path, name: str) -> Iterator[Source]:
    try:
        size = path.stat().st_size
        is_archive = zipfile.is_zipfile(path)
        with path.open("rb"):
            pass
    except OSError as error:
        raise _unreadable(path, error) from None
    if not is_archive:
        source = Source(name, is_single=True)
        source.add(name, size, file_opener(path))
        yield source
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield _read_archive(archive, name, size)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _unusable_archive(name, f"it is damaged: {error}") from None


def _read_folder(folder: Path) -> Source:
    source = Source(folder.resolve().name)
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith(".") or name in _LEFT_OUT:
                continue
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                name = path.relative_to(folder).as_posix()
                source.add(name, status.st_size, file_opener(path))
            else:
                kind = "symbolic links" if stat.S_ISLNK(status.st_mode) else "special files"
                source.left_out[kind] += 1
        for name in list(folders):
            if Path(parent, name).is_symlink():
                source.left_out["symbolic links"] += 1
    source.files.sort(key=lambda file: file.name)
    return source


def file_opener(path: Path) -> Callable[[], IO[bytes]]:
    """Return a function that opens a file for reading."""
    return lambda: path.open("rb")


def _read_archive(archive: zipfile.ZipFile, name: str, size: int) -> Source:
    source = Source(name)
    members = [member for member in archive.infolist() if not member.is_dir()]
    total = sum(member.file_size for member in members)
    if total > MAX_BYTES or total > max(MAX_RATIO * size, _UNCHECKED):
        raise _too_large(name, f"{total:,} bytes are packed into {size:,}")
    for member in sorted(members, key=lambda member: member.filename):
        _check_member(member, name)
        if stat.S_ISLNK(member.external_attr >> 16):
            source.left_out["symbolic links"] += 1
        elif not any(part in _LEFT_OUT for part in member.filename.split("/")):
            source.add(member.filename, member.file_size, partial(archive.open, member))
    return source


def _check_member(member: zipfile.ZipInfo, name: str) -> None:
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        raise InvalidArgument(
            f"{name} has a file with the unsafe path {member.filename!r}",
            hint="Do not import it: no chat application writes such an archive",
        )
    if member.flag_bits & 1:
        raise _unusable_archive(name, "it is protected by a password")
    if member.compress_type not in _COMPRESSIONS:
        raise _unusable_archive(name, f"{member.filename} has an unknown compression")


def _unusable_archive(name: str, reason: str) -> InvalidArgument:
    return InvalidArgument(
        f"cannot read the archive {name}: {reason}", hint="Unpack it and pass the folder"
    )


def _too_large(name: str, reason: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is too large: {reason}", hint="Import its parts one by one")


def _unreadable(path: Path, error: Exception) -> InvalidArgument:
    reason = getattr(error, "strerror", None) or error
    return InvalidArgument(f"cannot read {path}: {reason}", hint="Pass a readable file or folder")


MAX_VALUE = 64 * 1024**2  # characters of one value: a conversation, or a message
_JSON_CHUNK = 64 * 1024
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
            if not self._fill(_JSON_CHUNK):
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
        return self._fill(max(_JSON_CHUNK, waiting))

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
