"""A deterministic extractor for tests."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, tzinfo

from memrecall.extraction.protocol import (
    RETRACTION,
    Entity,
    Extracted,
    Fact,
    KnownMemory,
    Relation,
    Summary,
    Utterance,
)
from memrecall.types import Role

_FACT = re.compile(r"(?P<field>\w+): (?P<value>[^.]+)\.")
_RELATION = re.compile(r"(?P<source>\S+) (?P<how>\w+_\w+) (?P<destination>[^\s.]+)")


class WordExtractor:
    """Extracts a fact from "home: Paris." and its retraction from "forget home".

    "A works_at B" is a relation. A text that contains "boom" makes the extraction fail.
    """

    def __init__(self) -> None:
        self.contexts: list[list[str]] = []
        self.prompts: list[str | None] = []

    async def extract(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
        known: Sequence[KnownMemory] = (),
    ) -> Extracted:
        self.contexts.append([utterance.text for utterance in context])
        self.prompts.append(prompt)
        if any("boom" in utterance.text for utterance in utterances):
            raise RuntimeError("boom")
        facts = [fact for said in utterances for fact in _read_facts(said)]
        new = [fact for fact in facts if not any(fact.text == k.text for k in known)]
        decided = tuple(replace(fact, replaces=_replaced(fact, known)) for fact in new)
        relations = tuple(
            Relation(m["source"], m["how"], m["destination"], (utterance.message_id,), utterance.ts)
            for utterance in utterances
            for m in _RELATION.finditer(utterance.text)
        )
        names = {name for r in relations for name in (r.source, r.destination)}
        return Extracted(decided, tuple(Entity(n, "person") for n in sorted(names)), relations)

    async def summarise(
        self, lines: str | Sequence[Utterance | str], limit_characters: int, language: object = None
    ) -> Summary:
        texts = [line if isinstance(line, str) else line.text for line in lines]
        return Summary("sum(" + "+".join(text[:12] for text in texts) + ")")


def _read_facts(utterance: Utterance) -> list[Fact]:
    if utterance.role is not Role.USER:
        return []
    subject = utterance.speaker or "user"
    retractions = [
        Fact(
            f"{name} forgotten", subject, "retraction", name, (utterance.message_id,), negated=True
        )
        for name in re.findall(r"forget (\w+)", utterance.text)
    ]
    return retractions + [
        Fact(f"{subject}'s {m['field']} is {m['value']}", subject, "general", m["field"],
             (utterance.message_id,), utterance.ts)
        for m in _FACT.finditer(utterance.text)
    ]  # fmt: skip


def _replaced(fact: Fact, known: Sequence[KnownMemory]) -> tuple[str, ...]:
    same = [k for k in known if (k.subject, k.field) == (fact.subject, fact.field)]
    keys = [k.memory_key for k in same if k.text != fact.text]
    return tuple(keys if fact.memory_type == RETRACTION else keys[:1])
