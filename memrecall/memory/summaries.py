"""Summaries of a session in layers: turns, then chunks of them, then the whole session.

Every layer is kept, and only what is new is summarised: a layer's next summary starts where its
last one ended. `state` picks from the layers what fits into a prompt, the latest in most detail.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memrecall.errors import InvalidArgument
from memrecall.extraction.protocol import Extractor, Utterance
from memrecall.scope import Scope
from memrecall.store import Store, StoredSummary
from memrecall.text_length import estimate_tokens
from memrecall.types import Message

TURNS, CHUNKS, SESSION = 0, 1, 2
MESSAGES_A_SUMMARY = 6
SUMMARIES_A_CHUNK = 5
_LIMITS = {TURNS: 400, CHUNKS: 800, SESSION: 1200}  # characters
_LATEST = 200  # messages that a state looks at


@dataclass(frozen=True, slots=True)
class SummaryContext:
    """What a prompt is told of a session, within a number of tokens."""

    text: str
    tokens: int
    messages: int  # of the session's end, in their own words
    summaries: int


class SessionSummaries:
    """Summarises the session of one scope."""

    def __init__(self, store: Store, scope: Scope, extractor: Extractor) -> None:
        self._room = store.session_state(scope)
        self._extractor = extractor

    async def update(self, *, whole: bool = False) -> list[StoredSummary]:
        """Summarise what has come since the last time; with `whole` also the session's rest."""
        kept = await self._room.summaries()
        turns = await self._turns([s for s in kept if s.level == TURNS], whole)
        below = [s for s in (*kept, *turns) if s.level == TURNS]
        chunks = await self._joined(CHUNKS, below, [s for s in kept if s.level == CHUNKS])
        upper = [s for s in (*kept, *chunks) if s.level == CHUNKS]
        session = await self._session(kept, upper, below) if chunks or (whole and below) else []
        made = [*turns, *chunks, *session]
        await self._room.add_summaries(made)
        return made

    async def state(self, max_tokens: int) -> SummaryContext:
        """The session within so many tokens: the oldest summed up most."""
        if max_tokens < 1:
            raise InvalidArgument(f"max_tokens {max_tokens} is out of range", hint="Use 1 or more")
        kept = await self._room.summaries()
        latest = await self._room.last_messages(_LATEST)
        lines, cost, first = _last_words(latest, max_tokens * 2 // 3 if kept else max_tokens)
        chosen: list[str] = []
        for summary in _covering(kept, first):
            price = estimate_tokens(summary.text) + 1
            if cost + price > max_tokens:
                break
            cost += price
            chosen.append(summary.text)
        text = "\n".join([*reversed(chosen), *lines])
        return SummaryContext(text, cost, len(lines), len(chosen))

    async def _turns(self, kept: Sequence[StoredSummary], whole: bool) -> list[StoredSummary]:
        after = kept[-1].last_sequence_no if kept else 0
        made: list[StoredSummary] = []
        while batch := await self._room.messages_after(after, MESSAGES_A_SUMMARY):
            if len(batch) < MESSAGES_A_SUMMARY and not whole:
                break
            said = [Utterance(m.message_id, m.speaker, m.role, m.content, m.ts) for m in batch]
            span = (batch[0].sequence_no, batch[-1].sequence_no)
            made.append(await self._summarise(TURNS, len(kept) + len(made) + 1, said, span))
            after = batch[-1].sequence_no
        return made

    async def _joined(
        self, level: int, below: Sequence[StoredSummary], kept: Sequence[StoredSummary]
    ) -> list[StoredSummary]:
        after = kept[-1].last_sequence_no if kept else 0
        waiting = [summary for summary in below if summary.first_sequence_no > after]
        made: list[StoredSummary] = []
        while len(waiting) >= SUMMARIES_A_CHUNK:
            part, waiting = waiting[:SUMMARIES_A_CHUNK], waiting[SUMMARIES_A_CHUNK:]
            span = (part[0].first_sequence_no, part[-1].last_sequence_no)
            texts = [summary.text for summary in part]
            made.append(await self._summarise(level, len(kept) + len(made) + 1, texts, span))
        return made

    async def _session(
        self,
        kept: Sequence[StoredSummary],
        chunks: Sequence[StoredSummary],
        turns: Sequence[StoredSummary],
    ) -> list[StoredSummary]:
        """The last summary of the session with what has come since."""
        earlier = [summary for summary in kept if summary.level == SESSION]
        after = earlier[-1].last_sequence_no if earlier else 0
        fresh = [summary for summary in chunks if summary.first_sequence_no > after]
        upto = fresh[-1].last_sequence_no if fresh else after
        fresh += [summary for summary in turns if summary.first_sequence_no > upto]
        if not fresh:
            return []
        before = earlier[-1:]
        span = ([*before, *fresh][0].first_sequence_no, fresh[-1].last_sequence_no)
        texts = [summary.text for summary in (*before, *fresh)]
        return [await self._summarise(SESSION, len(earlier) + 1, texts, span)]

    async def _summarise(
        self, level: int, number: int, lines: Sequence[Utterance | str], span: tuple[int, int]
    ) -> StoredSummary:
        made = await self._extractor.summarise(lines, _LIMITS[level])
        return StoredSummary(level, number, *span, made.text, made.by, datetime.now(UTC))


def _last_words(messages: Sequence[Message], budget: int) -> tuple[list[str], int, int]:
    """The end of a session in its own words, their cost, and the first number they have."""
    lines: list[str] = []
    cost, first = 0, (messages[-1].sequence_no + 1 if messages else 1)
    for message in reversed(messages):
        line = f"{message.speaker or message.role.value}: {message.content}"
        price = estimate_tokens(line) + 1
        if cost + price > budget:
            break
        lines.append(line)
        cost, first = cost + price, message.sequence_no
    return lines[::-1], cost, first


def _covering(kept: Sequence[StoredSummary], before: int) -> list[StoredSummary]:
    """Summaries of what was said before a number, the latest first, none told twice."""
    chosen: list[StoredSummary] = []
    for level in (TURNS, CHUNKS, SESSION):
        for summary in sorted((s for s in kept if s.level == level), key=lambda s: -s.number):
            above = [s for s in kept if s.level == level + 1]
            told_above = any(s.last_sequence_no >= summary.last_sequence_no for s in above)
            if summary.first_sequence_no < before and not told_above:
                chosen.append(summary)
                if level == SESSION:
                    break  # the last one has the earlier ones in it
    return chosen
