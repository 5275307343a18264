"""Rules that answer the recall prompts when no model is configured."""

from __future__ import annotations

from memrecall import model
from memrecall.agent.offline.needs import answer_needs_recall_prompt
from memrecall.agent.offline.policy import decide_recall_turn
from memrecall.agent.tools.keywords import answer_keywords_prompt
from memrecall.model.prompts import Rule

RULES: dict[str, Rule] = {
    "recall": decide_recall_turn,
    "keywords": answer_keywords_prompt,
    "needs_recall": answer_needs_recall_prompt,
}
"""The rule of each prompt of the recall agent, by the prompt's name."""


def offline_client() -> model.RuleClient:
    """Return a model client that answers the recall prompts by rules."""
    return model.RuleClient(RULES)


__all__ = ["RULES", "offline_client"]
