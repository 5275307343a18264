"""Every failure memrecall reports, each with a stable code.

Two families: `CallerError` is a mistake in what was asked, and asking the same again fails again;
`RunError` is the world's fault (disk, lock, network) and may pass.
A message names the offending value; `hint` names the way out.
"""

from typing import Any, Literal

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
PASSING_FAILURES = frozenset[ModelFailure]({"unreachable", "timeout", "rate_limited"})


class MemrecallError(Exception):
    """The root of all errors that memrecall raises on purpose."""

    code = "INTERNAL"

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class CallerError(MemrecallError):
    """What was asked cannot be done as asked."""

    code = "INVALID_ARGUMENT"


class InvalidArgument(CallerError):
    """A value has the wrong type, form or range."""


class QuerySyntaxError(InvalidArgument):
    """A query of the query language cannot be read; `position` counts characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at position {position}", position=position)
        self.position = position


class NotFound(CallerError):
    """The named thing does not exist in this scope."""

    code = "NOT_FOUND"


class Conflict(CallerError):
    """An id is already taken by something else."""

    code = "CONFLICT"


class Disabled(CallerError):
    """The agent or user is disabled, or the session has ended."""

    code = "PERMISSION_DENIED"


class EmbeddingModelMismatch(CallerError):
    """The database's vectors were made by another embedding model."""

    code = "FAILED_PRECONDITION"


class SchemaTooNew(CallerError):
    """The database was written by a newer memrecall."""

    code = "FAILED_PRECONDITION"


class CassetteMismatch(CallerError):
    """What was asked of the model is not what the cassette holds; `call` counts from 1."""

    code = "FAILED_PRECONDITION"


class ScriptExhausted(CallerError):
    """A scripted model was called more often than its script has steps."""

    code = "FAILED_PRECONDITION"


class RunError(MemrecallError):
    """The request was right; the world was not."""

    code = "UNAVAILABLE"


class StorageError(RunError):
    """The database failed in a way that has no more exact name."""


class StorageUnreachable(StorageError):
    """The database cannot be opened or reached."""


class StorageReadOnly(StorageError):
    """The database or its folder cannot be written."""


class StorageBusy(StorageError):
    """Another writer held the database for too long; trying again may help."""


class StorageFull(StorageError):
    """No space is left; nothing of the failed write was kept."""

    code = "RESOURCE_EXHAUSTED"


class EmbedderFailed(RunError):
    """The embedder could not be loaded or did not answer."""


class ModelFailed(RunError):
    """The model did not answer, or not in a way that can be used; `kind` says how."""

    def __init__(self, message: str, *, kind: ModelFailure, hint: str = "", **details: Any) -> None:
        super().__init__(message, hint=hint, kind=kind, **details)
        self.kind = kind
        if kind in ("rate_limited", "quota"):
            self.code = "RESOURCE_EXHAUSTED"

    @property
    def may_pass(self) -> bool:
        """Whether the very same request may succeed later."""
        return self.kind in PASSING_FAILURES
