"""Whether a user's message needs a recall at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from memrecall.agent.rules.references import find_references


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a recall is needed, and why."""

    needed: bool
    why: str


def needs_recall(text: str, earlier_texts: Sequence[str]) -> Verdict:
    """Judge a message by its references."""
    return Verdict(bool(find_references(text)), "reference")
