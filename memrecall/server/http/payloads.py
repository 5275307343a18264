"""Routes with strict parsing and fast serialization of JSON."""

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import cached_property
from typing import Any, cast
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic_core import PydanticUndefined, to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from memrecall.json_objects import parse_json
from memrecall.model.processes import run_aside
from memrecall.server.errors import Problem, RequestError, invalid_field, problem_from_validation
from memrecall.types import Message
from memrecall.workers import run_beside

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
    """Return a response with `items`, which are JSON, beside `extra` values.

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
    """Return a response with these fields of the messages as `items`, beside `extra` values."""
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
                self._json = await run_aside(parse_json, body, is_large=True)
            else:
                self._json = await run_beside(len(body) > _LARGE_BODY, parse_json, body)
        return self._json

    async def read_body(self, field: Any) -> Any:
        """Return the parsed body to validate; a large one is validated here, in a thread."""
        body = await self.body()
        if not body:
            return PydanticUndefined
        try:
            value = await self.json()
        except json.JSONDecodeError as error:
            problem = {"type": "json_invalid", "loc": ("body",), "ctx": {"error": error.msg}}
            raise RequestValidationError([problem]) from error
        if len(body) <= _LARGE_BODY:
            return value
        value, errors = await asyncio.to_thread(field.validate, value, {}, loc=("body",))
        if errors:
            raise RequestValidationError(errors)
        return value


class StrictRoute(APIRoute):
    """A route that refuses unknown or repeated parameters, loose JSON and needless bodies.

    Its parameters are those of the path, a model of those of the query, a body, the request and
    what is made of it. The framework describes them. It does not call the endpoint, because what it
    does for other kinds of parameters takes longer than a short request.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests that come through the framework."""
        return lambda request: self.respond(StrictRequest(request.scope, request.receive))

    async def respond(self, request: "StrictRequest") -> Response:
        """Return the endpoint's response; RequestValidationError if a parameter is invalid."""
        parameters = self._read_query(request.scope["query_string"])
        if request.method in ("POST", "DELETE") and not self._reads_body:
            await _refuse_body(request)
        response: Response = await self.endpoint(**await self._read_arguments(request, parameters))
        return response

    @cached_property
    def _known_parameters(self) -> list[str]:
        models = [field.field_info.annotation for field in self.dependant.query_params]
        return [name for model in models for name in cast(Any, model).model_fields]

    @cached_property
    def _reads_body(self) -> bool:
        return self.body_field is not None or self.dependant.request_param_name is not None

    def _read_query(self, query: bytes) -> dict[str, str]:
        """Return the parameters of a query; raise RequestError if one is unknown or repeated."""
        parameters: dict[str, str] = {}
        known = self._known_parameters
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True) if query else ()
        for name, value in pairs:
            if name not in known:
                choice = f"known are {', '.join(known)}" if known else "this endpoint has none"
                raise invalid_field(name[:80], f"is not a known parameter; {choice}")
            if name in parameters:
                raise invalid_field(name[:80], "is given more than once")
            parameters[name] = value
        return parameters

    async def _read_arguments(
        self, request: "StrictRequest", parameters: dict[str, str]
    ) -> dict[str, Any]:
        dependant = self.dependant
        values: dict[str, Any] = {
            str(item.name): await cast(Any, item.call)(request) for item in dependant.dependencies
        }
        if dependant.request_param_name is not None:
            values[dependant.request_param_name] = request
        inputs: list[tuple[Any, Any, tuple[str, ...]]] = [
            *(
                (item, request.path_params[item.name], ("path", item.name))
                for item in dependant.path_params
            ),
            *((item, parameters, ("query",)) for item in dependant.query_params),
        ]
        if self.body_field is not None:
            body = await request.read_body(self.body_field)
            inputs += [(item, body, ("body",)) for item in dependant.body_params]
        errors: list[Any] = []
        for item, value, place in inputs:
            values[item.name], faults = _validate(item, value, place)
            errors += faults
        if errors:
            raise RequestValidationError(errors)
        return values


def _validate(field: Any, value: Any, place: tuple[str, ...]) -> tuple[Any, list[Any]]:
    """Return the value of a parameter and what is wrong with it."""
    if value is not PydanticUndefined:
        return cast(tuple[Any, list[Any]], field.validate(value, {}, loc=place))
    if field.field_info.is_required():
        return None, [{"type": "missing", "loc": place, "msg": "Field required", "input": None}]
    return field.get_default(), []


class DirectRoutes:
    """Calls the strict routes without the framework's layers, which take longer than the routes.

    The framework serves the other routes, and requests that match none.
    """

    def __init__(self, framework: ASGIApp, routers: Iterable[APIRouter]) -> None:
        self._framework = framework
        self._routes: dict[str, list[APIRoute]] = {}
        for router in routers:
            for route in router.routes:
                if isinstance(route, APIRoute):
                    for method in route.methods or ():
                        self._routes.setdefault(method, []).append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        route = self._match(scope) if scope["type"] == "http" else None
        if not isinstance(route, StrictRoute):
            await self._framework(scope, receive, send)
            return
        try:
            response = await route.respond(StrictRequest(scope, receive))
        except RequestValidationError as error:
            response = problem_response(problem_from_validation(error))
        await response(scope, receive, send)

    def _match(self, scope: Scope) -> APIRoute | None:
        """Return the first route that matches a request, and note it with its parameters."""
        for route in self._routes.get(scope["method"], ()):
            if (match := route.path_regex.match(scope["path"])) is not None:
                scope.update(route=route, path_params=match.groupdict())
                return route
        return None


async def _refuse_body(request: Request) -> None:
    """Refuse options in a body that nobody reads.

    With filters in it a DELETE would delete more than intended, with `sources` a purge less.
    """
    if await request.body() not in _NO_BODY:
        message = "this endpoint takes no body: pass its options as query parameters"
        raise RequestError(Problem("INVALID_ARGUMENT", message))
