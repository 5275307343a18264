"""The memory tools as methods of JSON-RPC."""

import logging
import secrets
import traceback
from typing import Any

from memrecall.errors import MemrecallError, RunError
from memrecall.server.jsonrpc import Code, Dispatch, RpcError
from memrecall.server.jsonrpc.reading import Params
from memrecall.server.tools.desk import ToolDesk
from memrecall.server.tools.faults import fault_of
from memrecall.server.tools.registry import TOOLS, call

log = logging.getLogger("memrecall.server")


def dispatcher(desk: ToolDesk, *, trusted: bool) -> Dispatch:
    """The tools of a desk; who is trusted hears of the world's faults in full."""

    async def dispatch(method: str, params: Params) -> Any:
        tool = TOOLS.get(method)
        if tool is None:
            raise RpcError(Code.METHOD_NOT_FOUND)
        try:
            return await call(desk, tool, params)
        except MemrecallError as error:
            if isinstance(error, RunError):
                fields = {"method": method, "error": type(error).__name__, "cause": error.message}
                log.warning("a tool failed", extra={"fields": fields})
            raise fault_of(error, trusted=trusted) from None

    return dispatch


def report_bug(error: Exception) -> str:
    """Log where something failed (the places alone, for messages may quote contents); an id."""
    request_id = f"r_{secrets.token_hex(8)}"
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    fields = {"request_id": request_id, "error": type(error).__name__, "at": places}
    log.error("failed", extra={"fields": fields})
    return request_id
