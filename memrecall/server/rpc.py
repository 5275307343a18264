"""JSON-RPC: messages, the memory tools as methods, and the server on stdin and stdout.

Every reply is one line of JSON, and nothing else is written to stdout.
"""

import asyncio
import json
import logging
import os
import re
import signal
import threading
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from memrecall.agent.tools import RECALL
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.models import ToolOutput
from memrecall.agent.tools.table import Interface, Tool, parse_arguments
from memrecall.budget import Limits
from memrecall.errors import (
    CallerError,
    Conflict,
    DeadlineExceeded,
    Disabled,
    InvalidArgument,
    MemrecallError,
    NotFound,
    RunError,
    StorageFull,
)
from memrecall.json_objects import find_fault, load_json
from memrecall.server.errors import add_error_fields, describe_failure, log_bug, new_request_id
from memrecall.server.limits import GRACE_SECONDS, QUICK_SECONDS, WRITE_SECONDS
from memrecall.server.tools import find_tool
from memrecall.timing import current_deadline, deadline, run_within
from memrecall.workers import DaemonThreadPool

_UNBOUNDED_TOOLS = frozenset({"memory_backup", "memory_restore", "memory_dump", "memory_cleanup"})
log = logging.getLogger("memrecall.server")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CHUNK = 64 * 1024
_READ_AHEAD = 4  # chunks
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Code(IntEnum):
    """Error codes. -32768 to -32000 are reserved by the specification; ours are positive."""

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
    DEADLINE_EXCEEDED = 1007


_CODES: tuple[tuple[type[MemrecallError], Code], ...] = (
    (NotFound, Code.NOT_FOUND),
    (Conflict, Code.CONFLICT),
    (Disabled, Code.PERMISSION_DENIED),
    (InvalidArgument, Code.INVALID_PARAMS),
    (CallerError, Code.FAILED_PRECONDITION),
    (StorageFull, Code.RESOURCE_EXHAUSTED),
    (DeadlineExceeded, Code.DEADLINE_EXCEEDED),
    (MemrecallError, Code.UNAVAILABLE),
)


# The messages that the specification prescribes for its codes.
TITLES = {
    Code.PARSE_ERROR: "Parse error",
    Code.INVALID_REQUEST: "Invalid Request",
    Code.METHOD_NOT_FOUND: "Method not found",
    Code.INVALID_PARAMS: "Invalid params",
    Code.INTERNAL_ERROR: "Internal error",
}


@dataclass(frozen=True, slots=True)
class RpcLimits:
    """Limits of the size of a message and of a batch."""

    bytes: int = 1024 * 1024
    batch: int = 50


CallId = str | int | float | None
Params = dict[str, Any] | list[Any] | None
Dispatch = Callable[[str, Params], Awaitable[Any]]
Report = Callable[[Exception], str]
"""Logs a bug and returns the request id under which it is logged."""


class RpcError(Exception):
    """An error that is sent to the caller."""

    def __init__(self, code: Code, message: str = "", data: Any = None) -> None:
        super().__init__(message or TITLES[code])
        self.code = code
        self.message = message or TITLES[code]
        self.data = data


@dataclass(frozen=True, slots=True)
class RpcCall:
    """A request, or without an id a notification."""

    method: str
    params: Params
    id: CallId = None
    is_notification: bool = False


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """Something that is not a valid call, and the reason."""

    code: Code
    reason: str
    id: CallId = None


async def answer(
    data: bytes,
    dispatch: Dispatch,
    report: Report,
    limits: RpcLimits = RpcLimits(),  # noqa: B008 -- frozen
) -> bytes | None:
    """Return the reply to a message, or None if the specification requires none; never raise."""
    message = _parse_message(data, limits)
    if not isinstance(message, list):
        return await _answer_call(message, dispatch, report)
    replies = [await _answer_call(item, dispatch, report) for item in message]
    sent = [reply for reply in replies if reply is not None]
    return b"[" + b",".join(sent) + b"]" if sent else None


async def _answer_call(
    item: RpcCall | InvalidCall, dispatch: Dispatch, report: Report
) -> bytes | None:
    if isinstance(item, InvalidCall):
        return _error_reply(item.id, RpcError(item.code, data={"reason": item.reason}))
    try:
        result = await dispatch(item.method, item.params)
        reply = _reply(item.id, b'"result":' + to_json(result))
    except RpcError as error:
        reply = _error_reply(item.id, error)
    except Exception as error:  # the outermost layer: nothing above could answer the caller
        data = {"request_id": report(error)}
        reply = _error_reply(item.id, RpcError(Code.INTERNAL_ERROR, data=data))
    return None if item.is_notification else reply


