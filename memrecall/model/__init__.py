"""Models: clients of servers, prompts, the offline client, cassettes, answers as data.

The names load when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memrecall.model.base import BaseClient, Request
    from memrecall.model.cassette import RecordingClient, ReplayClient
    from memrecall.model.clients import ServerClient, make_client
    from memrecall.model.json_calls import JsonCallClient
    from memrecall.model.offline import Rule, RuleAnswer, RuleCall, RuleClient, RuleRequest
    from memrecall.model.prompts import Language, load_prompt, prompt_name
    from memrecall.model.repair import repair_json
    from memrecall.model.structured import Structured, ask_json

__all__ = [
    "BaseClient",
    "JsonCallClient",
    "Language",
    "RecordingClient",
    "ReplayClient",
    "Request",
    "Rule",
    "RuleAnswer",
    "RuleCall",
    "RuleClient",
    "RuleRequest",
    "ServerClient",
    "Structured",
    "ask_json",
    "load_prompt",
    "make_client",
    "prompt_name",
    "repair_json",
]

_HOMES = {
    "base": (
        "BaseClient",
        "Request",
    ),
    "cassette": (
        "RecordingClient",
        "ReplayClient",
    ),
    "clients": (
        "ServerClient",
        "make_client",
    ),
    "json_calls": ("JsonCallClient",),
    "offline": (
        "Rule",
        "RuleAnswer",
        "RuleCall",
        "RuleClient",
        "RuleRequest",
    ),
    "prompts": (
        "Language",
        "load_prompt",
        "prompt_name",
    ),
    "repair": ("repair_json",),
    "structured": (
        "Structured",
        "ask_json",
    ),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
