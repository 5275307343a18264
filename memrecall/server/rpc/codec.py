"""Answering a message: every call is handed on, every answer is one valid line of JSON."""

import json
import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json


class Code(IntEnum):
    """What went wrong. From -32768 to -32000 the specification has them; ours are positive."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603

    NOT_FOUND = 1001
    CONFLICT = 1002
    PERMISSION_DENIED = 1003
    FAILED_PRECONDITION = 1004
    RESOURCE_EXHAUSTED = 1005
    UNAVAILABLE = 1006


# What the specification calls its own errors.
TITLES = {
    Code.PARSE_ERROR: "Parse error",
    Code.INVALID_REQUEST: "Invalid Request",
    Code.METHOD_NOT_FOUND: "Method not found",
    Code.INVALID_PARAMS: "Invalid params",
    Code.INTERNAL_ERROR: "Internal error",
}


DEEPEST = 64
_BEGINNINGS = (b"{", b"[")


@dataclass(frozen=True, slots=True)
class RpcLimits:
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
class RpcCall:
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

    items: tuple[RpcCall | Refusal, ...]


class _Repeated(dict[str, Any]):
    """An object in which a key appears twice: nobody can say what it means."""


def read(data: bytes, limits: RpcLimits) -> RpcCall | Refusal | Batch:
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


def _read_one(value: Any) -> RpcCall | Refusal:
    if not isinstance(value, dict):
        return Refusal(Code.INVALID_REQUEST, "a call is an object")
    if isinstance(value, _Repeated):
        return Refusal(Code.INVALID_REQUEST, "a key appears twice")
    given = value.get("id")
    is_id = given is None or (isinstance(given, str | int | float) and not isinstance(given, bool))
    fault = _fault(value) if is_id else "an id is a string, a number or null"
    if fault:
        return Refusal(Code.INVALID_REQUEST, fault, given if is_id else None)
    return RpcCall(value["method"], value.get("params"), given, is_notification="id" not in value)


def _fault(value: dict[str, Any]) -> str:
    """What keeps an object from being a call; nothing if nothing does."""
    if value.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    if not isinstance(value.get("method"), str):
        return "method must be a string"
    if "params" in value and not isinstance(value["params"], dict | list):
        return "params must be an object or an array"
    return "a key appears twice" if _repeats(value) else ""


Dispatch = Callable[[str, Params], Awaitable[Any]]
Report = Callable[[Exception], str]
"""Told of a bug; its answer is an id under which the log tells more."""

_USUAL = RpcLimits()


class RpcError(Exception):
    """An error that the caller is told of."""

    def __init__(self, code: Code, message: str = "", data: Any = None) -> None:
        super().__init__(message or TITLES[code])
        self.code = code
        self.message = message or TITLES[code]
        self.data = data


async def answer(
    data: bytes, dispatch: Dispatch, report: Report, limits: RpcLimits = _USUAL
) -> bytes | None:
    """The reply to a message; None where the specification wants none. Never raises."""
    message = read(data, limits)
    if not isinstance(message, Batch):
        return await _answer_one(message, dispatch, report)
    replies = [await _answer_one(item, dispatch, report) for item in message.items]
    told = [reply for reply in replies if reply is not None]
    return b"[" + b",".join(told) + b"]" if told else None


async def _answer_one(item: RpcCall | Refusal, dispatch: Dispatch, report: Report) -> bytes | None:
    if isinstance(item, Refusal):
        return _error(item.id, RpcError(item.code, data={"reason": item.why}))
    try:
        reply = _result(item.id, await dispatch(item.method, item.params))
    except RpcError as error:
        reply = _error(item.id, error)
    except Exception as error:  # the outer edge: nobody above could tell the caller
        data = {"request_id": report(error)}
        reply = _error(item.id, RpcError(Code.INTERNAL_ERROR, data=data))
    return None if item.is_notification else reply


def _result(given: Id, result: Any) -> bytes:
    return _reply(given, b'"result":' + to_json(result))


def _error(given: Id, error: RpcError) -> bytes:
    told = {"code": int(error.code), "message": error.message}
    try:
        body = to_json(told if error.data is None else {**told, "data": error.data})
    except (PydanticSerializationError, UnicodeEncodeError):
        body = to_json({"code": int(error.code), "message": TITLES.get(error.code, "Error")})
    return _reply(given, b'"error":' + body)


def _reply(given: Id, member: bytes) -> bytes:
    return b'{"jsonrpc":"2.0",' + member + b',"id":' + _written(given) + b"}"


def _written(given: Id) -> bytes:
    if isinstance(given, ExactFloat):
        return given.written.encode()
    return json.dumps(given, ensure_ascii=False).encode()
