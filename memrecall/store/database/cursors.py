"""Pages and cursors: a cursor is a position in a list that cannot be forged or used elsewhere."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import and_, or_
from sqlalchemy.sql import ColumnElement

from memrecall.errors import InvalidArgument
from memrecall.json_objects import json_bytes
from memrecall.text_length import utf8_length
from memrecall.types import MemoryRecord, Message, check_text

_Item = TypeVar("_Item")

PAGE_SIZE, LARGEST_PAGE = 50, 200  # rows with their contents
LIST_SIZE, LARGEST_OWNER_LIST = 100, 10_000  # owners and keys, which are short
LARGEST_LIST = 1_000  # memories, entities or relations
_SIGNATURE_BYTES = 16
# Made once: `json.dumps` makes one for each call with options, which every search would wait for.
_encode_position = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_encode_binding = json.JSONEncoder(ensure_ascii=False, default=str).encode


def require_limit(name: str, value: int, largest: int, smallest: int = 1) -> None:
    """Raise InvalidArgument unless the value is a whole number within the range."""
    if not isinstance(value, int):
        raise InvalidArgument(
            f"{name} {value!r} is not a whole number", hint=f"Use {smallest} to {largest}"
        )
    if not smallest <= value <= largest:
        raise InvalidArgument(
            f"{name} {value} is out of range", hint=f"Use {smallest} to {largest}"
        )


def come_after(
    time_column: ColumnElement[Any], key: ColumnElement[Any], last_time: datetime, last_key: str
) -> ColumnElement[bool]:
    """Return the condition for the rows that follow one on a page sorted by latest, then key."""
    is_tie = and_(time_column == last_time, key > last_key)
    # The bound on the time alone lets the index seek; the rest decides between equal times.
    return and_(time_column <= last_time, or_(time_column < last_time, is_tie))


@dataclass(frozen=True, slots=True)
class StoredPage(Generic[_Item]):
    """A page of a list, and the cursor of the next page if there is one."""

    items: tuple[_Item, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class KeyedPage(Generic[_Item]):
    """A page of a list of rows with ids, and the id that the next page follows."""

    items: tuple[_Item, ...]
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class PageLimits:
    """The secret that cursors are signed with, and the bytes after which a page ends."""

    secret: bytes
    most_bytes: int = 8 * 1024 * 1024

    def cut(self, rows: Sequence[Message | MemoryRecord]) -> int:
        """Return how many of the rows fit in a page; the first one always does."""
        total = 0
        for count, row in enumerate(rows):
            total += utf8_length(row.content) + json_bytes(row.metadata)
            if total > self.most_bytes and count:
                return count
        return len(rows)


def make_page(
    rows: Sequence[_Item],
    size: int,
    secret: bytes,
    binding: Sequence[object],
    position: Callable[[_Item], tuple[datetime, str]],
) -> StoredPage[_Item]:
    """Return a page of `size` rows; one row more shows that there is a next page."""
    items = tuple(rows[:size])
    if len(rows) <= size:
        return StoredPage(items)
    moment, key = position(items[-1])
    return StoredPage(items, seal_cursor(secret, binding, [moment.isoformat(), key]))


def seal_cursor(secret: bytes, binding: Sequence[object], position: Sequence[object]) -> str:
    """Return an opaque string for a position in the list that `binding` describes."""
    body = _encode_position(position).encode()
    return _encode(_sign(secret, binding, body) + body)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def open_cursor(secret: bytes, binding: Sequence[object], cursor: str) -> list[Any]:
    """Return the position of a cursor; InvalidArgument if it is of another list or forged."""
    check_text("cursor", cursor)
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        data = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        data = b""
    signature, body = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
    is_signed = hmac.compare_digest(signature, _sign(secret, binding, body))
    # Other texts decode to the same bytes: their last character has unused bits.
    if not is_signed or cursor != _encode(data):
        raise InvalidArgument(
            "the cursor was not returned by this query", hint="Start again without a cursor"
        )
    position: list[Any] = json.loads(body)
    return position


def _sign(secret: bytes, binding: Sequence[object], body: bytes) -> bytes:
    bound = _encode_binding(binding).encode()
    message = hashlib.sha256(bound).digest() + body
    return hmac.digest(secret, message, "sha256")[:_SIGNATURE_BYTES]
