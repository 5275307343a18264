"""Memories before and after messages that change what is known."""

from collections.abc import Sequence
from datetime import UTC

from memrecall.extraction import Known, RuleExtractor, Utterance
from tests.cases import check_each_async

from .changes_en import CHANGES_EN, Change
from .changes_zh import CHANGES_ZH
from .helpers import apply_decisions
from .transcripts import NOW, parse_turns

CHANGES = [*CHANGES_EN, *CHANGES_ZH]
EXTRACTOR = RuleExtractor()


async def add_message(messages: Sequence[Utterance], place: int, known: list[Known]) -> list[Known]:
    """Return the memories after one more message, with the earlier ones as its context."""
    result = await EXTRACTOR.facts([messages[place]], now=NOW, zone=UTC, context=messages[:place])
    decided = await EXTRACTOR.decide(result.facts, known)
    again = apply_decisions(decided.decisions, known)
    assert {item.event for item in (await EXTRACTOR.decide(result.facts, again)).decisions} <= {
        "NONE"
    }
    return [
        Known(f"{place}-{at}", item.text, item.subject, item.field, item.memory_type)
        for at, item in enumerate(again)
    ]


def find_mismatches(known: Sequence[Known], expected: Sequence[str]) -> list[str]:
    """Return the memories that fit no words, and the words that fit no memory."""
    unmatched = [item.text for item in known]
    missing: list[str] = []
    for words in sorted(expected, key=lambda item: item.startswith("?")):
        parts = words.removeprefix("?").split("&")
        fitting = [text for text in unmatched if all(word in text for word in parts)]
        if fitting:
            unmatched.remove(fitting[0])
        elif not words.startswith("?"):
            missing.append(words)
    return unmatched + missing


async def test_memories_before_and_after_a_change() -> None:
    async def check(change: Change) -> None:
        before, now, expected_before, expected_after = change
        messages = parse_turns(*before, now)
        known: list[Known] = []
        for place in range(len(before)):
            known = await add_message(messages, place, known)
        assert find_mismatches(known, expected_before) == []
        known = await add_message(messages, len(before), known)
        assert find_mismatches(known, expected_after) == []
        repeated = await EXTRACTOR.facts([messages[-1]], now=NOW, zone=UTC, context=messages[:-1])
        decided = await EXTRACTOR.decide(repeated.facts, known)
        assert {item.event for item in decided.decisions} <= {"NONE"}

    await check_each_async(CHANGES, check, lambda change: change[1])


def test_changes_cover_both_languages() -> None:
    assert min(len(CHANGES_EN), len(CHANGES_ZH)) >= 60
