"""JSON in and out, fast and strict: one parser, one writer."""

import json
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic_core import from_json, to_json

from memrecall.server.errors import Problem, Refused
from memrecall.types import Message

MEDIA_TYPE = "application/json"
DEEPEST = 64


class Json(JSONResponse):
    """A value as JSON; times are RFC 3339 in UTC."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        """The body's bytes."""
        return to_json(content)


def page_response(messages: Sequence[Message], fields: Collection[str], **beside: Any) -> Response:
    """Messages as `items`, by those fields, with what else is to be said beside them."""
    # Written straight from the models: dicts in between would take twice the time.
    include: Any = {"items": {"__all__": set(fields)}, **dict.fromkeys(beside, True)}
    body = to_json({"items": messages, **beside}, include=include)
    return Response(body, media_type=MEDIA_TYPE)


def problem_response(problem: Problem) -> Json:
    """The answer that tells a problem."""
    return Json(problem.as_dict(), problem.http_status, dict(problem.headers))


def parse_json(body: bytes) -> Any:
    """A body as JSON: no NaN, no number without end, at most 64 levels deep."""
    try:
        value = from_json(body, allow_inf_nan=False, cache_strings=False)
    except ValueError as error:
        raise json.JSONDecodeError(str(error), "", 0) from None
    if body.count(b"[") + body.count(b"{") > DEEPEST and _is_deeper(value, DEEPEST):
        raise json.JSONDecodeError(f"nested deeper than {DEEPEST} levels", "", 0)
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether containers lie in containers more than so many levels deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        insides = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [inner for inside in insides for inner in inside if isinstance(inner, dict | list)]
        if not level:
            return False
    return bool(level)


class StrictRequest(Request):
    """Reads JSON with a parser that has bounds, where Python's has none."""

    async def json(self) -> Any:
        """The body, parsed."""
        return parse_json(await self.body())


class StrictRoute(APIRoute):
    """A route whose requests read JSON strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's handler, given our kind of request."""
        handle = super().get_route_handler()
        known = [name for field in self.dependant.query_params for name in _names(field)]

        async def strictly(request: Request) -> Response:
            _check_parameters(request.query_params.multi_items(), known)
            if request.method == "DELETE" and await request.body():
                # Whoever puts filters there would lose what they were to spare.
                why = "a DELETE has no body here: filters are said in the query"
                raise Refused(Problem("INVALID_ARGUMENT", why))
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly


def _names(field: Any) -> Collection[str]:
    """The query parameters of a model of them, or of a single one."""
    models = getattr(field.field_info.annotation, "model_fields", None)
    return [field.alias] if models is None else list(models)


def _check_parameters(given: Sequence[tuple[str, str]], known: Collection[str]) -> None:
    """Refuse a query parameter that nobody reads, or that says two things."""
    seen: set[str] = set()
    for name, _ in given:
        if name not in known:
            choice = f"known are {', '.join(known)}" if known else "this endpoint has none"
            raise _bad_parameter(name, f"is not a known parameter; {choice}")
        if name in seen:
            raise _bad_parameter(name, "is given more than once")
        seen.add(name)


def _bad_parameter(name: str, why: str) -> Refused:
    shown = name[:80]
    fault = {"field": shown, "message": why}
    return Refused(Problem("INVALID_ARGUMENT", f"{shown}: {why}", {"fields": [fault]}))
