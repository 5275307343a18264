"""Errors as clients see them: `{"error": {"code", "message", "details"}}`.

A caller's mistake is explained in full. A failure of the environment (disk, lock, embedder, model)
is reported by its kind alone, because paths and addresses belong in the log. Anything else is a bug
and is reported as INTERNAL with the id of the request.
"""

import logging
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from memrecall.errors import (
    CallerError,
    Conflict,
    DeadlineExceeded,
    Disabled,
    EmbedderFailed,
    MemrecallError,
    ModelFailed,
    ModelFailure,
    NotFound,
    RunError,
    StorageBusy,
    StorageFull,
    explain_validation_problem,
)
from memrecall.logs import describe_exception
from memrecall.timing import current_request

if TYPE_CHECKING:  # JSON-RPC over stdio uses this module without a web framework
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

log = logging.getLogger("memrecall.server")

STATUS = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
RETRY_AFTER = {"Retry-After": "1"}  # seconds
_MAX_FIELDS = 20
_LOST_PLUS = re.compile(r"\d \d\d:?\d\d$")  # a UTC offset whose sign was decoded as a space
_FAILURES: tuple[tuple[type[MemrecallError], str], ...] = (
    (StorageFull, "the database is full"),
    (StorageBusy, "the database is busy; try again"),
    (EmbedderFailed, "the embedder does not answer; try again"),
    (ModelFailed, "the model does not answer; try again"),
    (MemrecallError, "the service cannot do this now; try again"),
)


