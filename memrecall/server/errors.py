"""One kind of answer for everything that goes wrong: `{"error": {"code", "message", "details"}}`.

A caller's mistake is told in full. What the world did (disk, lock, embedder) is told by kind
alone: paths and addresses are for the log. What nobody foresaw is INTERNAL and the request's id.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from memrecall.errors import (
    CallerError,
    Conflict,
    Disabled,
    EmbedderFailed,
    MemrecallError,
    ModelFailed,
    NotFound,
    StorageBusy,
    StorageFull,
)
from memrecall.types import VALUE

STATUS = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}
RETRY = "1"  # seconds
_FAULTS_TOLD = 20
_PYDANTIC_PREFIX = "Value error, "
_LOST_PLUS = re.compile(r"\d \d\d:?\d\d$")  # an offset whose sign was read as a space
_ONE = re.compile(r"\b1 (item|character)s\b")
_SAID = {
    "missing": "is missing",
    "extra_forbidden": "is not known here; /docs lists what is",
    "string_pattern_mismatch": "is blank",  # the one pattern that a field here has
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items, and has {actual_length}",
    "too_long": "must have at most {max_length} items",
    "model_attributes_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "list_type": "must be a list",
    "string_type": "must be text",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as it is sent."""

    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def http_status(self) -> int:
        """The status it is sent with: its own, or that of its code."""
        return self.status or STATUS[self.code]

    def as_dict(self) -> dict[str, Any]:
        """The body."""
        return {
            "error": {"code": self.code, "message": self.message, "details": dict(self.details)}
        }


class Refused(Exception):
    """A request ends here, with this problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


# The same for everything that the caller may not know of: it cannot be told from what is not there.
NOTHING_THERE = Problem("NOT_FOUND", "there is no such user, message or memory")
SHUTTING_DOWN = Problem(
    "UNAVAILABLE", "the server is shutting down", headers={"Retry-After": RETRY}
)


def internal(request_id: str) -> Problem:
    """What is told of a failure that nobody foresaw."""
    return Problem("INTERNAL", "something went wrong inside", {"request_id": request_id})


def problem_of(error: MemrecallError) -> Problem:
    """What a caller is told of an error."""
    if isinstance(error, NotFound):
        return NOTHING_THERE
    if isinstance(error, Disabled | Conflict):  # their hints are for who runs the service
        return Problem(error.code, error.message, _plain(error.details))
    if isinstance(error, CallerError) and error.code in STATUS:
        return Problem(error.code, str(error), _plain(error.details))
    again = {"Retry-After": RETRY}
    if isinstance(error, StorageFull):
        return Problem("RESOURCE_EXHAUSTED", "the database is full", status=507)
    if isinstance(error, StorageBusy):
        return Problem("UNAVAILABLE", "the database is busy; try again", headers=again)
    if isinstance(error, EmbedderFailed):
        return Problem("UNAVAILABLE", "the embedder does not answer; try again", headers=again)
    if isinstance(error, ModelFailed):
        return Problem("UNAVAILABLE", "the model does not answer; try again", headers=again)
    return Problem("UNAVAILABLE", "the service cannot do this now; try again", headers=again)


def problem_of_validation(error: RequestValidationError) -> Problem:
    """The framework's validation errors, each beside the name of its field."""
    faults = [_fault(item) for item in error.errors()]
    first = faults[0]
    message = f"{first['field']}: {first['message']}"
    return Problem("INVALID_ARGUMENT", message, {"fields": faults[:_FAULTS_TOLD]})


def problem_of_http(error: HTTPException, methods: str) -> Problem:
    """The framework's own refusals: no such route, another method than the path's."""
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Problem("NOT_FOUND", "there is no such endpoint; /docs lists them")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"Allow": methods}
        return Problem(
            "INVALID_ARGUMENT", f"this endpoint takes {methods}", status=405, headers=headers
        )
    return Problem("INVALID_ARGUMENT", str(error.detail), status=error.status_code)


def _fault(item: Mapping[str, Any]) -> dict[str, str]:
    if item["type"] == "json_invalid":
        return {"field": "body", "message": f"not JSON: {item['ctx']['error']}"}
    where: Sequence[Any] = item["loc"]
    name = ".".join(map(str, where[1:])) or str(where[0])
    return {"field": name, "message": _say(item)}


def _say(item: Mapping[str, Any]) -> str:
    """What is wrong with a value, as people say it; the framework's words for the rest."""
    kind, context = item["type"], item.get("ctx", {})
    if kind in _SAID:
        return _ONE.sub(r"1 \1", _SAID[kind].format(**context))
    said = str(item["msg"]).removeprefix(_PYDANTIC_PREFIX).removeprefix(VALUE).strip()
    given = item.get("input")
    if item["loc"][0] == "query" and isinstance(given, str) and _LOST_PLUS.search(given):
        said += "; a + in a query is written %2B"
    return said


def _plain(details: Mapping[str, Any]) -> dict[str, Any]:
    """Details as JSON takes them: names are strings."""
    return {
        name: {str(key): item for key, item in value.items()} if isinstance(value, dict) else value
        for name, value in details.items()
    }
