"""The encoding of text files: UTF-8, or else what charset-normalizer takes the bytes for."""

import codecs
import io
from collections.abc import Callable
from typing import IO, TextIO

from charset_normalizer import from_bytes

_CHUNK = 1024**2
_SAMPLE = 64 * 1024
CERTAIN = ("", "utf-8-sig", "utf-16", "utf-32")  # known from a byte order mark, or valid UTF-8
# Without a choice of encodings, short texts in Latin letters are taken for Romanian or Czech.
_ENCODINGS = ["utf_16", "utf_16_le", "utf_16_be", "utf_32", "gb18030", "cp1252"]


def decode_sample(head: bytes) -> str:
    """Return the beginning of a file as text, whatever its encoding is."""
    return head.decode(find_encoding(lambda: io.BytesIO(head)), errors="replace")


def find_encoding(open_file: Callable[[], IO[bytes]]) -> str:
    """Return the encoding of a file, which is read up to the first bytes that are not UTF-8."""
    with open_file() as stream:
        sample = _find_other_text(stream)
    if not sample:
        return "utf-8-sig"
    guess = from_bytes(sample, cp_isolation=_ENCODINGS).best()
    return guess.encoding.replace("_", "-") if guess else "utf-8-sig"


def open_text(stream: IO[bytes], encoding: str) -> TextIO:
    """Return a stream as text; bytes that are invalid in its encoding are replaced."""
    return io.TextIOWrapper(stream, encoding=encoding, errors="replace")


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
