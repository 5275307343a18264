"""The extractor that needs no model."""

from collections.abc import Sequence
from datetime import datetime, tzinfo

from memrecall.extraction.protocol import (
    Decided,
    Extracted,
    Fact,
    Known,
    Related,
    Summary,
    Utterance,
)
from memrecall.extraction.rules.deciding import decide
from memrecall.extraction.rules.extracting import facts_of, tell
from memrecall.extraction.rules.relating import relate
from memrecall.extraction.rules.summarising import summarise
from memrecall.model.prompts import Language


class RuleExtractor:
    """Reads conversations by rules, in Chinese and English: the same text, the same result."""

    async def facts(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
    ) -> Extracted:
        """The facts that the utterances tell; `prompt` is for models and changes nothing here."""
        del prompt
        return Extracted(tuple(facts_of(tell(utterances, now=now, zone=zone, context=context))))

    async def decide(self, facts: Sequence[Fact], known: Sequence[Known]) -> Decided:
        """What to do for each fact, given what is known."""
        return Decided(tuple(decide(facts, known)))

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        """The entities that the utterances name and how they relate."""
        entities, relations = relate(utterances, now=now)
        return Related(tuple(entities), tuple(relations))

    async def summarise(
        self,
        lines: str | Sequence[Utterance | str],
        limit_characters: int,
        language: Language | None = None,
    ) -> Summary:
        """The most telling sentences, in their order, within so many characters."""
        return Summary(summarise(lines, limit_characters, language))
