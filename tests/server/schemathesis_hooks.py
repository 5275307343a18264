"""Hooks of schemathesis that make requests name the only user with stored data.

Values that are too long or too short for an id are generated to be refused, and stay as they are.
"""

from typing import Any

import schemathesis

from memrecall.types import ID_LENGTH

from .record_examples import EXAMPLE_USER

MEMORY = "mem_0001"


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """Name the stored user and a stored memory."""
    if isinstance(path_parameters, dict):
        for name, value in (("user_id", EXAMPLE_USER), ("memory_id", MEMORY)):
            if _is_valid_id(path_parameters.get(name)):
                path_parameters[name] = value
    return path_parameters


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Name the stored user in the query, also in requests that follow links."""
    if isinstance(case.query, dict) and _is_valid_id(case.query.get("user_id")):
        case.query["user_id"] = EXAMPLE_USER


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Name the stored user in a body that names a user."""
    if isinstance(body, dict) and _is_valid_id(body.get("user_id")):
        body["user_id"] = EXAMPLE_USER
    return body


def _is_valid_id(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= ID_LENGTH


@schemathesis.serializer("application/octet-stream")
def serialize_lines(context: Any, value: Any) -> bytes:
    """Send a body of JSON lines as it is."""
    return str(value).encode(errors="replace")
