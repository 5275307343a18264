"""The codes of errors: the five of the specification, and our own outside its reserved range."""

from enum import IntEnum


class Code(IntEnum):
    """What went wrong. From -32768 to -32000 the specification has them; ours are positive."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603

    NOT_FOUND = 1001
    CONFLICT = 1002
    PERMISSION_DENIED = 1003
    FAILED_PRECONDITION = 1004
    RESOURCE_EXHAUSTED = 1005
    UNAVAILABLE = 1006


# What the specification calls its own errors.
TITLES = {
    Code.PARSE_ERROR: "Parse error",
    Code.INVALID_REQUEST: "Invalid Request",
    Code.METHOD_NOT_FOUND: "Method not found",
    Code.INVALID_PARAMS: "Invalid params",
    Code.INTERNAL_ERROR: "Internal error",
}
