"""Routes with strict parsing and fast serialization of JSON."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic_core import to_json

from memrecall.json_objects import parse_json
from memrecall.server.errors import Problem, RequestError, invalid_field
from memrecall.types import Message
from memrecall.workers import in_process, in_thread

MEDIA_TYPE = "application/json"
_NO_BODY = (b"", b"{}", b"null")  # what clients send that always send JSON
_LARGE_BODY = 200_000  # bytes, which take 2 ms to parse
_LARGEST_IN_THREAD = 1024 * 1024
LINES_TYPE = "application/x-ndjson"  # one JSON object per line


class JsonResponse(JSONResponse):
    """A JSON response; times are RFC 3339 in UTC."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return to_json(content)


async def items_response(items: Iterable[bytes], **extra: Any) -> Response:
    """Return a response with `items`, which are JSON, and `extra` values.

    A page has megabytes: other requests are served between its parts.
    """
    parts: list[bytes] = []
    size = 0
    for item in items:
        parts.append(item)
        size += len(item)
        if size > _LARGE_BODY:
            await asyncio.sleep(0)
            size = 0
    end = b"," + to_json(extra)[1:] if extra else b"}"
    return Response(b'{"items":[' + b",".join(parts) + b"]" + end, media_type=MEDIA_TYPE)


async def page_response(
    messages: Iterable[Message], fields: Collection[str], **extra: Any
) -> Response:
    """Return a response with these fields of the messages as `items`, and `extra` values."""
    # Serialized straight from the models: dicts in between would take twice the time.
    include = set(fields)
    return await items_response((to_json(item, include=include) for item in messages), **extra)


def problem_response(problem: Problem) -> JsonResponse:
    """Return the response that reports a problem."""
    return JsonResponse(problem.as_dict(), problem.http_status, dict(problem.headers))


class StrictRequest(Request):
    """A request that parses JSON with `parse_json`, because Python's own parser has no bounds."""

    _json: Any  # where the framework keeps the parsed body

    async def json(self) -> Any:
        """Return the parsed body."""
        if not hasattr(self, "_json"):
            body = await self.body()
            if len(body) > _LARGEST_IN_THREAD:  # A parser holds up all threads.
                self._json = await in_process(len(body), parse_json, body)
            elif len(body) > _LARGE_BODY:
                self._json = await in_thread(parse_json, body)
            else:
                self._json = parse_json(body)
        return self._json


class JsonRoute(APIRoute):
    """A route that parses JSON strictly, and refuses parameters and a body that nobody reads."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the framework's handler behind these checks."""
        handle = super().get_route_handler()
        has_parameters = bool(self.dependant.query_params)
        reads_body = self.body_field is not None or self.dependant.request_param_name is not None

        async def respond(request: Request) -> Response:
            _check_names(request, has_parameters=has_parameters)
            if request.method in ("POST", "DELETE") and not reads_body:
                await _refuse_body(request)
            return await handle(StrictRequest(request.scope, request.receive))

        return respond


def _check_names(request: Request, *, has_parameters: bool) -> None:
    """Refuse repeated parameters, and any at all if the endpoint has none."""
    if not request.scope["query_string"]:
        return
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if not has_parameters:
            raise invalid_field(name[:80], "is not a known parameter; this endpoint has none")
        if names.count(name) > 1:
            raise invalid_field(name[:80], "is given more than once")


async def _refuse_body(request: Request) -> None:
    """Refuse options in a body that nobody reads.

    With filters in it a DELETE would delete more than intended, with `sources` a purge less.
    """
    if await request.body() not in _NO_BODY:
        message = "this endpoint takes no body: pass its options as query parameters"
        raise RequestError(Problem("INVALID_ARGUMENT", message))
