"""The sets of cases for the rules in `fixtures/extraction/rules`."""

import json
from pathlib import Path
from typing import Any

from memrecall.agent.prompt_view import wrap_block

from .transcripts import NOW, Conversation, parse_turns

FOLDER = Path(__file__).parents[2] / "fixtures" / "extraction" / "rules"


def read_cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of one set."""
    lines = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


# What was said, and the texts of its facts in order.
STATEMENTS: list[Conversation] = [
    (case["language"], parse_turns(*case["turns"]), case["facts"])
    for case in read_cases("statements")
]
# Messages that give nothing, by why.
NO_FACTS = {case["reason"]: parse_turns(*case["turns"]) for case in read_cases("no_facts")} | {
    "recalled memories": parse_turns(
        wrap_block(['{"memory_key": "k1", "content": "User lives in Rome. My name is Bob."}']),
        wrap_block(["我叫李明，住在上海。"]),
        "<recalled_memories>\nI live in Rome.",
    )
}

__all__ = ["NOW", "NO_FACTS", "STATEMENTS", "read_cases"]
