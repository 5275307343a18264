"""From bytes to calls. What cannot be a call becomes a refusal that knows what to answer."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from memrecall.server.jsonrpc.codes import Code

DEEPEST = 64
_BEGINNINGS = (b"{", b"[")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message may cost."""

    bytes: int = 1024 * 1024
    batch: int = 50


class ExactFloat(float):
    """A number that remembers how it was written, for an id must be echoed as it came."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, written: str) -> "ExactFloat":
        """Read a number; one that is too large to have a value is refused."""
        made = super().__new__(cls, written)
        if math.isinf(made):
            raise ValueError(f"the number {written[:20]} is too large")
        made.written = written
        return made


Id = str | int | ExactFloat | None
Params = dict[str, Any] | list[Any] | None


@dataclass(frozen=True, slots=True)
class Call:
    """A request, or (without an id) a notification."""

    method: str
    params: Params
    id: Id = None
    is_notification: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is not a call, and why."""

    code: Code
    why: str
    id: Id = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Several at once."""

    items: tuple[Call | Refusal, ...]


class _Repeated(dict[str, Any]):
    """An object in which a key appears twice: nobody can say what it means."""


def read(data: bytes, limits: Limits) -> Call | Refusal | Batch:
    """What a message says; never raises."""
    if len(data) > limits.bytes:
        return Refusal(Code.INVALID_REQUEST, f"the message is larger than {limits.bytes} bytes")
    try:
        value = _parse(data)
    except ValueError as error:
        return Refusal(Code.PARSE_ERROR, str(error))
    if not isinstance(value, list):
        return _read_one(value)
    if not value:
        return Refusal(Code.INVALID_REQUEST, "the batch is empty")
    if len(value) > limits.batch:
        return Refusal(Code.INVALID_REQUEST, f"a batch has at most {limits.batch} calls")
    return Batch(tuple(map(_read_one, value)))


def _parse(data: bytes) -> Any:
    # The first parser is strict and bounded (UTF-8, halves of characters, depth, digits), which
    # Python's own is not; only the second tells of repeated keys and how a number was written.
    from_json(data, allow_inf_nan=False, cache_strings=False)
    value = json.loads(
        data.decode(), parse_float=ExactFloat, parse_int=_integer, object_pairs_hook=_object
    )
    if sum(map(data.count, _BEGINNINGS)) > DEEPEST and _is_deeper(value):
        raise ValueError(f"nested deeper than {DEEPEST} levels")
    return value


def _integer(written: str) -> int | ExactFloat:
    return ExactFloat(written) if written == "-0" else int(written)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    return made if len(made) == len(pairs) else _Repeated(made)


def _insides(value: Any) -> Iterator[Any]:
    inside = value.values() if isinstance(value, dict) else value
    return (item for item in inside if isinstance(item, dict | list))


def _is_deeper(value: Any) -> bool:
    """Whether containers lie in containers more than so many levels deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _insides(outer)]
        if not level:
            return False
    return True


def _repeats(value: Any) -> bool:
    """Whether an object somewhere inside has a key twice."""
    if isinstance(value, _Repeated):
        return True
    return isinstance(value, dict | list) and any(map(_repeats, _insides(value)))


def _read_one(value: Any) -> Call | Refusal:
    if not isinstance(value, dict):
        return Refusal(Code.INVALID_REQUEST, "a call is an object")
    if isinstance(value, _Repeated):
        return Refusal(Code.INVALID_REQUEST, "a key appears twice")
    given = value.get("id")
    is_id = given is None or (isinstance(given, str | int | float) and not isinstance(given, bool))
    fault = _fault(value) if is_id else "an id is a string, a number or null"
    if fault:
        return Refusal(Code.INVALID_REQUEST, fault, given if is_id else None)
    return Call(value["method"], value.get("params"), given, is_notification="id" not in value)


def _fault(value: dict[str, Any]) -> str:
    """What keeps an object from being a call; nothing if nothing does."""
    if value.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    if not isinstance(value.get("method"), str):
        return "method must be a string"
    if "params" in value and not isinstance(value["params"], dict | list):
        return "params must be an object or an array"
    return "a key appears twice" if _repeats(value) else ""
