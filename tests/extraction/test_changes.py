"""Memories before and after messages that change what is known."""

from collections.abc import Sequence
from datetime import UTC

from memrecall.extraction import KnownMemory, RuleExtractor, Utterance
from tests.cases import check_each_async

from .changes_en import CHANGES_EN, Change
from .changes_zh import CHANGES_ZH
from .helpers import apply_decisions
from .transcripts import NOW, parse_turns

CHANGES = [*CHANGES_EN, *CHANGES_ZH]
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
    """Return the memories without a match in `expected`, and the unmatched words."""
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
    async def check(change: Change) -> None:
        before, now, expected_before, expected_after = change
        messages = parse_turns(*before, now)
        known: list[KnownMemory] = []
        for position in range(len(before)):
            known = await add_message(messages, position, known)
        assert find_mismatches(known, expected_before) == []
        known = await add_message(messages, len(before), known)
        assert find_mismatches(known, expected_after) == []
        repeated = await EXTRACTOR.facts([messages[-1]], now=NOW, zone=UTC, context=messages[:-1])
        decisions = await EXTRACTOR.decide(repeated.facts, known)
        assert {item.event for item in decisions.decisions} <= {"NONE"}

    await check_each_async(CHANGES, check, lambda change: change[1])


def test_changes_cover_both_languages() -> None:
    assert min(len(CHANGES_EN), len(CHANGES_ZH)) >= 60
