"""The OpenAPI document: what the routes say of themselves, errors and true examples included."""

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib import resources
from typing import Any

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from memrecall.server.http.message_models import ErrorBody
from memrecall.server.http.wire import MEDIA_TYPE, Json

USER = "u_12345"


@dataclass(frozen=True, slots=True)
class Example:
    """One request to an endpoint, and what it answered."""

    parameters: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    answer: Any = None


def load_examples() -> dict[str, Example]:
    """The examples by the name of their operation."""
    text = resources.files(__package__).joinpath("examples.json").read_text("utf-8")
    return {name: Example(**fields) for name, fields in json.loads(text).items()}


_ALWAYS = (401, 403, 500, 503)
_MEANING = {
    400: "INVALID_ARGUMENT: a value has the wrong form or range",
    401: "UNAUTHENTICATED: no key, or one that is unknown, revoked or expired",
    403: "PERMISSION_DENIED: the key, the user or the agent may not do this",
    404: "NOT_FOUND: no such user, message, memory or job, or not this key's",
    408: "UNAVAILABLE: the body came too slowly",
    409: "CONFLICT: a message_id is taken by another content, or nothing is left to undo",
    413: "INVALID_ARGUMENT: the body is too large",
    415: "INVALID_ARGUMENT: the body is not plain JSON by its headers",
    429: "RESOURCE_EXHAUSTED: too many recalls, turns or adds under way; see Retry-After",
    500: "INTERNAL: a bug; the log has more under the request's id",
    503: "UNAVAILABLE: database, embedder or model do not answer, or the server closes",
    507: "RESOURCE_EXHAUSTED: the database is full",
}
_ERROR = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
_FRAMEWORKS_OWN = ("HTTPValidationError", "ValidationError")


def documented(
    name: str, model: type[BaseModel] | None, *errors: int, also: str = ""
) -> dict[str, Any]:
    """What a route's decorator needs: its name, what it answers, and how it can fail.

    `also` names a media type of plain text beside the JSON of the model, or instead of it.
    """
    answer: dict[str, Any] = {"description": "Done."}
    if model is not None:
        answer["model"] = model
    if also:
        answer["content"] = {also: {"schema": {"type": "string"}}}
    answers: dict[int | str, Any] = {200: answer}
    for status in sorted({*errors, *_ALWAYS, *([408] if 413 in errors else [])}):
        # Without a model the framework would say that errors are plain text too.
        told = {"model": ErrorBody} if model is not None else {"content": _ERROR}
        answers[status] = {**told, "description": _MEANING[status]}
    return {
        "operation_id": name,
        "responses": answers,
        "response_model": None,
        "response_class": Json if model is not None else PlainTextResponse,
    }


def describe(app: FastAPI, base: dict[str, Any]) -> dict[str, Any]:
    """The framework's document, with keys, examples and nothing that is not so."""
    components = base.setdefault("components", {})
    for name in _FRAMEWORKS_OWN:
        components.get("schemas", {}).pop(name, None)
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    examples = load_examples()
    for item in base["paths"].values():
        for operation in item.values():
            operation["responses"].pop(str(HTTPStatus.UNPROCESSABLE_ENTITY.value), None)
            if "401" in operation["responses"]:
                operation["security"] = [{"key": []}]
            _add_example(operation, examples.get(operation["operationId"], Example()))
    base["info"]["description"] = app.description
    return base


def _add_example(operation: dict[str, Any], example: Example) -> None:
    if example.answer is not None:
        operation["responses"]["200"]["content"][MEDIA_TYPE]["example"] = example.answer
    if example.body is not None:
        operation["requestBody"]["content"][MEDIA_TYPE]["example"] = example.body
    for parameter in operation.get("parameters", []):
        if parameter["name"] in example.parameters:
            parameter["example"] = example.parameters[parameter["name"]]
