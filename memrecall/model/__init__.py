"""Model clients, prompts, the offline client, cassettes and structured answers.

The names are loaded on first use.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.model.cassette import RecordingClient, ReplayClient
    from memrecall.model.client import BaseClient, Request
    from memrecall.model.json_calls import JsonCallClient
    from memrecall.model.offline import Rule, RuleAnswer, RuleCall, RuleClient, RuleRequest
    from memrecall.model.prompts import load_prompt, prompt_name
    from memrecall.model.repair import repair_json
    from memrecall.model.servers import ServerClient, make_client
    from memrecall.model.structured import Structured, ask_json
    from memrecall.types import Language

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

__getattr__ = lazy_exports(
    __name__,
    {
        ".cassette": ("RecordingClient", "ReplayClient"),
        ".client": ("BaseClient", "Request"),
        ".json_calls": ("JsonCallClient",),
        ".offline": ("Rule", "RuleAnswer", "RuleCall", "RuleClient", "RuleRequest"),
        ".prompts": ("load_prompt", "prompt_name"),
        ".repair": ("repair_json",),
        ".servers": ("ServerClient", "make_client"),
        ".structured": ("Structured", "ask_json"),
        "memrecall.types": ("Language",),
    },
)
