"""Talking JSON-RPC in tests: what a reply must look like, whatever was asked."""

import json
from typing import Any

from memrecall.server.rpc.codec import Code, Params, RpcError, RpcLimits, answer

NOBODY = object()  # no reply at all
RESERVED = range(-32768, -31999)
SPECIFIED = {-32700, -32600, -32601, -32602, -32603}


async def dispatch(method: str, params: Params) -> Any:
    """A few methods with every way to end."""
    if method == "echo":
        return params
    if method == "subtract":
        if isinstance(params, list):
            params = dict(zip(("minuend", "subtrahend"), params, strict=False))
        try:
            return (params or {})["minuend"] - (params or {})["subtrahend"]
        except (KeyError, TypeError):
            raise RpcError(Code.INVALID_PARAMS) from None
    if method == "crash":
        raise RuntimeError("secret words")
    if method == "unwritable":
        return "\ud800"
    if method == "missing":
        raise RpcError(Code.NOT_FOUND, "there is none", {"why": "\ud800"})
    raise RpcError(Code.METHOD_NOT_FOUND)


async def ask(data: bytes | str, limits: RpcLimits | None = None) -> Any:
    """The reply, read; NOBODY if there is none. Asserts that it is a valid one."""
    sent = data.encode() if isinstance(data, str) else data
    reply = await answer(sent, dispatch, lambda _error: "r_1", limits or RpcLimits())
    if reply is None:
        return NOBODY
    assert b"\n" not in reply
    told = json.loads(reply)
    for item in told if isinstance(told, list) else [told]:
        check_reply(item)
    assert told != []
    return told


def check_reply(item: Any) -> None:
    """A response object of the specification, and no other."""
    assert item["jsonrpc"] == "2.0"
    assert "id" in item
    assert set(item) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    if "error" in item:
        error = item["error"]
        assert {"code", "message"} <= set(error) <= {"code", "message", "data"}
        assert isinstance(error["message"], str)
        assert type(error["code"]) is int
        assert error["code"] not in RESERVED or error["code"] in SPECIFIED


def code(reply: Any) -> tuple[int, Any]:
    """The code and the id of an error."""
    return reply["error"]["code"], reply["id"]
