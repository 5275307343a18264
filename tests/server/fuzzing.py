"""For schemathesis: requests name the one user who has something stored, or nothing is reached."""

from typing import Any

import schemathesis

from memrecall.server.examples import USER


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """Ask for the known user."""
    if isinstance(path_parameters, dict) and "user_id" in path_parameters:
        path_parameters["user_id"] = USER
    return path_parameters


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Ask for the known user, where a user is named at all."""
    if isinstance(body, dict) and isinstance(body.get("user_id"), str):
        body["user_id"] = USER
    return body
