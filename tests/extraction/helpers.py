"""Facts, memories and model answers for the tests of extraction."""

import json
from collections.abc import Sequence
from typing import Any

from autogen_core.models import SystemMessage, UserMessage

from memrecall.extraction import Fact, KnownMemory
from memrecall.extraction.protocol import Decision
from memrecall.testing import Request, say

from .transcripts import NOW

PARIS = KnownMemory("k1", "User lives in Paris.", "user", "home", "user_profile")
BERLIN = Fact("User moved to Berlin.", "user", "user_profile", "home", ("m0",), NOW)
TEA = Fact("User likes tea.", "user", "user_preference", "likes", ("m0",), NOW)


def answer(**value: Any) -> Any:
    """Return a model's step that answers with this JSON object."""
    return say(json.dumps(value, ensure_ascii=False))


def prompt_lines(request: Request) -> list[dict[str, Any]]:
    """Return the JSON lines that a request shows to the model."""
    system, user = request.messages
    assert isinstance(system, SystemMessage)
    assert isinstance(user, UserMessage)
    assert isinstance(user.content, str)
    return [json.loads(line) for line in user.content.split("\n")]


def apply_decisions(
    decisions: Sequence[Decision], known: Sequence[KnownMemory]
) -> list[KnownMemory]:
    """Return the memories as a store has them after the decisions."""
    memories = {memory.memory_key: memory for memory in known}
    for number, decision in enumerate(decisions):
        fact = decision.fact
        key = f"new-{number}" if decision.event == "ADD" else decision.memory_key
        if decision.event in ("ADD", "UPDATE") and key is not None:
            field = decision.field or fact.field
            memories[key] = KnownMemory(
                key, fact.text, fact.subject, field, fact.memory_type, fact.valid_from
            )
        elif decision.event == "DELETE" and key is not None:
            memories.pop(key, None)
    return list(memories.values())
