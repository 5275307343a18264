"""Pictures in messages: their type, size, hash and caption are stored, their bytes are not."""

import base64
import hashlib
import mimetypes
from collections.abc import Callable, Mapping
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
_REFERENCES = ("file_id", "asset_pointer", "path")  # to what an API or a disk has
_TYPES = ("media_type", "mediaType", "mime_type", "mimeType", "image_mimetype")
_WHOLE = "Pass the whole picture as an image/… data URL, or its http or https URL"
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
# Cameras and editors may write more after the end of a picture.
_HAS_END: dict[str, Callable[[bytes], bool]] = {
    "image/png": lambda data: b"IEND\xaeB`\x82" in data,
    "image/jpeg": lambda data: data.find(b"\xff\xd9", _find_scan(data)) > 0,
    "image/gif": lambda data: data.rstrip(b"\0\r\n").endswith(b";"),
    "image/webp": lambda data: len(data) >= 8 + int.from_bytes(data[4:8], "little"),
}


def get_field(item: object, *names: str) -> Any:
    """Return the first field that has a value, of a dict or an object."""
    for name in names:
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is not None and value != "":
            return value
    return None


def caption_of(part: object) -> str | None:
    """Return the caption or alternative text of a part."""
    captions = (get_field(each, *_CAPTIONS) for each in (part, get_field(part, "image_url")))
    return next((caption for caption in captions if isinstance(caption, str)), None)


def media_of(part: object) -> str:
    """Return the kind of a part with a media type: "image", "audio", "video" or "file"."""
    media = str(get_field(part, *_TYPES)).split("/", 1)[0]
    return media if media in ("image", "audio", "video") else "file"


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
        url, data = get_field(fields, *_URLS), get_field(fields, *_DATA)
        if isinstance(data, str) and data[:6].lower().startswith(("data:", "http:", "https:")):
            url, data = data, None  # of the AI SDK
        if callable(to_base64 := getattr(fields, "to_base64", None)):
            data = to_base64()  # of AutoGen, whose field is an open picture
        if (content := _read_data(url, data)) is not None:
            return {**details, **_describe_bytes(content)}
        if url is not None:
            return {**details, **_describe_address(str(url))}
        if get_field(fields, *_REFERENCES) is not None:
            return details
    raise InvalidArgument("a picture has neither data nor a URL", hint=_WHOLE)


def _read_data(url: object, data: object) -> bytes | None:
    """Return the bytes of a data URL or of data; None if there are none."""
    head, _, text = str(url).partition(",")
    if (head := head.lower()).startswith("data:"):
        _check_size(len(text) * 3 // 4)
        if not head.startswith("data:image/"):
            raise InvalidArgument(f"{head[:_URL_LENGTH]!r} is not a picture", hint=_WHOLE)
        return _decode(text) if head.endswith(";base64") else unquote_to_bytes(text)
    if isinstance(data, bytes | bytearray):
        _check_size(len(data))
        return bytes(data) if _type_of(bytes(data)) else _decode(bytes(data).decode("latin-1"))
    return _decode(data) if isinstance(data, str) else None


def _decode(text: str) -> bytes:
    _check_size(len(text) * 3 // 4)
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise InvalidArgument(f"a picture is not valid base64: {error}", hint=_WHOLE) from None


def _check_size(size: int) -> None:
    if size > PICTURE_BYTES:
        hint = f"Use at most {PICTURE_BYTES:,} bytes"
        raise InvalidArgument(f"a picture has {size:,} bytes", hint=hint)


def _type_of(data: bytes) -> str | None:
    start = data[:16]
    return next((t for at, mark, t in _SIGNATURES if start[at:].startswith(mark)), None)


def _describe_bytes(data: bytes) -> dict[str, Any]:
    if (media_type := _type_of(data)) is None:
        hint = "Use PNG, JPEG, GIF, WebP, BMP, TIFF, HEIC, AVIF or SVG"
        raise InvalidArgument(f"a picture of {len(data):,} bytes is of no known format", hint=hint)
    if not _HAS_END.get(media_type, bool)(data):
        raise InvalidArgument(f"a picture of {len(data):,} bytes is cut off", hint=_WHOLE)
    return {"type": media_type, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _find_scan(data: bytes) -> int:
    """Return where the scan of a JPEG begins; a thumbnail before it has an end of its own."""
    at = 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return at


def _describe_address(url: str) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
    except ValueError:  # such as http://[x
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidArgument(f"{url[:_URL_LENGTH]!r} is not the URL of a picture", hint=_WHOLE)
    address = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    guess = mimetypes.guess_type(parts.path)[0]
    return {"url": address[:_URL_LENGTH]} | ({"type": guess} if guess else {})
