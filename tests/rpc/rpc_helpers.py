"""A dispatcher for tests, and checks that replies are valid."""

import json
from typing import Any

from memrecall.server.rpc import Code, Params, RpcError, RpcLimits, answer

NO_REPLY = object()
RESERVED = range(-32768, -31999)
SPECIFIED = {-32700, -32600, -32601, -32602, -32603}


async def dispatch(method: str, params: Params) -> Any:
    """Dispatch a few methods that succeed or fail in different ways."""
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


async def send_message(data: bytes | str, limits: RpcLimits | None = None) -> Any:
    """Return the parsed and checked reply, or NO_REPLY."""
    message_bytes = data.encode() if isinstance(data, str) else data
    reply = await answer(message_bytes, dispatch, lambda _error: "r_1", limits or RpcLimits())
    if reply is None:
        return NO_REPLY
    assert b"\n" not in reply
    message = json.loads(reply)
    for item in message if isinstance(message, list) else [message]:
        check_reply(item)
    assert message != []
    return message


def check_reply(item: Any) -> None:
    """Check that an object is a valid JSON-RPC response."""
    assert item["jsonrpc"] == "2.0"
    assert "id" in item
    assert set(item) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    if "error" in item:
        error = item["error"]
        assert {"code", "message"} <= set(error) <= {"code", "message", "data"}
        assert isinstance(error["message"], str)
        assert type(error["code"]) is int
        assert error["code"] not in RESERVED or error["code"] in SPECIFIED


def error_code_and_id(reply: Any) -> tuple[int, Any]:
    """Return the code and the id of an error reply."""
    return reply["error"]["code"], reply["id"]
