"""For schemathesis: requests name the one user who has something stored, or nothing is reached.

What cannot be an id by its length is left as it is: it was made up to be refused.
"""

from typing import Any

import schemathesis

from memrecall.server.examples import USER
from memrecall.types import ID_LENGTH


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """Ask for the known user."""
    if isinstance(path_parameters, dict) and _may_be_an_id(path_parameters.get("user_id")):
        path_parameters["user_id"] = USER
    return path_parameters


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Ask for the known user, where a user is named at all."""
    if isinstance(body, dict) and _may_be_an_id(body.get("user_id")):
        body["user_id"] = USER
    return body


def _may_be_an_id(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= ID_LENGTH