def _error_reply(call_id: CallId, error: RpcError) -> bytes:
    body = {"code": int(error.code), "message": error.message}
    try:
        text = to_json(body if error.data is None else {**body, "data": error.data})
    except (PydanticSerializationError, UnicodeEncodeError):
        text = to_json({"code": int(error.code), "message": TITLES.get(error.code, "Error")})
    return _reply(call_id, b'"error":' + text)


def _reply(call_id: CallId, member: bytes) -> bytes:
    return b'{"jsonrpc":"2.0",' + member + b',"id":' + to_json(call_id) + b"}"


def _parse_message(
    data: bytes, limits: RpcLimits
) -> RpcCall | InvalidCall | list[RpcCall | InvalidCall]:
    """Parse a call or a batch of calls; never raise."""
    if len(data) > limits.bytes:
        return InvalidCall(Code.INVALID_REQUEST, f"the message is larger than {limits.bytes} bytes")
    try:
        value = load_json(data)
    except ValueError as error:
        return _explain_parse_error(data, str(error))
    if not isinstance(value, list):
        return _parse_call(value)
    if not value:
        return InvalidCall(Code.INVALID_REQUEST, "the batch is empty")
    if len(value) > limits.batch:
        return InvalidCall(Code.INVALID_REQUEST, f"a batch has at most {limits.batch} calls")
    return [_parse_call(item) for item in value]


def _explain_parse_error(data: bytes, reason: str) -> InvalidCall:
    """Name a byte order mark and a lone surrogate, which parsers hide behind an odd message."""
    try:
        value = json.loads(data.decode("utf-8-sig", "surrogatepass"))
    except (ValueError, RecursionError):
        return InvalidCall(Code.PARSE_ERROR, reason)
    if data.startswith(BOM_UTF8):
        reason = "the message begins with a byte order mark (BOM); send UTF-8 without one"
    elif surrogate := _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        reason = f"a text has the lone surrogate {surrogate[0]!a}, which is not a character"
    else:
        return InvalidCall(Code.PARSE_ERROR, reason)
    call_id = value.get("id") if isinstance(value, dict) else None
    return InvalidCall(Code.PARSE_ERROR, reason, call_id if _is_valid_id(call_id) else None)


def _is_valid_id(call_id: object) -> bool:
    if isinstance(call_id, str):
        return _SURROGATE.search(call_id) is None
    is_number = isinstance(call_id, int | float) and not isinstance(call_id, bool)
    return call_id is None or (is_number and not find_fault(call_id))


def _parse_call(value: Any) -> RpcCall | InvalidCall:
    if not isinstance(value, dict):
        return InvalidCall(Code.INVALID_REQUEST, "a call is an object")
    call_id = value.get("id")
    is_valid_id = _is_valid_id(call_id)
    reason = _check_call(value) if is_valid_id else "an id is a string, a number or null"
    if reason:
        return InvalidCall(Code.INVALID_REQUEST, reason, call_id if is_valid_id else None)
    return RpcCall(value["method"], value.get("params"), call_id, is_notification="id" not in value)


def _check_call(value: dict[str, Any]) -> str:
    """Return why an object is not a call; empty if it is one."""
    if value.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    if not isinstance(value.get("method"), str):
        return "method must be a string"
    if "params" in value and not isinstance(value["params"], dict | list):
        return "params must be an object or an array"
    return find_fault(value)


def to_rpc_error(error: MemrecallError, *, trusted: bool) -> RpcError:
    """Return the error for the caller; only a trusted one sees the message of a failed run."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    message = str(error) if trusted or isinstance(error, CallerError) else describe_failure(error)
    if code is Code.INVALID_PARAMS:
        return RpcError(code, data={"reason": message})
    outcome = error.details if isinstance(error, DeadlineExceeded) else {}
    return RpcError(code, message, {"code": code.name, **outcome})


async def run_tool_in_time(
    tool: Tool, context: ToolContext, arguments: BaseModel, meta: Any
) -> BaseModel:
    """Run a tool of JSON-RPC or MCP within the `deadline` of its `_meta`, or its kind's."""
    seconds = WRITE_SECONDS if tool.writes else QUICK_SECONDS
    if tool.name == RECALL:
        seconds = Limits().seconds + GRACE_SECONDS
    asked = meta.get("deadline") if isinstance(meta, Mapping) else None
    if asked is not None:
        if not isinstance(asked, int | float) or isinstance(asked, bool) or not asked > 0:
            raise InvalidArgument("_meta.deadline", hint="Use a number of seconds above 0")
        seconds = min(asked, context.library.settings.max_seconds)
    outer = current_deadline()
    work = tool.run(context, arguments)
    if tool.name in _UNBOUNDED_TOOLS:
        return await work
    with deadline(seconds) as limit:  # the deadline of the whole message, if it is earlier
        return await (work if limit is outer else run_within(limit, work))


