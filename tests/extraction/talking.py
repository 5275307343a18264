"""How the tables of these tests are written: a line a turn, who speaks before the bar."""

from datetime import UTC, datetime

from memrecall.extraction import Utterance
from memrecall.types import Role

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)  # a Tuesday
_ROLES = {"assistant": Role.ASSISTANT, "tool": Role.TOOL, "system": Role.SYSTEM}

Conversation = tuple[str, list[Utterance], list[str]]


def talk(*turns: str, at: datetime = NOW) -> list[Utterance]:
    """The turns as utterances m0, m1, …: "text", "assistant| text" or "Ann| text"."""
    said = []
    for number, turn in enumerate(turns):
        before, bar, text = turn.partition("| ")
        who = before if bar else "user"
        speaker = None if who == "user" or who in _ROLES else who
        role = _ROLES.get(who, Role.USER)
        said.append(Utterance(f"m{number}", speaker, role, text if bar else turn, at))
    return said
