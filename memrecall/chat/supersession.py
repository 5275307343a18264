"""Recalled statements that later ones replace: the last home, employer or favourite counts."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC
from itertools import combinations

from memrecall.agent import RecalledMemory
from memrecall.errors import WorkerFailed
from memrecall.extraction.conflicts import replaces
from memrecall.extraction.protocol import Utterance
from memrecall.extraction.rules.conversation import build_facts, read_statements
from memrecall.search.updates import asks_for_one_value, replacements_first
from memrecall.types import Role
from memrecall.workers import in_process


async def put_current_first(
    memories: Sequence[RecalledMemory], query: str
) -> tuple[list[RecalledMemory], dict[str, RecalledMemory]]:
    """Return memories, replacements before what they replace, and replacements by its key."""
    # The search knows a change by its words, and after an hour; the slots of facts need neither.
    ordered = sorted((m for m in memories if m.role != Role.ASSISTANT), key=lambda m: m.ts)
    replaced: dict[str, str] = {}
    if len(ordered) > 1 and asks_for_one_value(query):
        length = sum(len(memory.content) for memory in ordered)
        with suppress(WorkerFailed):  # a recall has a result all the same
            replaced = await in_process(length, _find_replaced, ordered)
    known = {memory.memory_key: memory for memory in memories}
    for old, new in ((known[key], known[later]) for key, later in replaced.items()):
        if (old.probability or 0) > (new.probability or 0):  # as likely as what it replaces
            update = {"probability": old.probability, "certainty": old.certainty}
            known[new.memory_key] = new.model_copy(update=update)
    keys = replacements_first(
        list(known), str, lambda later: [key for key in replaced if replaced[key] == later]
    )
    return [known[key] for key in keys], {key: known[later] for key, later in replaced.items()}


def _find_replaced(memories: Sequence[RecalledMemory]) -> dict[str, str]:
    """Return for each memory, in order of time, the last one that replaces all of its facts."""
    facts = {}
    for memory in memories:
        said = Utterance(memory.memory_key, memory.speaker, Role.USER, memory.content, memory.ts)
        facts[memory.memory_key] = build_facts(read_statements([said], now=memory.ts, zone=UTC))
    return {
        old: later
        for old, later in combinations(facts, 2)
        if facts[old]
        and all(any(replaces(new, fact.as_known()) for new in facts[later]) for fact in facts[old])
    }
