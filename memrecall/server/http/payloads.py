"""Request and response payloads: strict parsing and fast serialization of JSON."""

import json
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic_core import from_json, to_json

from memrecall.server.errors import Problem, RequestError, invalid_field
from memrecall.server.rpc.codec import MAX_DEPTH, is_deeper
from memrecall.types import Message
from memrecall.workers import run_beside

MEDIA_TYPE = "application/json"
_NO_BODY = (b"", b"{}", b"null")  # what clients send that always send JSON
_LARGE_BODY = 200_000  # bytes, which take 2 ms to parse
LINES_TYPE = "application/x-ndjson"  # one JSON object per line


class JsonResponse(JSONResponse):
    """A JSON response; times are RFC 3339 in UTC."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return to_json(content)


def page_response(messages: Sequence[Message], fields: Collection[str], **extra: Any) -> Response:
    """Return a response with these fields of the messages as `items`, beside `extra` values."""
    # Serialized straight from the models: dicts in between would take twice the time.
    include: Any = {"items": {"__all__": set(fields)}, **dict.fromkeys(extra, True)}
    body = to_json({"items": messages, **extra}, include=include)
    return Response(body, media_type=MEDIA_TYPE)


def problem_response(problem: Problem) -> JsonResponse:
    """Return the response that reports a problem."""
    return JsonResponse(problem.as_dict(), problem.http_status, dict(problem.headers))


def parse_json(body: bytes) -> Any:
    """Parse JSON, refusing repeated keys, NaN, infinite numbers and more than 64 levels."""
    try:
        value = from_json(body, allow_inf_nan=False, cache_strings=False)
    except ValueError as error:
        raise json.JSONDecodeError(str(error), "", 0) from None
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise json.JSONDecodeError(f"nested deeper than {MAX_DEPTH} levels", "", 0)
    if has_repeated_keys(body, value):
        raise json.JSONDecodeError("an object has the same key twice", "", 0)
    return value


def has_repeated_keys(body: bytes, value: Any) -> bool:
    """Return True if the parser dropped a member of an object: it keeps the last of each key.

    Written again, a value has as many quotes as its source, unless a member is missing. Counting
    them takes a tenth of the time of a parser that reports repeated keys.
    """
    quotes = body.count(b'"')
    if rb"\u0022" in body:  # a quote too, unless its backslash is escaped
        quotes += body.replace(rb"\\", b"").count(rb"\u0022")
    return to_json(value).count(b'"') != quotes


class StrictRequest(Request):
    """A request that parses JSON with `parse_json`, because Python's own parser has no bounds."""

    async def json(self) -> Any:
        """Return the parsed body."""
        body = await self.body()
        return await run_beside(len(body) > _LARGE_BODY, parse_json, body)


class StrictRoute(APIRoute):
    """A route that refuses unknown or repeated parameters, loose JSON and needless bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the framework's handler with the strict checks in front of it."""
        handle = super().get_route_handler()
        known = [name for field in self.dependant.query_params for name in _names(field)]
        reads_body = self.body_field is not None or self.dependant.request_param_name is not None

        async def handle_strictly(request: Request) -> Response:
            _check_parameters(request.query_params.multi_items(), known)
            if request.method in ("POST", "DELETE") and not reads_body:
                await _refuse_body(request)
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


async def _refuse_body(request: Request) -> None:
    """Refuse options in a body that nobody reads.

    With filters in it a DELETE would delete more than intended, with `sources` a purge less.
    """
    if await request.body() not in _NO_BODY:
        message = "this endpoint takes no body: pass its options as query parameters"
        raise RequestError(Problem("INVALID_ARGUMENT", message))


def _names(field: Any) -> Collection[str]:
    """Return the query parameters of a model of parameters, or of a single parameter."""
    models = getattr(field.field_info.annotation, "model_fields", None)
    return [field.alias] if models is None else list(models)


def _check_parameters(parameters: Sequence[tuple[str, str]], known: Collection[str]) -> None:
    seen: set[str] = set()
    for name, _ in parameters:
        if name not in known:
            choice = f"known are {', '.join(known)}" if known else "this endpoint has none"
            raise invalid_field(name[:80], f"is not a known parameter; {choice}")
        if name in seen:
            raise invalid_field(name[:80], "is given more than once")
        seen.add(name)
