"""Encodings of text files: byte order marks, UTF-8, UTF-16, GB18030, and Latin text at last."""

import codecs
import io
from collections.abc import Callable
from functools import cache
from typing import IO, TextIO

_CHUNK = 1024**2
# UTF-32 first: its mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CERTAIN = ("", "utf-8", *(encoding for _, encoding in _MARKS))
_LATIN = "cp1252"
_LEAST_CHINESE = 0.6  # of the characters that are not ASCII


def decode_sample(head: bytes) -> str:
    """Return the beginning of a file as text, whatever its encoding is."""
    encoding = _marked_encoding(head) or _encoding_of(lambda: io.BytesIO(head), is_cut=True)
    return head.decode(encoding, errors="replace")


def find_encoding(open_file: Callable[[], IO[bytes]]) -> str:
    """Return the encoding of a file, which is read to its end unless it has a byte order mark."""
    with open_file() as stream:
        head = stream.read(4096)
    return _marked_encoding(head) or _encoding_of(open_file, is_cut=False)


def open_text(stream: IO[bytes], encoding: str) -> TextIO:
    """Return a stream as text; bytes that are no text in its encoding are replaced."""
    return io.TextIOWrapper(stream, encoding=encoding, errors="replace")


def _marked_encoding(head: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    if len(head) >= 4 and b"\0" in head:
        # Without a mark: every second byte of mostly Latin text in UTF-16 is zero.
        if head[1::2].count(0) * 2 > len(head[1::2]):
            return "utf-16-le"
        if head[::2].count(0) * 2 > len(head[::2]):
            return "utf-16-be"
    return None


def _encoding_of(open_file: Callable[[], IO[bytes]], *, is_cut: bool) -> str:
    for encoding in ("utf-8", "gb18030"):
        counts = _count_characters(open_file, encoding, is_cut=is_cut)
        if counts is not None and (encoding == "utf-8" or _is_chinese(*counts)):
            return encoding
    return _LATIN


def _is_chinese(chinese: int, others: int) -> bool:
    return chinese > 0 and chinese >= _LEAST_CHINESE * (chinese + others)


def _count_characters(
    open_file: Callable[[], IO[bytes]], encoding: str, *, is_cut: bool
) -> tuple[int, int] | None:
    """Return the number of common Chinese and of other non-ASCII characters; None if invalid."""
    decoder = codecs.getincrementaldecoder(encoding)()
    chinese = others = 0
    with open_file() as stream:
        try:
            while chunk := stream.read(_CHUNK):
                text = decoder.decode(chunk)
                if encoding != "utf-8" and not text.isascii():
                    common = sum(map(_common_characters().__contains__, text))
                    chinese += common
                    others += sum(char > "\x7f" for char in text) - common
            decoder.decode(b"", final=not is_cut)
        except UnicodeDecodeError:
            return None
    return chinese, others


@cache
def _common_characters() -> frozenset[str]:
    """Return punctuation and the first level of GB 2312: nearly all that Chinese text consists of.

    Bytes of Latin text, read as Chinese, give rare characters.
    """
    rows = (*range(0xA1, 0xA4), *range(0xB0, 0xD8))
    codes = (bytes((row, column)) for row in rows for column in range(0xA1, 0xFF))
    return frozenset("".join(code.decode("gb2312", errors="ignore") for code in codes))
