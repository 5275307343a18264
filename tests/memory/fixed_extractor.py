"""An extractor that returns what a test says, for the texts that it says it for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

from memrecall.extraction.protocol import (
    USER,
    Entity,
    Extracted,
    Fact,
    KnownMemory,
    Relation,
    Summary,
    Utterance,
)


@dataclass(frozen=True, slots=True)
class Known:
    """What an extractor finds in one text: facts, and relations as source, name, destination.

    `name` is the user's.
    """

    facts: tuple[Fact, ...] = ()
    relations: tuple[tuple[str, str, str], ...] = ()
    name: str | None = None


@dataclass(slots=True)
class FixedExtractor:
    """Finds what `texts` says in messages with these texts; every fact is new."""

    texts: Mapping[str, Known] = field(default_factory=dict)

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
        """Return the facts and relations of the texts, each with its message."""
        facts = tuple(
            replace(fact, source_ids=(utterance.message_id,), valid_from=utterance.ts)
            for utterance in utterances
            for fact in self._known(utterance).facts
        )
        relations = tuple(
            Relation(*named, (utterance.message_id,), utterance.ts)
            for utterance in utterances
            for named in self._known(utterance).relations
        )
        names = {end for relation in relations for end in (relation.source, relation.destination)}
        users = tuple(
            Entity(USER, "person", (name,), (utterance.message_id,))
            for utterance in utterances
            if (name := self._known(utterance).name)
        )
        entities = (*users, *(Entity(name) for name in sorted(names)))
        return Extracted(facts, entities, relations)

    async def summarise(
        self, lines: str | Sequence[Utterance | str], limit_characters: int
    ) -> Summary:
        """Return all lines."""
        texts = [line if isinstance(line, str) else line.text for line in lines]
        return Summary("\n".join(texts))

    def _known(self, utterance: Utterance) -> Known:
        return self.texts.get(utterance.text, Known())
