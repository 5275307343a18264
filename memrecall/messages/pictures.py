"""Pictures in messages: their type, size, hash and caption are stored, their bytes are not."""

import base64
import binascii
import hashlib
import mimetypes
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from memrecall.errors import InvalidArgument

PICTURE_BYTES = 20 * 1024**2
_CAPTIONS = ("caption", "alt", "alt_text")
_URL_LENGTH = 500
# Where the forms of APIs and frameworks have what a picture is.
_HOLDERS = ("image_url", "source", "inline_data", "inlineData")
_DATA = ("data", "base64", "image")
_URLS = ("url", "uri", "file_uri", "fileUri")
_TYPES = ("media_type", "mime_type", "mimeType", "image_mimetype")
_SIGNATURES = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftyp", "image/heic"),
    (0, b"<svg", "image/svg+xml"),
    (0, b"<?xml", "image/svg+xml"),
)


def get_field(item: object, *names: str) -> Any:
    """Return the first field that has a value, of a dict or an object."""
    for name in names:
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is not None and value != "":
            return value
    return None


def caption_of(part: object) -> str | None:
    """Return the caption or alternative text of a part."""
    caption = get_field(part, *_CAPTIONS)
    return caption if isinstance(caption, str) else None


def describe_picture(part: object) -> dict[str, Any]:
    """Return what is stored of a picture; InvalidArgument if it is damaged or too large.

    Of a picture elsewhere, the address is stored without its query, which may be a secret.
    """
    details: dict[str, Any] = {"type": "image"}
    if caption := caption_of(part):
        details["alt"] = caption
    for holder in (part, *(get_field(part, name) for name in _HOLDERS)):
        fields = {"url": holder} if isinstance(holder, str) else holder
        if isinstance(media_type := get_field(fields, *_TYPES), str):
            details["type"] = media_type
        if (data := _read_data(fields)) is not None:
            return {**details, **_describe_bytes(data)}
        if isinstance(url := get_field(fields, *_URLS), str):
            return {**details, **_describe_address(url)}
    return details


def _read_data(fields: object) -> bytes | None:
    """Return the bytes that a part contains; None if it has none."""
    url, data = get_field(fields, *_URLS), get_field(fields, *_DATA)
    if callable(to_base64 := getattr(fields, "to_base64", None)):
        data = to_base64()  # of AutoGen, whose field is an open picture
    if isinstance(url, str) and url[:5].lower() == "data:":
        head, _, text = url.partition(",")
        _check_size(len(text) * 3 // 4)
        is_base64 = head.lower().endswith(";base64")
        return _decode(text) if is_base64 else unquote_to_bytes(text)
    if isinstance(data, bytes | bytearray):
        _check_size(len(data))
        return bytes(data) if _type_of(bytes(data)) else _decode(bytes(data).decode("latin-1"))
    return _decode(data) if isinstance(data, str) else None


def _decode(text: str) -> bytes:
    _check_size(len(text) * 3 // 4)
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(
            f"a picture is not valid base64: {error}", hint="Pass the whole picture, or its URL"
        ) from None


def _check_size(size: int) -> None:
    if size > PICTURE_BYTES:
        raise InvalidArgument(
            f"a picture has {size:,} bytes", hint=f"Use at most {PICTURE_BYTES:,} bytes"
        )


def _type_of(data: bytes) -> str | None:
    start = data[:16]
    return next((t for at, mark, t in _SIGNATURES if start[at:].startswith(mark)), None)


def _describe_bytes(data: bytes) -> dict[str, Any]:
    if (media_type := _type_of(data)) is None:
        raise InvalidArgument(
            f"a picture of {len(data):,} bytes is of no known format",
            hint="Use PNG, JPEG, GIF, WebP, BMP, TIFF, HEIC, AVIF or SVG",
        )
    return {"type": media_type, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _describe_address(url: str) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidArgument(
            f"{url[:_URL_LENGTH]!r} is not the URL of a picture: {error}", hint="Check it"
        ) from None
    address = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    guess = mimetypes.guess_type(parts.path)[0]
    return {"url": address[:_URL_LENGTH]} | ({"type": guess} if guess else {})
