"""Conversations of the test tables: one string for each turn, with the speaker before a bar."""

from datetime import UTC, datetime

from memrecall.extraction.protocol import Utterance
from memrecall.types import Role

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)  # a Tuesday
_ROLES = {"assistant": Role.ASSISTANT, "tool": Role.TOOL, "system": Role.SYSTEM}

Conversation = tuple[str, list[Utterance], list[str]]


def parse_turns(*turns: str, at: datetime = NOW) -> list[Utterance]:
    """Return the turns as utterances m0, m1, …: "text", "assistant| text" or "Ann| text"."""
    messages = []
    for number, turn in enumerate(turns):
        before, bar, text = turn.partition("| ")
        name = before if bar else "user"
        speaker = None if name == "user" or name in _ROLES else name
        role = _ROLES.get(name, Role.USER)
        messages.append(Utterance(f"m{number}", speaker, role, text if bar else turn, at))
    return messages
