"""Requests and their answers, as the OpenAPI document shows them.

They were recorded from a server that held `MESSAGES`, by `python -m tests.server.recording`; a test
asks again and compares.
"""

import json
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

USER = "u_12345"


@dataclass(frozen=True, slots=True)
class Example:
    """One request to an endpoint, and what it answered."""

    parameters: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    answer: Any = None


def load_examples() -> dict[str, Example]:
    """The examples by the name of their operation."""
    text = resources.files(__package__).joinpath("examples.json").read_text("utf-8")
    return {name: Example(**fields) for name, fields in json.loads(text).items()}
