"""An extractor that does exactly what a test writes down: simple, and without any luck."""

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo

from memrecall.extraction.protocol import (
    Decided,
    Decision,
    Entity,
    Extracted,
    Fact,
    Known,
    Related,
    Relation,
    Summary,
    Utterance,
)
from memrecall.types import Role

_FACT = re.compile(r"(?P<field>\w+): (?P<value>[^.]+)\.")
_RELATION = re.compile(r"(?P<source>\S+) (?P<how>\w+_\w+) (?P<destination>[^\s.]+)")


class WordExtractor:
    """Reads "home: Paris." as a fact that fills a field, "forget home" as its end.

    "A works_at B" is a relation. Whoever says "boom" makes it fail.
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
        return Extracted(tuple(fact for said in utterances for fact in _read(said)))

    async def decide(self, facts: Sequence[Fact], known: Sequence[Known]) -> Decided:
        return Decided(tuple(_decide(fact, known) for fact in facts))

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        found = [
            Relation(m["source"], m["how"], m["destination"], (said.message_id,), said.ts)
            for said in utterances
            for m in _RELATION.finditer(said.text)
        ]
        names = {name for r in found for name in (r.source, r.destination)}
        return Related(tuple(Entity(name, "person") for name in sorted(names)), tuple(found))

    async def summarise(
        self,
        lines: str | Sequence[Utterance | str],
        limit_characters: int,
        language: object = None,
    ) -> Summary:
        texts = [line if isinstance(line, str) else line.text for line in lines]
        return Summary("sum(" + "+".join(text[:12] for text in texts) + ")")


def _read(said: Utterance) -> list[Fact]:
    if said.role is not Role.USER:
        return []
    subject = said.speaker or "user"
    ended = [
        Fact(f"{name} forgotten", subject, "retraction", name, (said.message_id,), negated=True)
        for name in re.findall(r"forget (\w+)", said.text)
    ]
    return ended + [
        Fact(f"{subject}'s {m['field']} is {m['value']}", subject, "general", m["field"],
             (said.message_id,), said.ts)
        for m in _FACT.finditer(said.text)
    ]  # fmt: skip


def _decide(fact: Fact, known: Sequence[Known]) -> Decision:
    same = [k for k in known if (k.subject, k.field) == (fact.subject, fact.field)]
    if fact.negated:
        return Decision("DELETE", fact, same[0].memory_key, reason="taken back") if same else (
            Decision("NONE", fact)
        )  # fmt: skip
    if any(k.text == fact.text for k in same):
        return Decision("NONE", fact, same[0].memory_key)
    if same:
        return Decision("UPDATE", fact, same[0].memory_key, fact.text, "changed")
    return Decision("ADD", fact, None, fact.text)