# Trying again does not help: the caller must send less, or the operator must change something.
_MODEL_FAILURES: dict[ModelFailure, str] = {
    "overflow": "the text is longer than the model reads; send less, or begin a new session",
    "malformed": "the server of the model does not answer as its API must, for instance with a web"
    " page; tell the operator of this service",
    "refused": "the server of the model answers with an error; tell the operator of this service,"
    " whose log has its words",
    "no_tools": "the model calls no tools; tell the operator of this service",
    "authentication": "the server of the model refuses the key of this service; tell its operator",
    "quota": "the account of this service with the model has no quota left; tell its operator",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error response: code, message, details, HTTP status and headers."""

    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def http_status(self) -> int:
        """The explicit status, or else the default status of the code."""
        return self.status or STATUS[self.code]

    def as_dict(self) -> dict[str, Any]:
        """Return the response body."""
        return {
            "error": {"code": self.code, "message": self.message, "details": dict(self.details)}
        }


class RequestError(Exception):
    """A request that fails with a `Problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


# One answer for everything that is missing or belongs to others: callers cannot tell them apart.
RESOURCE_NOT_FOUND = Problem("NOT_FOUND", "there is no such user, space, message or memory")
_PARTLY_STORED = Problem(
    "UNAVAILABLE",
    "the database is full, and a part of the request was stored: repeat it with the same ids",
    {"reason": "disk_full", "outcome": "partly"},
)
LOADING = Problem("UNAVAILABLE", "not ready: loading", {"reason": "loading"}, headers=RETRY_AFTER)
SHUTTING_DOWN = Problem("UNAVAILABLE", "the server is shutting down", headers=RETRY_AFTER)


def invalid_field(name: str, reason: str) -> RequestError:
    """Return the error for one invalid field of a request."""
    fields = [{"field": name, "message": reason}]
    return RequestError(Problem("INVALID_ARGUMENT", f"{name}: {reason}", {"fields": fields}))


def describe_failure(error: MemrecallError) -> str:
    """Return a message about a failed run that reveals no path, address or content."""
    if isinstance(error, ModelFailed) and error.kind in _MODEL_FAILURES:
        return _MODEL_FAILURES[error.kind]
    if isinstance(error, DeadlineExceeded):
        return str(error)
    return next(message for kind, message in _FAILURES if isinstance(error, kind))


def wrong_method(methods: str, target: str = "endpoint") -> Problem:
    """Return the problem of a request with a method that its target does not take."""
    message = f"this {target} only accepts {methods}"
    return Problem("INVALID_ARGUMENT", message, status=405, headers={"Allow": methods})


def problem_from_error(error: MemrecallError | RequestError) -> Problem:
    """Return the problem that reports a refused request or an error of the library."""
    if isinstance(error, RequestError):
        return error.problem
    if isinstance(error, NotFound):
        return RESOURCE_NOT_FOUND
    if isinstance(error, Disabled | Conflict):  # their hints address the operator, not the caller
        return Problem(error.code, error.message, error.details)
    if isinstance(error, DeadlineExceeded):
        return Problem(error.code, str(error), error.details)
    if isinstance(error, CallerError) and error.code in STATUS:
        return Problem(error.code, str(error), error.details)
    message = describe_failure(error)
    if isinstance(error, StorageFull):
        return Problem("RESOURCE_EXHAUSTED", message, status=507)
    if isinstance(error, ModelFailed) and error.kind in _MODEL_FAILURES:
        return Problem("UNAVAILABLE", message, {"reason": f"model_{error.kind}"})
    return Problem("UNAVAILABLE", message, headers=RETRY_AFTER)


def problem_from_validation(error: "RequestValidationError", known: Sequence[str] = ()) -> Problem:
    """Return the problem that reports a request that does not fit a model with `known` fields."""
    # An unknown field may be why another one is missing.
    items = sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    fields = [_describe_field(item, known) for item in items]
    message = f"{fields[0]['field']}: {fields[0]['message']}"
    return Problem("INVALID_ARGUMENT", message, {"fields": fields[:_MAX_FIELDS]})


def problem_from_http(error: "HTTPException", methods: str) -> Problem:
    """Return the problem that reports an unknown route or a wrong method."""
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Problem("NOT_FOUND", "there is no such endpoint; /docs lists them")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return wrong_method(methods)
    return Problem("INVALID_ARGUMENT", str(error.detail), status=error.status_code)


def _describe_field(item: Mapping[str, Any], known: Sequence[str]) -> dict[str, str]:
    source, *path = item["loc"]
    name = ".".join(map(str, path)) or str(source)
    if item["type"] == "json_invalid":
        return {"field": "body", "message": f"not JSON: {item['ctx']['error']}"}
    if item["type"] == "extra_forbidden":
        # The fields of the model, not of one inside of it; a known one belongs elsewhere.
        known = known if len(path) == 1 and name not in known else ()
        longer = [each for each in known if each.startswith(name)]
        near = [*longer, *get_close_matches(name, known, 1)][:1]
        way_out = f"did you mean `{near[0]}`?" if near else "see /docs"
        return {"field": name, "message": f"is not a known field; {way_out}"}
    reason = explain_validation_problem(item)
    value = item.get("input")
    if source == "query" and isinstance(value, str) and _LOST_PLUS.search(value):
        reason += "; a + in a query is written %2B"
    return {"field": name, "message": reason}


def new_request_id() -> str:
    """Return a random request id."""
    # It is no secret. Asking the operating system would let other threads take the GIL.
    return f"r_{random.getrandbits(64):016x}"


def log_bug(error: BaseException, request_id: str) -> None:
    """Log where an error was raised, without its message, which may quote user content."""
    fields = {"request_id": request_id, **describe_exception(error)}
    log.error("failed", extra={"fields": fields})


def report_error(error: Exception, fields: dict[str, Any], request_id: str) -> Problem:
    """Return the problem that reports any error; log what the response leaves out."""
    if isinstance(error, MemrecallError):
        add_error_fields(fields, error)
    elif not isinstance(error, RequestError):
        log_bug(error, request_id)
        fields["error"] = type(error).__name__
        return Problem("INTERNAL", "internal error", {"request_id": request_id})
    request = current_request()
    if isinstance(error, StorageFull) and request is not None and request.changes:
        return _PARTLY_STORED
    return problem_from_error(error)


def add_error_fields(fields: dict[str, Any], error: MemrecallError) -> None:
    """Add to a log line what the response to the client leaves out."""
    fields["error"] = type(error).__name__
    if isinstance(error, RunError):
        fields["cause"] = error.message
