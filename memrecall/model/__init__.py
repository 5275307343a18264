"""Models: clients of servers, prompts, the offline client, cassettes, answers as data."""

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
