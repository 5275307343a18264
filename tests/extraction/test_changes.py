"""What changes in somebody's life: memories before and after, from words to what is known."""

from collections.abc import Sequence
from datetime import UTC

from memrecall.extraction import Known, RuleExtractor, Utterance
from memrecall.extraction.decisions import apply
from tests.cases import check_each_async

from .changes_en import CHANGES_EN, Change
from .changes_zh import CHANGES_ZH
from .talking import NOW, talk

CHANGES = [*CHANGES_EN, *CHANGES_ZH]
EXTRACTOR = RuleExtractor()


async def learn(said: Sequence[Utterance], place: int, known: list[Known]) -> list[Known]:
    """What is known after one more message, with those before it as its context."""
    found = await EXTRACTOR.facts([said[place]], now=NOW, zone=UTC, context=said[:place])
    decided = await EXTRACTOR.decide(found.facts, known)
    again = apply(decided.decisions, known)
    assert {one.event for one in (await EXTRACTOR.decide(found.facts, again)).decisions} <= {"NONE"}
    return [
        Known(f"{place}-{at}", one.text, one.subject, one.field, one.memory_type)
        for at, one in enumerate(again)
    ]


def unexpected(known: Sequence[Known], wanted: Sequence[str]) -> list[str]:
    """Memories that fit no words, and words that no memory fits."""
    left = [one.text for one in known]
    missing: list[str] = []
    for words in sorted(wanted, key=lambda one: one.startswith("?")):
        telling = words.removeprefix("?").split("&")
        fitting = [text for text in left if all(word in text for word in telling)]
        if fitting:
            left.remove(fitting[0])
        elif not words.startswith("?"):
            missing.append(words)
    return left + missing


async def test_what_is_known_before_and_after() -> None:
    async def check(change: Change) -> None:
        before, now, wanted_before, wanted_after = change
        said = talk(*before, now)
        known: list[Known] = []
        for place in range(len(before)):
            known = await learn(said, place, known)
        assert unexpected(known, wanted_before) == []
        known = await learn(said, len(before), known)
        assert unexpected(known, wanted_after) == []
        said_again = await EXTRACTOR.facts([said[-1]], now=NOW, zone=UTC, context=said[:-1])
        decided = await EXTRACTOR.decide(said_again.facts, known)
        assert {one.event for one in decided.decisions} <= {"NONE"}

    await check_each_async(CHANGES, check, lambda change: change[1])


def test_the_table_is_in_both_languages() -> None:
    assert min(len(CHANGES_EN), len(CHANGES_ZH)) >= 60
