"""How long a request may take: what its header asks for, or the default of its kind."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from memrecall.agent.tools import RECALL
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.definition import Tool
from memrecall.budget import Limits
from memrecall.errors import InvalidArgument
from memrecall.server.errors import invalid_field
from memrecall.timing.deadlines import RequestDeadline, current_deadline, deadline, run_within

DEADLINE_HEADER = "X-Memrecall-Deadline"  # seconds
QUICK_SECONDS, WRITE_SECONDS = 5.0, 10.0
GRACE_SECONDS = 5.0  # for what a recall or a turn does after its own budget
# Work that grows with the data of a user: only each of its waits is bounded.
_UNBOUNDED = re.compile(
    r"POST /v1/users/[^/]+/import|GET /v1/users/[^/]+/export"
    r"|DELETE /v1/(?:users|spaces)/[^/]+|POST /v1/sweep"
    r"|POST /v1/(?:memories/extract|extractions/[^/]+/undo)"
)
_READ = re.compile(r"GET .+|POST /v1/(?:messages/\w+_search|memories/search)")
_MODEL = re.compile(r"POST /v1/(?:memories|graph/extract|sessions/[^/]+/end)")
_UNBOUNDED_TOOLS = frozenset({"memory_backup", "memory_restore", "memory_dump", "memory_cleanup"})
_SECONDS = re.compile(rb"[0-9]{1,4}(\.[0-9]{1,3})?")


class RequestSeconds:
    """The deadlines of requests: at most `most`, and longer where a model is asked."""

    def __init__(self, most: float, model_seconds: float = 0.0) -> None:
        self._most = most
        self._model_seconds = model_seconds

    def deadline_of(self, method: str, path: str, header: bytes | None) -> RequestDeadline | None:
        """Return the deadline of a request, if its kind has one; raise RequestError.

        A recall, a chat turn and a hook replace the default by their budgets, and each call in a
        message of JSON-RPC or MCP has its own.
        """
        call = f"{method} {path}"
        asked = None if header is None else min(_parse_seconds(header), self._most)
        if _UNBOUNDED.fullmatch(call):
            return None
        if asked is not None:
            return RequestDeadline(asked)
        if not path.startswith("/v1/"):
            return None
        seconds = QUICK_SECONDS if _READ.fullmatch(call) else WRITE_SECONDS
        model_seconds = self._model_seconds if _MODEL.fullmatch(call) else 0.0
        return RequestDeadline(seconds + model_seconds, is_default=True)


def _parse_seconds(header: bytes) -> float:
    if not _SECONDS.fullmatch(header) or not float(header):
        raise invalid_field(DEADLINE_HEADER, "must be a number of seconds above 0, such as 2.5")
    return float(header)


async def run_tool_in_time(
    tool: Tool, context: ToolContext, arguments: BaseModel, meta: Any
) -> BaseModel:
    """Run a tool of JSON-RPC or MCP within the `deadline` of its `_meta`, or that of its kind."""
    seconds = WRITE_SECONDS if tool.writes else QUICK_SECONDS
    if tool.name == RECALL:
        seconds = Limits().seconds + GRACE_SECONDS
    asked = meta.get("deadline") if isinstance(meta, Mapping) else None
    if asked is not None:
        if not isinstance(asked, int | float) or isinstance(asked, bool) or not asked > 0:
            raise InvalidArgument("_meta.deadline", hint="Use a number of seconds above 0")
        seconds = min(asked, context.library.settings.max_seconds)
    work, outer = tool.run(context, arguments), current_deadline()
    if tool.name in _UNBOUNDED_TOOLS:
        return await work
    with deadline(seconds) as limit:  # that of the whole message, if it is earlier
        return await (work if limit is outer else run_within(limit, work))
