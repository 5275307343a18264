"""A deterministic extractor for tests."""

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo

from memrecall.extraction.protocol import (
    Decided,
    Decision,
    Entity,
    Extracted,
    Fact,
    KnownMemory,
    Related,
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

    async def facts(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
    ) -> Extracted:
        self.contexts.append([utterance.text for utterance in context])
        self.prompts.append(prompt)
        if any("boom" in utterance.text for utterance in utterances):
            raise RuntimeError("boom")
        return Extracted(tuple(fact for said in utterances for fact in _read_facts(said)))

    async def decide(self, facts: Sequence[Fact], known: Sequence[KnownMemory]) -> Decided:
        return Decided(tuple(_decide(fact, known) for fact in facts))

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        matches = [
            Relation(m["source"], m["how"], m["destination"], (utterance.message_id,), utterance.ts)
            for utterance in utterances
            for m in _RELATION.finditer(utterance.text)
        ]
        names = {name for r in matches for name in (r.source, r.destination)}
        return Related(tuple(Entity(name, "person") for name in sorted(names)), tuple(matches))

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


def _decide(fact: Fact, known: Sequence[KnownMemory]) -> Decision:
    matching = [k for k in known if (k.subject, k.field) == (fact.subject, fact.field)]
    if fact.negated:
        if not matching:
            return Decision("NONE", fact)
        return Decision("DELETE", fact, matching[0].memory_key, reason="taken back")
    if any(k.text == fact.text for k in matching):
        return Decision("NONE", fact, matching[0].memory_key)
    if matching:
        return Decision("UPDATE", fact, matching[0].memory_key, fact.text, "changed")
    return Decision("ADD", fact, None, fact.text)
