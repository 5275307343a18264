"""Answering a message: every call is handed on, every answer is one valid line of JSON."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from memrecall.server.jsonrpc.codes import TITLES, Code
from memrecall.server.jsonrpc.reading import (
    Batch,
    Call,
    ExactFloat,
    Id,
    Limits,
    Params,
    Refusal,
    read,
)

Dispatch = Callable[[str, Params], Awaitable[Any]]
Report = Callable[[Exception], str]
"""Told of a bug; its answer is an id under which the log tells more."""

_USUAL = Limits()


class RpcError(Exception):
    """An error that the caller is told of."""

    def __init__(self, code: Code, message: str = "", data: Any = None) -> None:
        super().__init__(message or TITLES[code])
        self.code = code
        self.message = message or TITLES[code]
        self.data = data


async def answer(
    data: bytes, dispatch: Dispatch, report: Report, limits: Limits = _USUAL
) -> bytes | None:
    """The reply to a message; None where the specification wants none. Never raises."""
    message = read(data, limits)
    if not isinstance(message, Batch):
        return await _answer_one(message, dispatch, report)
    replies = [await _answer_one(item, dispatch, report) for item in message.items]
    told = [reply for reply in replies if reply is not None]
    return b"[" + b",".join(told) + b"]" if told else None


async def _answer_one(item: Call | Refusal, dispatch: Dispatch, report: Report) -> bytes | None:
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
