"""The memory tools as JSON-RPC methods."""

import logging
from typing import Any

from pydantic import BaseModel

from memrecall.agent.tools.arguments import parse_arguments
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.definition import Interface
from memrecall.agent.tools.models import ToolOutput
from memrecall.agent.tools.table import find_tool
from memrecall.errors import (
    CallerError,
    Conflict,
    Disabled,
    InvalidArgument,
    MemrecallError,
    NotFound,
    RunError,
    StorageFull,
)
from memrecall.server.errors import add_error_fields, describe_failure, log_bug, new_request_id
from memrecall.server.rpc.codec import Code, Dispatch, Params, RpcError

log = logging.getLogger("memrecall.server")

_CODES: tuple[tuple[type[MemrecallError], Code], ...] = (
    (NotFound, Code.NOT_FOUND),
    (Conflict, Code.CONFLICT),
    (Disabled, Code.PERMISSION_DENIED),
    (InvalidArgument, Code.INVALID_PARAMS),
    (CallerError, Code.FAILED_PRECONDITION),
    (StorageFull, Code.RESOURCE_EXHAUSTED),
    (MemrecallError, Code.UNAVAILABLE),
)


def fault_of(error: MemrecallError, *, trusted: bool) -> RpcError:
    """Return the error for the caller; only a trusted one sees the message of a failed run."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    message = str(error) if trusted or isinstance(error, CallerError) else describe_failure(error)
    if code is Code.INVALID_PARAMS:
        return RpcError(code, data={"reason": message})
    return RpcError(code, message, {"code": code.name})


def dispatcher(context: ToolContext) -> Dispatch:
    """Return a function that calls tools by method name, within the rights of a context."""

    async def dispatch(method: str, params: Params) -> Any:
        tool = find_tool(method, Interface.RPC)
        if tool is None:
            raise RpcError(Code.METHOD_NOT_FOUND)
        try:
            return as_json(await tool.run(context, parse_arguments(tool, params)))
        except MemrecallError as error:
            if isinstance(error, RunError):
                fields: dict[str, Any] = {"method": method}
                add_error_fields(fields, error)
                log.warning("a tool failed", extra={"fields": fields})
            raise fault_of(error, trusted=context.is_trusted) from None

    return dispatch


def as_json(result: BaseModel) -> dict[str, Any]:
    """Return a tool's result as one JSON object."""
    return result.as_json() if isinstance(result, ToolOutput) else result.model_dump(mode="json")


def report_bug(error: Exception) -> str:
    """Log a bug and return the request id under which it is logged."""
    request_id = new_request_id()
    log_bug(error, request_id)
    return request_id
