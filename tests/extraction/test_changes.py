"""Memories before and after messages that change what is known."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC
from operator import itemgetter
from typing import Any

from memrecall.extraction import KnownMemory, RuleExtractor, Utterance
from tests.cases import check_each_async

from .conversations import read_cases
from .helpers import apply_decisions
from .transcripts import NOW, parse_turns

EXTRACTOR = RuleExtractor()


async def add_message(
    messages: Sequence[Utterance], position: int, known: list[KnownMemory]
) -> list[KnownMemory]:
    """Return the memories after one more message, with the earlier ones as its context."""
    result = await EXTRACTOR.facts(
        [messages[position]], now=NOW, zone=UTC, context=messages[:position]
    )
    decisions = await EXTRACTOR.decide(result.facts, known)
    updated_memories = apply_decisions(decisions.decisions, known)
    assert {
        item.event for item in (await EXTRACTOR.decide(result.facts, updated_memories)).decisions
    } <= {"NONE"}
    return [
        KnownMemory(f"{position}-{at}", item.text, item.subject, item.field, item.memory_type)
        for at, item in enumerate(updated_memories)
    ]


def find_mismatches(known: Sequence[KnownMemory], expected: Sequence[str]) -> list[str]:
    """Return the memories without a match in `expected`, and the unmatched words.

    A memory is given by words that it has, with "&" between them; an optional one begins with "?".
    """
    unmatched = [item.text for item in known]
    missing: list[str] = []
    for words in sorted(expected, key=lambda item: item.startswith("?")):
        parts = words.removeprefix("?").split("&")
        matching = [text for text in unmatched if all(word in text for word in parts)]
        if matching:
            unmatched.remove(matching[0])
        elif not words.startswith("?"):
            missing.append(words)
    return unmatched + missing


async def test_memories_before_and_after_a_change() -> None:
    async def check(change: dict[str, Any]) -> None:
        before = change["before"]
        messages = parse_turns(*before, change["message"])
        known: list[KnownMemory] = []
        for position in range(len(before)):
            known = await add_message(messages, position, known)
        assert find_mismatches(known, change["memories"]) == []
        known = await add_message(messages, len(before), known)
        assert find_mismatches(known, change["afterwards"]) == []
        repeated = await EXTRACTOR.facts([messages[-1]], now=NOW, zone=UTC, context=messages[:-1])
        decisions = await EXTRACTOR.decide(repeated.facts, known)
        assert {item.event for item in decisions.decisions} <= {"NONE"}

    changes = read_cases("changes")
    assert min(Counter(change["language"] for change in changes).values()) >= 45
    await check_each_async(changes, check, itemgetter("message"))
