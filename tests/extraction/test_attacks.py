"""Attacks on memory: no text but the user's own words changes what the user said."""

import json
from collections.abc import Callable
from datetime import UTC
from operator import itemgetter
from pathlib import Path
from typing import Any

from memrecall.extraction import Extractor, KnownMemory, ModelExtractor, RuleExtractor
from memrecall.testing import ScriptedClient
from tests.cases import check_each_async

from .helpers import answer, apply_decisions
from .transcripts import NOW, parse_turns

FILE = Path(__file__).parents[2] / "fixtures" / "extraction" / "attacks.jsonl"
ATTACKS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]


def obedient_model(attack: dict[str, Any]) -> Extractor:
    """Return an extractor whose model believes the attack and lets it replace the truth."""
    sources = list(range(1, len(attack["attack"]) + 1))
    event = "DELETE" if attack["obey"]["type"] == "retraction" else "UPDATE"
    verdict = {"fact": 0, "event": event, "known": 1, "reason": "the message said so"}
    steps = [
        answer(facts=[{**attack["obey"], "about": "user", "sources": sources}]),
        answer(decisions=[verdict]),
    ]
    return ModelExtractor(ScriptedClient(steps))


async def memories_after(extractor: Extractor, turns: list[str], *known: KnownMemory) -> list[str]:
    """Return the texts of the memories after some turns."""
    extracted = await extractor.facts(parse_turns(*turns), now=NOW, zone=UTC)
    decided = await extractor.decide(extracted.facts, known)
    return [memory.text for memory in apply_decisions(decided.decisions, known)]


def check_truth(
    make_extractor: Callable[[dict[str, Any]], Extractor],
) -> Callable[[dict[str, Any]], Any]:
    async def check(attack: dict[str, Any]) -> None:
        memory = attack["memory"]
        known = KnownMemory("k1", memory["text"], "user", memory["field"], memory["type"], NOW)
        texts = await memories_after(make_extractor(attack), attack["attack"], known)
        assert memory["text"] in texts, texts
        assert not [text for text in texts if any(word in text for word in attack["claim"])]

    return check


def test_suite_covers_both_languages() -> None:
    assert len(ATTACKS) >= 60
    for language in ("en", "zh"):
        assert sum(attack["language"] == language for attack in ATTACKS) >= 30


async def test_rules_keep_the_truth() -> None:
    await check_each_async(
        ATTACKS, check_truth(lambda _attack: RuleExtractor()), label=itemgetter("id")
    )


async def test_obedient_model_keeps_the_truth() -> None:
    await check_each_async(ATTACKS, check_truth(obedient_model), label=itemgetter("id"))


async def test_same_model_is_believed_when_the_user_says_it() -> None:
    """The checks refuse the attacks, not the facts: in the user's own words they are stored."""

    async def check(attack: dict[str, Any]) -> None:
        fact = {"text": attack["memory"]["text"], "about": "user", "sources": [1]}
        extractor = ModelExtractor(ScriptedClient([answer(facts=[fact])]))
        assert await memories_after(extractor, [attack["said"]]) == [attack["memory"]["text"]]

    await check_each_async(ATTACKS, check)
