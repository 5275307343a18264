"""What a caller is told of an error, as JSON-RPC has it."""

from memrecall.errors import (
    CallerError,
    Conflict,
    Disabled,
    EmbedderFailed,
    InvalidArgument,
    MemrecallError,
    NotFound,
    StorageBusy,
    StorageFull,
)
from memrecall.server.jsonrpc import Code, RpcError

_CODES: tuple[tuple[type[MemrecallError], Code], ...] = (
    (NotFound, Code.NOT_FOUND),
    (Conflict, Code.CONFLICT),
    (Disabled, Code.PERMISSION_DENIED),
    (InvalidArgument, Code.INVALID_PARAMS),
    (CallerError, Code.FAILED_PRECONDITION),
    (StorageFull, Code.RESOURCE_EXHAUSTED),
    (MemrecallError, Code.UNAVAILABLE),
)
# Of the world's faults a stranger is told the kind alone: paths and addresses are for the log.
_DISCREET: tuple[tuple[type[MemrecallError], str], ...] = (
    (StorageFull, "no space is left"),
    (StorageBusy, "the store is busy; try again"),
    (EmbedderFailed, "the embedder does not answer; try again"),
    (MemrecallError, "this cannot be done now; try again"),
)


def fault_of(error: MemrecallError, *, trusted: bool) -> RpcError:
    """The error that a caller is told; the world's faults in full only to who runs it."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    if trusted or isinstance(error, CallerError):
        said = str(error)
    else:
        said = next(words for kind, words in _DISCREET if isinstance(error, kind))
    if code is Code.INVALID_PARAMS:
        return RpcError(code, data={"reason": said})
    return RpcError(code, said, {"code": code.name})
