"""The OpenAPI document with errors and recorded examples, and the same as an HTML page."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus
from importlib import resources
from typing import Any, Literal

from fastapi import Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from memrecall.server.http.payloads import LINES_TYPE, MEDIA_TYPE, JsonResponse

_COMMON_ERRORS = (401, 403, 429, 500, 503)
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
    507: "RESOURCE_EXHAUSTED: the database is full",
}
_ERROR_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
_UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { border-bottom: 1px solid #ccc; margin-top: 2.5rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
pre { background: #f5f5f5; padding: .75rem; overflow-x: auto; max-height: 24rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .2rem 1rem .2rem 0;
vertical-align: top; } .method { color: #06c; }
"""
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


class Health(BaseModel):
    """The status of the service."""

    status: Literal["ok"]
    version: str


class ReadinessReport(BaseModel):
    """What the service needs, and that all of it is ready."""

    status: Literal["ready"]
    checks: dict[str, Literal["ok"]]


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: Literal[
        "INVALID_ARGUMENT",
        "UNAUTHENTICATED",
        "PERMISSION_DENIED",
        "NOT_FOUND",
        "CONFLICT",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
        "INTERNAL",
    ]
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
    operation_id: str, model: type[BaseModel] | None, *errors: int, also: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the arguments of a route's decorator: its id, response model and error statuses.

    `also` names text media types that the route returns in addition to JSON, or instead of it.
    """
    success: dict[str, Any] = {"description": "Done."}
    if model is not None:
        success["model"] = model
    if also:
        success["content"] = {media_type: {"schema": {"type": "string"}} for media_type in also}
    responses: dict[int | str, Any] = {200: success}
    for status in sorted({*errors, *_COMMON_ERRORS, *([408] if 413 in errors else [])}):
        # Without a model the framework would document errors as plain text too.
        body = {"model": ErrorBody} if model is not None else {"content": _ERROR_CONTENT}
        responses[status] = {**body, "description": _ERROR_DESCRIPTIONS[status]}
    return {
        "operation_id": operation_id,
        "responses": responses,
        "response_model": None,
        "response_class": JsonResponse if model is not None else PlainTextResponse,
    }


def complete_document(document: dict[str, Any], description: str) -> dict[str, Any]:
    """Return the framework's document with keys and examples, without its unused schemas."""
    components = document.setdefault("components", {})
    for name in _UNUSED_SCHEMAS:
        components.get("schemas", {}).pop(name, None)
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    examples = load_examples()
    for item in document["paths"].values():
        for operation in item.values():
            operation["responses"].pop(str(HTTPStatus.UNPROCESSABLE_ENTITY.value), None)
            if "401" in operation["responses"]:
                operation["security"] = [{"key": []}]
            _add_example(operation, examples.get(operation["operationId"], Example()))
    document["info"]["description"] = description
    return document


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
            media_type = LINES_TYPE if isinstance(value, list) else MEDIA_TYPE
            text = join_lines(value) if isinstance(value, list) else value
            part["content"][media_type]["example"] = text
    for parameter in operation.get("parameters", []):
        if parameter["name"] in example.parameters:
            parameter["example"] = example.parameters[parameter["name"]]


def docs_page(document: dict[str, Any]) -> Response:
    """Return the OpenAPI document as one HTML page that loads nothing else."""
    html = "\n".join(_render_page(document))
    return Response(html, media_type="text/html; charset=utf-8", headers=_PAGE_HEADERS)


def _render_page(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
    yield f"<style>{_STYLE}</style><h1>{title}</h1><p>{escape(info['description'])}</p>"
    yield "<p>Machine-readable: <a href='/openapi.json'>/openapi.json</a></p>"
    schemas = document["components"]["schemas"]
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield from _render_operation(path, method, operation, schemas)
    yield "<h2>Types</h2>"
    for name, schema in sorted(schemas.items()):
        yield from _render_schema(name, schema)
    yield "</html>"


def _render_operation(
    path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]
) -> Iterator[str]:
    title = f"<span class=method>{method.upper()}</span> <code>{escape(path)}</code>"
    yield f"<h2 id='{escape(operation['operationId'])}'>{title}</h2>"
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    rows = [
        (p["name"], p["in"], p["required"], p["schema"]) for p in operation.get("parameters", [])
    ]
    body = operation.get("requestBody", {}).get("content", {}).get(MEDIA_TYPE, {})
    if body:
        model = schemas[body["schema"]["$ref"].rpartition("/")[2]]
        required = model.get("required", [])
        rows += [
            (name, "body", name in required, schema) for name, schema in model["properties"].items()
        ]
    if rows:
        yield "<table><tr><th>name<th>in<th>type<th>"
        yield from (_render_field(*row) for row in rows)
        yield "</table>"
    yield from _render_example("Request", body.get("example"))
    response = operation["responses"]["200"].get("content", {}).get(MEDIA_TYPE, {})
    yield from _render_example("Response", response.get("example"))
    yield "<details><summary>Errors</summary><ul>"
    for status, error in operation["responses"].items():
        if status != "200":
            yield f"<li>{status} {escape(error['description'])}"
    yield "</ul></details>"


def _render_schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"<h3 id='{escape(name)}'>{escape(name)}</h3>"
    yield f"<p>{escape(schema.get('description', ''))}</p>"
    if "enum" in schema:
        yield f"<p>One of {escape(', '.join(map(str, schema['enum'])))}</p>"
    required = schema.get("required", [])
    yield "<table>"
    for name, inner in schema.get("properties", {}).items():
        yield _render_field(name, "", name in required, inner)
    yield "</table>"


def _render_field(name: str, location: str, is_required: bool, schema: dict[str, Any]) -> str:
    cells = (
        f"<code>{escape(name)}</code>{' (required)' if is_required else ''}",
        location,
        escape(_describe_type(schema)),
        escape(_description(schema)),
    )
    return "<tr>" + "".join(f"<td>{cell}" for cell in cells)


def _description(schema: dict[str, Any]) -> str:
    choices = [schema, *schema.get("anyOf", [])]
    return next((str(choice["description"]) for choice in choices if "description" in choice), "")


def _describe_type(schema: dict[str, Any]) -> str:
    """Return the type of a schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        choices = [_describe_type(choice) for choice in schema["anyOf"]]
        name = " or ".join(choice for choice in choices if choice != "null")
    elif schema.get("type") == "array":
        name = f"list of {_describe_type(schema.get('items', {}))}"
    else:
        name = str(schema.get("format") or schema.get("type", "any"))
    bounds = [schema[key] for key in ("minimum", "maximum") if key in schema]
    if len(bounds) == 2:
        name += f" {bounds[0]:g} to {bounds[1]:g}"
    default = schema.get("default")
    return f"{name}, default {json.dumps(default)}" if default is not None else name


def _render_example(title: str, value: Any) -> Iterator[str]:
    if value is not None:
        text = json.dumps(value, ensure_ascii=False, indent=2)
        yield f"<p>{title}</p><pre>{escape(text)}</pre>"
