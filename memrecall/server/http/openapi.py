"""The OpenAPI document with errors and recorded examples, and a page that lists the endpoints."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from pydantic import BaseModel, Field

from memrecall.scope import SpaceRole
from memrecall.server.errors import STATUS
from memrecall.server.http.responses import MEDIA_TYPE, JsonResponse, JsonRoute
from memrecall.store import WriteProblem

_BODY_ERRORS = (408, 413, 415)
_ERROR_DESCRIPTIONS = {
    400: "INVALID_ARGUMENT: a value has the wrong form or range",
    401: "UNAUTHENTICATED: the key is missing, unknown, revoked or expired",
    403: "PERMISSION_DENIED: the key, the user or the agent may not do this",
    404: "NOT_FOUND: there is no such user, message, memory or job, or the key has no access to it",
    408: "UNAVAILABLE: the body arrived too slowly",
    409: "CONFLICT: the message_id is in use with other content, or there is nothing to undo",
    413: "INVALID_ARGUMENT: the body is too large",
    415: "INVALID_ARGUMENT: the body is not plain JSON, according to the headers",
    429: "RESOURCE_EXHAUSTED: too many requests, or running recalls or turns; see Retry-After",
    500: "INTERNAL: a bug; the log has details under the request id",
    503: "UNAVAILABLE: the database, embedder or model does not answer, or the server is closing",
    504: "DEADLINE_EXCEEDED: it took too long; `details.outcome` is `stopped` or `continues`",
    507: "RESOURCE_EXHAUSTED: the database is full",
}
_ERROR_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
_UNUSED_SCHEMAS = ("ConversationMessage", "HTTPValidationError", "ValidationError")
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


READER, CONTRIBUTOR, ADMIN = SpaceRole
ROLE_OF_OPERATION: dict[str, SpaceRole] = {}  # the least role that it needs in a space
Handler = TypeVar("Handler", bound=Callable[..., Any])


class Health(BaseModel):
    """The status of the service."""

    status: Literal["ok"]
    version: str


class ReadinessReport(BaseModel):
    """What responds: all that the service needs; `reason` says why writes fail."""

    status: Literal["ready", "read-only"]
    reason: WriteProblem | None = None
    checks: dict[str, Literal["ok", "failed"]]


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: Annotated[str, Field(json_schema_extra={"enum": list(STATUS)})]
    message: str
    details: dict[str, Any]


class ErrorBody(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


@dataclass(frozen=True, slots=True)
class Example:
    """A recorded request to an endpoint and its response; a list is one of JSON lines."""

    parameters: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    answer: Any = None


def load_examples() -> dict[str, Example]:
    """Return the recorded examples by operation id."""
    text = resources.files(__package__).joinpath("examples.json").read_text("utf-8")
    return {name: Example(**fields) for name, fields in json.loads(text).items()}


def route_options(
    operation_id: str, model: type | UnionType | None, *, also: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the arguments of a route's decorator: its id, response model and error statuses.

    `also` names text media types that the route returns in addition to JSON, or instead of it.
    """
    success: dict[str, Any] = {"description": "Done."}
    if model is not None:
        success["model"] = model
    if also:
        success["content"] = {media_type: {"schema": {"type": "string"}} for media_type in also}
    # Without a model the framework would document errors as plain text too.
    body = {"model": ErrorBody} if model is not None else {"content": _ERROR_CONTENT}
    errors = {status: {**body, "description": text} for status, text in _ERROR_DESCRIPTIONS.items()}
    return {
        "operation_id": operation_id,
        "responses": {200: success, **errors},
        "response_model": None,
        "response_class": JsonResponse if model is not None else PlainTextResponse,
    }


class OperationRouter(APIRouter):
    """A family of operations: each is declared once, with its result and the role that it needs."""

    def __init__(self, tag: str, prefix: str = "/v1") -> None:
        super().__init__(prefix=prefix, tags=[tag], route_class=JsonRoute)

    def operation(
        self,
        method: str,
        path: str,
        result: type | UnionType | None,
        role: SpaceRole | None = None,
        *,
        also: Sequence[str] = (),
        operation_id: str = "",
        **options: Any,
    ) -> Callable[[Handler], Handler]:
        """Declare an operation, by default under the name of its handler.

        `role` is the least role that it needs in a space: without one, it cannot be called there.
        """

        def declare(handler: Handler) -> Handler:
            name = operation_id or handler.__name__
            if role is not None:
                ROLE_OF_OPERATION[name] = role
            options_of_route = {**route_options(name, result, also=also), **options}
            self.add_api_route(path, handler, methods=[method], **options_of_route)
            return handler

        return declare


def complete_document(document: dict[str, Any], description: str) -> dict[str, Any]:
    """Return the framework's document with keys and examples, without its unused schemas."""
    components = document.setdefault("components", {})
    for name in _UNUSED_SCHEMAS:
        components.get("schemas", {}).pop(name, None)
    _simplify((components, document["paths"]))
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    examples = load_examples()
    for item in document["paths"].values():
        for operation in item.values():
            unused = _BODY_ERRORS if "requestBody" not in operation else ()
            for status in (422, *unused):
                operation["responses"].pop(str(status), None)
            if "401" in operation["responses"]:
                operation["security"] = [{"key": []}]
            _add_example(operation, examples.get(operation["operationId"], Example()))
    document["info"]["description"] = description
    return document


def _simplify(schema: Any) -> None:
    """Remove titles that only repeat a name, and values that an enum's aliases repeat."""
    if isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        if "enum" in schema:
            schema["enum"] = list(dict.fromkeys(schema["enum"]))
        schema = tuple(schema.values())
    for part in schema if isinstance(schema, list | tuple) else ():
        _simplify(part)


def join_lines(values: Sequence[Any]) -> str:
    """Return values as JSON, one per line."""
    return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in values)


def _add_example(operation: dict[str, Any], example: Example) -> None:
    parts = (
        (operation["responses"]["200"], example.answer),
        (operation.get("requestBody"), example.body),
    )
    for part, value in parts:
        if value is not None and part is not None:
            text = join_lines(value) if isinstance(value, list) else value
            for media_type in part["content"] if isinstance(value, list) else (MEDIA_TYPE,):
                part["content"][media_type]["example"] = text
    for parameter in operation.get("parameters", []):
        if parameter["name"] in example.parameters:
            parameter["example"] = example.parameters[parameter["name"]]


def docs_page(document: dict[str, Any]) -> Response:
    """Return an HTML page that lists the endpoints and loads nothing else."""
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    rows = [
        f"<dt><code>{method.upper()} {escape(path)}</code><dd>{escape(operation['description'])}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    html = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><h1>{title}</h1>"
        f"<p>{escape(info['description'])}<p>Parameters, bodies, responses and examples are in"
        f" <a href='/openapi.json'>/openapi.json</a>.<dl>{''.join(rows)}</dl></html>"
    )
    return HTMLResponse(html, headers=_PAGE_HEADERS)