def dispatcher(context: ToolContext) -> Dispatch:
    """Return a function that calls tools by method name, within the rights of a context."""

    async def dispatch(method: str, params: Params) -> Any:
        tool = find_tool(method, Interface.RPC)
        if tool is None:
            raise RpcError(Code.METHOD_NOT_FOUND)
        try:
            meta = None
            if isinstance(params, dict):
                params = dict(params)
                meta = params.pop("_meta", None)
            arguments = parse_arguments(tool, params)
            return as_json(await run_tool_in_time(tool, context, arguments, meta))
        except MemrecallError as error:
            if isinstance(error, RunError):
                fields: dict[str, Any] = {"method": method}
                add_error_fields(fields, error)
                log.warning("a tool failed", extra={"fields": fields})
            raise to_rpc_error(error, trusted=context.is_trusted) from None

    return dispatch


def as_json(result: BaseModel) -> dict[str, Any]:
    """Return a tool's result as one JSON object."""
    return result.as_json() if isinstance(result, ToolOutput) else result.model_dump(mode="json")


def report_bug(error: Exception) -> str:
    """Log a bug and return the request id under which it is logged."""
    request_id = new_request_id()
    log_bug(error, request_id)
    return request_id


class LineBuffer:
    """Assembles lines from chunks; only the beginning of a line that is too long is stored."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk completes; an empty chunk is the end of the input."""
        *ends, rest = chunk.split(b"\n")
        for part in ends:
            self._append(part)
            yield self._take()
        self._append(rest)
        if not chunk and self._line:
            yield self._take()

    def _append(self, part: bytes) -> None:
        # One byte over the limit is enough to detect that the line is too long.
        self._line += part[: self._max_bytes + 1 - len(self._line)]

    def _take(self) -> bytes:
        line = bytes(self._line)
        self._line.clear()
        return line


class StdioStreams:
    """Lines from standard input, and replies to standard output.

    Everything else that the process writes to standard output goes to standard error. Threads that
    wait for the client do not keep the process alive.
    """

    def __init__(self, read_from: int = 0, write_to: int = 1) -> None:
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_READ_AHEAD)
        self._output = os.dup(write_to)
        os.dup2(2, write_to)
        self._writer = DaemonThreadPool(1, "memrecall-output")
        threading.Thread(
            target=_read,
            args=(read_from, asyncio.get_running_loop(), self._chunks),
            daemon=True,
        ).start()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the input that are not blank, without their ends."""
        buffer = LineBuffer(RpcLimits().bytes)
        while True:
            chunk = await self._chunks.get()
            for line in buffer.feed(chunk):
                if line.strip():
                    yield line.rstrip(b"\r")
            if not chunk:
                return

    async def write_line(self, data: bytes) -> None:
        """Write a line; raise BrokenPipeError if the client has closed its end."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._writer, _write, self._output, data + b"\n")

    def close(self) -> None:
        """Close the output, unless a write that the client does not read is under way."""
        self._writer.submit(os.close, self._output)
        self._writer.shutdown(wait=False)


async def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run some work until it ends; SIGINT and SIGTERM cancel it, which is not an error."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    stop = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        stopped.cancel()
        task.cancel()
        # What it raises on being cancelled, such as that its streams are closed, is not an error.
        outcomes = await asyncio.gather(task, return_exceptions=True)
    if not stop.is_set() and isinstance(outcomes[0], BaseException):
        raise outcomes[0]


class StdioServer:
    """Answers messages one after the other until the input ends or a signal arrives."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def run(self, read_from: int = 0, write_to: int = 1) -> None:
        """Serve. A signal cancels the running call; a transaction that has begun is finished."""
        streams = StdioStreams(read_from, write_to)
        try:
            with suppress(BrokenPipeError):  # the reader has closed the pipe
                await run_until_signal(self._serve(streams))
        finally:
            streams.close()

    async def _serve(self, streams: StdioStreams) -> None:
        async for line in streams.lines():
            reply = await answer(line, self._dispatch, report_bug)
            if reply is not None:
                await streams.write_line(reply)


def _read(source: int, loop: asyncio.AbstractEventLoop, chunks: "asyncio.Queue[bytes]") -> None:
    """Read in a thread, which works for a file, a pipe and a terminal alike."""
    while True:
        try:
            chunk = os.read(source, _CHUNK)
        except OSError:
            chunk = b""
        try:
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
        except RuntimeError:  # the loop is closed
            return
        if not chunk:
            return


def _write(output: int, data: bytes) -> None:
    while data:
        data = data[os.write(output, data) :]
