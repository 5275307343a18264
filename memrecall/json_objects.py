"""JSON objects in texts: lines of files that users write, and what models and tools return."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json, to_json

from memrecall.errors import InvalidArgument
from memrecall.text_length import truncate_text

MAX_DEPTH = 64  # of JSON that callers send
# Of a body: 200 of each message of the largest batch. To validate and copy them takes 20 ms.
MAX_VALUES = 200_000
METADATA_BYTES = 1024 * 1024  # of one message or memory, as JSON


def json_bytes(value: Any) -> int:
    """Return how many bytes a value takes as JSON."""
    return len(to_json(value)) if value else 0


def check_metadata(metadata: dict[str, Any]) -> None:
    """Reject metadata that is too large."""
    if (size := json_bytes(metadata)) > METADATA_BYTES:
        raise InvalidArgument(
            f"metadata has {size:,} bytes",
            hint=f"Use at most {METADATA_BYTES:,}, and store the rest elsewhere",
        )


def parse_json_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line in UTF-8; InvalidArgument says what is wrong with it.

    A key that is given twice is an error: one of its values would be lost.
    """
    try:
        data = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_reject_duplicates)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"not UTF-8 at byte {error.start}") from None
    except InvalidArgument:  # is a ValueError too
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidArgument("not a JSON object")
    return data


class RepeatedKeys(dict[str, Any]):
    """A JSON object with repeated keys, without their values."""

    @classmethod
    def check(cls, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return the object of some pairs, of this class if a key is repeated."""
        counts = Counter(name for name, _ in pairs)
        is_valid = len(counts) == len(pairs)
        return dict(pairs) if is_valid else cls(pair for pair in pairs if counts[pair[0]] == 1)


def parse_json(body: bytes) -> Any:
    """Parse JSON, refusing repeated keys, NaN, infinite numbers, too many levels and values."""
    value = load_json(body)
    if fault := find_fault(value):
        raise json.JSONDecodeError(fault, "", 0)
    return value


def load_json(body: bytes) -> Any:
    """Parse JSON like `parse_json`, but leave values in it that `find_fault` finds."""
    try:
        value = from_json(body, allow_inf_nan=False, cache_strings=False)
    except ValueError as error:
        raise json.JSONDecodeError(str(error), "", 0) from None
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise json.JSONDecodeError(f"nested deeper than {MAX_DEPTH} levels", "", 0)
    if body.count(b",") > MAX_VALUES and has_more_values(value, MAX_VALUES):
        raise json.JSONDecodeError(f"more than {MAX_VALUES:,} values", "", 0)
    if has_repeated_keys(body, value):
        value = json.loads(body, object_pairs_hook=RepeatedKeys.check)
    return value


def find_fault(value: Any) -> str:
    """Return what is wrong with a value of `load_json`: a repeated key, or an infinite number."""
    pending: list[Any] = [[value]]
    while pending:
        outer = pending.pop()
        if isinstance(outer, RepeatedKeys):
            return "an object has the same key twice"
        for item in outer.values() if isinstance(outer, dict) else outer:
            if isinstance(item, dict | list):
                pending.append(item)
            elif isinstance(item, float) and math.isinf(item):
                return "a number is too large"
    return ""


def has_repeated_keys(body: bytes, value: Any) -> bool:
    """Return True if the parser dropped a member of an object: it keeps the last of each key.

    Written again, a value has as many quotes as its source, unless a member is missing. Counting
    them takes a tenth of the time of a parser that reports repeated keys.
    """
    quotes = body.count(b'"')
    if rb"\u0022" in body:  # a quote too, unless its backslash is escaped
        quotes += body.replace(rb"\\", b"").count(rb"\u0022")
    return to_json(value).count(b'"') != quotes


def containers(value: Any) -> Iterator[Any]:
    """Yield the objects and arrays in an object or array."""
    items = value.values() if isinstance(value, dict) else value
    return (item for item in items if isinstance(item, dict | list))


def is_deeper(value: Any, levels: int) -> bool:
    """Return True if objects and arrays are nested more than `levels` deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        level = [inner for outer in level for inner in containers(outer)]
    return bool(level)


def has_more_values(value: Any, count: int) -> bool:
    """Return True if objects and arrays have more than `count` values together."""
    pending = [value] if isinstance(value, dict | list) else []
    while pending and count >= 0:
        outer = pending.pop()
        count -= len(outer)
        pending += containers(outer) if count >= 0 else ()
    return count < 0


def load_json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a text, None if it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def make_storable(value: Any, longest: int | None = None) -> Any:
    """Return a JSON value without NUL and lone surrogates, which neither databases nor UTF-8 take.

    Texts and lists that are longer than `longest` are cut.
    """
    if isinstance(value, str):
        text = value if longest is None else truncate_text(value, longest)
        if text.isascii() and "\0" not in text:
            return text
        return text.replace("\0", "\ufffd").encode(errors="replace").decode()
    if isinstance(value, dict):
        return {make_storable(k, longest): make_storable(v, longest) for k, v in value.items()}
    if isinstance(value, list):
        return [make_storable(item, longest) for item in value[:longest]]
    return value


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"{duplicate} is given twice")
    return data
