"""Every error memrecall raises on purpose, each with a stable code.

Two families: `CallerError` is a mistake in the request, and the same request fails again;
`RunError` is a failure of the environment (disk, lock, network), and a retry may succeed.
A message names the offending value; `hint` says how to fix it.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Self

from memrecall.text_length import truncate_text

if TYPE_CHECKING:
    from pydantic import ValidationError

VALUE = "the value"  # a placeholder that callers replace by the name of the field

ModelFailure = Literal[
    "unreachable",
    "timeout",
    "rate_limited",
    "quota",
    "authentication",
    "overflow",
    "no_tools",
    "refused",
    "malformed",
]
TRANSIENT_FAILURES = frozenset[ModelFailure]({"unreachable", "timeout", "rate_limited"})


class MemrecallError(Exception):
    """The base class of all errors that memrecall raises on purpose."""

    code = "INTERNAL"

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # By its state: constructors have different arguments.
        return _restore, (type(self), self.args, self.__dict__)


def describe_for_log(error: BaseException) -> str:
    """Return an error as a log may have it: only its type if its message may quote a caller.

    Such messages name users, and errors of plugins may have contents.
    """
    is_typed = isinstance(error, MemrecallError)
    is_quoting = isinstance(error, InvalidArgument | NotFound | Conflict | Disabled)
    return str(error) if is_typed and not is_quoting else type(error).__name__


def _restore(kind: type[MemrecallError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class CallerError(MemrecallError, ValueError):
    """The request is invalid."""

    code = "INVALID_ARGUMENT"


class InvalidArgument(CallerError):
    """A value has the wrong type, form or range."""


def install_command(extra: str) -> str:
    """Return the command that installs memrecall with an extra."""
    return f"pip install 'memrecall-agent[{extra}]'"


@contextmanager
def requires_extra(feature: str, extra: str, *packages: str) -> Iterator[None]:
    """Import packages of an extra; if some are missing, InvalidArgument names them."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in packages:
            raise
        missing = [name for name in packages if find_spec(name) is None] or [error.name]
        verb = "is" if len(missing) == 1 else "are"
        problem = f"{feature} requires {', '.join(missing)}, which {verb} not installed"
        raise InvalidArgument(problem, hint=install_command(extra)) from None


class QuerySyntaxError(InvalidArgument):
    """A query cannot be parsed; `position` counts characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at position {position}", position=position)
        self.position = position


class QueryTooExpensive(InvalidArgument):
    """A query would read more of the index than is allowed."""


class NotFound(CallerError):
    """The object does not exist in this scope."""

    code = "NOT_FOUND"


class Conflict(CallerError):
    """An id is already in use."""

    code = "CONFLICT"


class Disabled(CallerError):
    """The agent or user is disabled, or the session has ended."""

    code = "PERMISSION_DENIED"


class Forbidden(Disabled):
    """The caller's role in a space does not allow this."""


class EmbeddingModelMismatch(CallerError):
    """The vectors of the database are of another embedding model."""

    code = "FAILED_PRECONDITION"


class SchemaTooNew(CallerError):
    """The database was written by a newer version of memrecall."""

    code = "FAILED_PRECONDITION"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="Upgrade memrecall: pip install -U memrecall-agent")


class OpenedBeforeFork(CallerError):
    """A forked child uses a memory or database that its parent opened."""

    code = "FAILED_PRECONDITION"


class CassetteMismatch(CallerError):
    """A model call differs from the recorded one; `call` counts from 1."""

    code = "FAILED_PRECONDITION"


class ScriptExhausted(CallerError):
    """A scripted model was called more often than its script has steps."""

    code = "FAILED_PRECONDITION"


class RunError(MemrecallError):
    """A valid request failed for reasons outside of it."""

    code = "UNAVAILABLE"


class StorageError(RunError):
    """The database failed, for a reason without a more specific class."""

    is_transient = False  # the same work may succeed a moment later

    def mark_transient(self, is_transient: bool = True) -> Self:
        """Set `is_transient` and return the error."""
        self.is_transient = is_transient
        return self


class StorageUnreachable(StorageError):
    """The database cannot be opened or reached."""

    lost_node: str | None = None  # of a cluster, if it does not accept connections


class StorageReadOnly(StorageError):
    """The database or its folder cannot be written."""


class StorageBusy(StorageError):
    """Another writer locked the database for too long; a retry may succeed."""


class OutdatedPlan(StorageError):
    """Another writer changed the memories on which a decision was based; a new one may succeed."""


class StorageFull(StorageError):
    """The disk is full; the failed write was rolled back."""

    code = "RESOURCE_EXHAUSTED"


class EmbedderFailed(RunError):
    """The embedder could not be loaded, or did not respond."""


class WorkerFailed(RunError):
    """A worker process took too long, or ended in the middle of its work."""


class DeadlineExceeded(RunError):
    """A request took longer than it may; `outcome` says whether it can still change something."""

    code = "DEADLINE_EXCEEDED"

    def __init__(self, seconds: float, *, continues: bool, **details: Any) -> None:
        details["outcome"] = "continues" if continues else "stopped"
        hint = "It may still be completed: repeat it with the same ids" if continues else ""
        super().__init__(f"the request took longer than {seconds:g} s", hint=hint, **details)


class ModelFailed(RunError):
    """The model did not respond, or not usably; `kind` says how."""

    def __init__(self, message: str, *, kind: ModelFailure, hint: str = "", **details: Any) -> None:
        super().__init__(message, hint=hint, kind=kind, **details)
        self.kind = kind
        if kind in ("rate_limited", "quota"):
            self.code = "RESOURCE_EXHAUSTED"

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in TRANSIENT_FAILURES


def describe_validation_error(error: "ValidationError", *, quote_value: bool = True) -> str:
    """Return the first problem of a validation error on one line.

    Without `quote_value` the text can be logged: it does not contain what a user wrote.
    """
    return describe_validation_problem(error.errors()[0], quote_value=quote_value)


def describe_validation_problem(problem: Mapping[str, Any], *, quote_value: bool = False) -> str:
    """Return one problem of a validation error: the field, and what is wrong with it."""
    path = ".".join(map(str, problem["loc"]))
    message = _message_of(problem)
    if message.startswith(VALUE):  # Our own checks do not know the name of the field.
        return path + message.removeprefix(VALUE)
    reason = explain_validation_problem(problem)
    if not path or problem["type"] in ("missing", "extra_forbidden"):
        return f"{path} {reason}".strip()
    if not quote_value:
        return f"{path}: {reason}"
    return f"{path} {truncate_text(repr(problem['input']), 60)}: {reason}"


_REASONS = {
    "missing": "is missing",
    "extra_forbidden": "is not a known field",
    "string_pattern_mismatch": "is blank",  # the only pattern that a field has
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items, and has {actual_length}",
    "too_long": "must have at most {max_length} items",
    "model_attributes_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "list_type": "must be a list",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_parsing": "must be a whole number",
    "string_type": "must be text",
}
_SINGULAR = re.compile(r"\b1 (item|character)s\b")


def explain_validation_problem(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, without the name of its field."""
    kind = problem["type"]
    if kind in ("too_short", "too_long") and isinstance(problem.get("input"), str):
        kind = f"string_{kind}"  # the limit of a text that has other checks too
    if kind in _REASONS:
        return _SINGULAR.sub(r"1 \1", _REASONS[kind].format(**problem.get("ctx", {})))
    return _message_of(problem).removeprefix(VALUE).strip()


def _message_of(problem: Mapping[str, Any]) -> str:
    return str(problem["msg"]).removeprefix("Value error, ")
