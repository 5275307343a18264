"""Cursors: a place in a list, sealed so that it can be neither forged nor used elsewhere."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any

from memrecall.errors import InvalidArgument

_SEAL_BYTES = 16


def seal_cursor(secret: bytes, binding: Sequence[object], place: Sequence[object]) -> str:
    """An opaque string for `place` in the list that `binding` (user, query, filters) describes."""
    body = json.dumps(place, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_seal(secret, binding, body) + body).rstrip(b"=").decode()


def open_cursor(secret: bytes, binding: Sequence[object], cursor: str) -> list[Any]:
    """The place that was sealed; InvalidArgument if it is forged or of another list."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        data = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        data = b""
    seal, body = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    if not hmac.compare_digest(seal, _seal(secret, binding, body)):
        raise InvalidArgument(
            "the cursor is not one that this query gave", hint="Start again without a cursor"
        )
    place: list[Any] = json.loads(body)
    return place


def _seal(secret: bytes, binding: Sequence[object], body: bytes) -> bytes:
    bound = json.dumps(binding, ensure_ascii=False, default=str).encode()
    message = hashlib.sha256(bound).digest() + body
    return hmac.digest(secret, message, "sha256")[:_SEAL_BYTES]
