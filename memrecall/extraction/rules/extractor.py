"""The extractor that needs no model."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, tzinfo

from memrecall.extraction.decisions import decide
from memrecall.extraction.protocol import (
    Decided,
    Extracted,
    Fact,
    KnownMemory,
    Related,
    Summary,
    Utterance,
    text_length,
)
from memrecall.extraction.rules.conversation import build_facts, read_statements
from memrecall.extraction.sentences import claimed_statements
from memrecall.extraction.stated_graph import build_graph
from memrecall.extraction.summaries import summarise
from memrecall.processes import SMALL_TEXT, run_on_text
from memrecall.types import Language


class RuleExtractor:
    """Reads conversations by rules, in Chinese and English; equal texts give equal results."""

    async def facts(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
    ) -> Extracted:
        """Return the facts of the utterances; `prompt` is for models and has no effect here."""
        del prompt
        length = text_length(*utterances, *context)
        return await run_on_text(length, _read_facts, utterances, now, zone, context)

    async def decide(self, facts: Sequence[Fact], known: Sequence[KnownMemory]) -> Decided:
        """Return what to do for each fact, given the known memories."""
        texts = [*(fact.text for fact in facts), *(memory.text for memory in known)]
        if text_length(*texts) <= SMALL_TEXT:
            return Decided(tuple(decide(facts, known)))
        # In a thread: the decisions are about these facts, and not about copies.
        return Decided(tuple(await asyncio.to_thread(decide, facts, known)))

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        """Return the entities that the utterances name, and their relations."""
        return await run_on_text(text_length(*utterances), _read_relations, utterances, now)

    async def summarise(
        self,
        lines: str | Sequence[Utterance | str],
        limit_characters: int,
        language: Language | None = None,
    ) -> Summary:
        """Return the most informative sentences, in order, within the limit."""
        length = len(lines) if isinstance(lines, str) else text_length(*lines)
        text = await run_on_text(length, summarise, lines, limit_characters, language)
        return Summary(text)


def _read_facts(
    utterances: Sequence[Utterance], now: datetime, zone: tzinfo, context: Sequence[Utterance]
) -> Extracted:
    statements = read_statements(utterances, now=now, zone=zone, context=context)
    claims = read_statements(claimed_statements(utterances), now=now, zone=zone)
    return Extracted(tuple(build_facts(statements)), claims=tuple(build_facts(claims)))


def _read_relations(utterances: Sequence[Utterance], now: datetime) -> Related:
    entities, relations = build_graph(utterances, now=now)
    return Related(tuple(entities), tuple(relations))
