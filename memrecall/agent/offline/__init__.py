"""The rules that play the recall prompts when no model is set."""

from memrecall.agent.offline.answers import keywords_answer, needs_recall_answer
from memrecall.agent.offline.policy import decide_recall_turn
from memrecall.model.offline import Rule, RuleClient

RULES: dict[str, Rule] = {
    "recall": decide_recall_turn,
    "keywords": keywords_answer,
    "needs_recall": needs_recall_answer,
}
"""A rule for each prompt of the recall agent, by the prompt's name."""


def offline_client() -> RuleClient:
    """A model client that needs no model: it answers the recall prompts by rules."""
    return RuleClient(RULES)


__all__ = ["RULES", "offline_client"]
