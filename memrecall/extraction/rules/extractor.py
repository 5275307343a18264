"""The extractor that needs no model."""

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
from memrecall.workers import in_process, in_thread


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
        arguments = (_read_facts, utterances, now, zone, context)
        return await in_process(text_length(*utterances, *context), *arguments)

    async def decide(self, facts: Sequence[Fact], known: Sequence[KnownMemory]) -> Decided:
        """Return what to do for each fact, given the known memories."""
        # In a thread: the decisions are about these facts, and not about copies.
        return Decided(tuple(await in_thread(decide, facts, known)))

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        """Return the entities that the utterances name, and their relations."""
        return await in_process(text_length(*utterances), build_graph, utterances, now)

    async def summarise(
        self, lines: str | Sequence[Utterance | str], limit_characters: int
    ) -> Summary:
        """Return the most informative sentences, in order, within the limit."""
        length = text_length(*([lines] if isinstance(lines, str) else lines))
        return Summary(await in_process(length, summarise, lines, limit_characters))


def _read_facts(
    utterances: Sequence[Utterance], now: datetime, zone: tzinfo, context: Sequence[Utterance]
) -> Extracted:
    facts = build_facts(read_statements(utterances, now=now, zone=zone, context=context))
    claims = build_facts(read_statements(claimed_statements(utterances), now=now, zone=zone))
    return Extracted(tuple(facts), claims=tuple(claims))
