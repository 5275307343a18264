"""The memory tools as methods of JSON-RPC."""

import logging
import secrets
import traceback
from typing import Any

from pydantic import BaseModel

from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.definition import Interface
from memrecall.agent.tools.models import ToolOutput
from memrecall.agent.tools.table import tools_for
from memrecall.errors import (
    CallerError,
    Conflict,
    Disabled,
    EmbedderFailed,
    InvalidArgument,
    MemrecallError,
    NotFound,
    RunError,
    StorageBusy,
    StorageFull,
)
from memrecall.server.rpc import Code, Dispatch, RpcError
from memrecall.server.rpc.codec import Params

_CODES: tuple[tuple[type[MemrecallError], Code], ...] = (
    (NotFound, Code.NOT_FOUND),
    (Conflict, Code.CONFLICT),
    (Disabled, Code.PERMISSION_DENIED),
    (InvalidArgument, Code.INVALID_PARAMS),
    (CallerError, Code.FAILED_PRECONDITION),
    (StorageFull, Code.RESOURCE_EXHAUSTED),
    (MemrecallError, Code.UNAVAILABLE),
)
# Of the world's faults a stranger is told the kind alone: paths and addresses are for the log.
_DISCREET: tuple[tuple[type[MemrecallError], str], ...] = (
    (StorageFull, "no space is left"),
    (StorageBusy, "the store is busy; try again"),
    (EmbedderFailed, "the embedder does not answer; try again"),
    (MemrecallError, "this cannot be done now; try again"),
)


def fault_of(error: MemrecallError, *, trusted: bool) -> RpcError:
    """The error that a caller is told; the world's faults in full only to who runs it."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    if trusted or isinstance(error, CallerError):
        said = str(error)
    else:
        said = next(words for kind, words in _DISCREET if isinstance(error, kind))
    if code is Code.INVALID_PARAMS:
        return RpcError(code, data={"reason": said})
    return RpcError(code, said, {"code": code.name})


log = logging.getLogger("memrecall.server")


def dispatcher(context: ToolContext) -> Dispatch:
    """Return a function that calls the tools by method name, within the rights of a context."""

    async def dispatch(method: str, params: Params) -> Any:
        tool = tools_for(Interface.RPC).get(method)
        if tool is None:
            raise RpcError(Code.METHOD_NOT_FOUND)
        try:
            return as_json(await tool.run(context, tool.parse_params(params)))
        except MemrecallError as error:
            if isinstance(error, RunError):
                fields = {"method": method, "error": type(error).__name__, "cause": error.message}
                log.warning("a tool failed", extra={"fields": fields})
            raise fault_of(error, trusted=context.is_trusted) from None

    return dispatch


def as_json(result: BaseModel) -> dict[str, Any]:
    """Return a tool's result as one JSON object."""
    if isinstance(result, ToolOutput):
        return result.as_json()
    return result.model_dump(mode="json")


def report_bug(error: Exception) -> str:
    """Log where something failed (the places alone, for messages may quote contents); an id."""
    request_id = f"r_{secrets.token_hex(8)}"
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    fields = {"request_id": request_id, "error": type(error).__name__, "at": places}
    log.error("failed", extra={"fields": fields})
    return request_id
