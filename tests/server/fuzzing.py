"""For schemathesis: requests name the one user who has something stored, or nothing is reached.

What cannot be an id by its length is left as it is: it was made up to be refused.
"""

from typing import Any

import schemathesis

from memrecall.server.http.openapi import EXAMPLE_USER
from memrecall.types import ID_LENGTH

MEMORY = "mem_0001"


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """Ask for the known user, and for a memory that is there."""
    if isinstance(path_parameters, dict):
        for name, value in (("user_id", EXAMPLE_USER), ("memory_id", MEMORY)):
            if _may_be_an_id(path_parameters.get(name)):
                path_parameters[name] = value
    return path_parameters


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Ask for the known user, where a query names one: also in requests that follow others."""
    if isinstance(case.query, dict) and _may_be_an_id(case.query.get("user_id")):
        case.query["user_id"] = EXAMPLE_USER


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Ask for the known user, where a user is named at all."""
    if isinstance(body, dict) and _may_be_an_id(body.get("user_id")):
        body["user_id"] = EXAMPLE_USER
    return body


def _may_be_an_id(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= ID_LENGTH
