"""Short-term memory of a session: its items, their checkpoints, and layered summaries.

Items live in this process and are searched by words. Checkpoints save them, after a number of
messages and at intervals, so that a task survives a crash. Summaries come in three levels: turns,
chunks of turns, the whole session; each level's next summary starts where its last one ended.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from memrecall.errors import InvalidArgument
from memrecall.extraction.protocol import Extractor, Utterance
from memrecall.memory.records import to_utterance
from memrecall.scope import Scope
from memrecall.search.ranking.lexical import rank_texts
from memrecall.store import Checkpoint, Store, StoredSummary
from memrecall.store.database.cursors import require_limit
from memrecall.store.sessions import CHUNKS, NOTHING, SESSION, TURNS, WITHDRAWN_BY
from memrecall.text_length import estimate_tokens
from memrecall.types import Message, check_json, check_text

MOST_ITEMS = 2_000
EVERY_MESSAGES = 20
EVERY_SECONDS = 60.0

MESSAGES_PER_SUMMARY = 6
SUMMARIES_PER_CHUNK = 5
_LENGTHS = {TURNS: 400, CHUNKS: 800, SESSION: 1200}  # characters
_MOST_MESSAGES = 200  # that `context` reads
_MOST_TOKENS = 10_000_000  # more than any model reads
_MOST_REMADE = 10  # withdrawn summaries of each level that one update makes again

Choice = TypeVar("Choice")


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a session's short-term memory."""

    text: str
    role: str = "user"
    speaker: str | None = None
    message_id: str | None = None


class ShortTermMemory:
    """The items of one session; `scratch` is JSON of the task's own, saved in checkpoints too."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        *,
        every_messages: int = EVERY_MESSAGES,
        every_seconds: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if every_messages < 1 or not every_seconds > 0:
            raise InvalidArgument(
                f"every_messages {every_messages} and every_seconds {every_seconds} must be "
                "positive",
                hint="Leave them out for the defaults",
            )
        self._state = store.session_state(scope)
        self._every_messages = every_messages
        self._every_seconds = every_seconds
        self._clock = clock
        self._items: list[Item] = []
        self._hidden: frozenset[str] = frozenset()  # messages that were deleted with a memory
        self._unsaved = 0
        self._saved_at = clock()
        self._ended = False
        self.scratch: dict[str, Any] = {}

    @property
    def items(self) -> tuple[Item, ...]:
        """All items, oldest first, without hidden messages."""
        return tuple(item for item in self._items if item.message_id not in self._hidden)

    async def update(self, erased: Collection[str] = ()) -> None:
        """Drop erased messages, and follow which of the others are hidden."""
        self._items = [item for item in self._items if item.message_id not in erased]
        ids = [item.message_id for item in self._items if item.message_id is not None]
        self._hidden = await self._state.hidden_among(ids)

    async def add(self, items: Sequence[Item | str]) -> Checkpoint | None:
        """Add items; return the checkpoint if one was due."""
        self._require_open()
        new = [Item(item) if isinstance(item, str) else item for item in items]
        for item in new:
            check_text("the text", item.text)
        self._items = [*self._items, *new][-MOST_ITEMS:]
        self._unsaved += len(new)
        is_late = self._clock() - self._saved_at >= self._every_seconds
        is_due = self._unsaved >= self._every_messages or (is_late and self._unsaved > 0)
        return await self.checkpoint() if is_due else None

    def search(self, query: str, limit: int = 10) -> list[Item]:
        """Return the items that share words with a query, best first."""
        items = self.items
        ranked = rank_texts([item.text for item in items], query, limit)
        return [items[match.position] for match in ranked]

    async def checkpoint(self) -> Checkpoint:
        """Save all items and the scratch data now."""
        self._require_open()
        check_json("scratch", self.scratch)
        state = {"items": [asdict(item) for item in self._items], "scratch": self.scratch}
        checkpoint = await self._state.save(state)
        self._unsaved, self._saved_at = 0, self._clock()
        return checkpoint

    async def restore(self) -> bool:
        """Load the last checkpoint; return False if there is none."""
        checkpoint = await self._state.latest()
        if checkpoint is None:
            return False
        self._items = [Item(**item) for item in checkpoint.state["items"]]
        self.scratch = dict(checkpoint.state["scratch"])
        await self.update()
        self._unsaved, self._saved_at = 0, self._clock()
        return True

    async def end(self) -> None:
        """Delete all items and checkpoints."""
        self._require_open()
        self._items, self.scratch, self._ended = [], {}, True
        await self._state.delete_checkpoints()

    def _require_open(self) -> None:
        if self._ended:
            raise InvalidArgument(
                "this session's short-term memory has ended", hint="Call short_term() again"
            )


class SessionSummaries:
    """The layered summaries of one session."""

    def __init__(self, store: Store, scope: Scope, extractor: Extractor) -> None:
        self._state = store.session_state(scope)
        self._extractor = extractor

    async def update(self, *, whole: bool = False) -> list[StoredSummary]:
        """Summarise the messages since the last update; `whole` includes an incomplete batch."""
        stored = await self._state.summaries(withdrawn=True)
        remade = await self._remake(stored)
        stored = [remade.get((s.level, s.number), s) for s in stored]
        turns = await self._summarise_turns(_of_level(stored, TURNS), whole)
        all_turns = [*_of_level(stored, TURNS), *turns]
        chunks = await self._summarise_chunks(all_turns, _of_level(stored, CHUNKS))
        session: list[StoredSummary] = []
        all_chunks = [*_of_level(stored, CHUNKS), *chunks]
        if chunks or (remade and all_chunks) or (whole and all_turns):
            earlier = _of_level(stored, SESSION)
            session = await self._summarise_session(earlier, all_chunks, all_turns)
        new = [*turns, *chunks, *session]
        await self._state.add_summaries(new)
        return new

    async def _remake(
        self, stored: Sequence[StoredSummary]
    ) -> dict[tuple[int, int], StoredSummary]:
        """Make withdrawn summaries again from what is left; return them by level and number."""
        remade: dict[tuple[int, int], StoredSummary] = {}
        for level in (TURNS, CHUNKS):
            withdrawn = [s for s in _of_level(stored, level) if s.made_by == WITHDRAWN_BY][
                -_MOST_REMADE:
            ]
            turns = [remade.get((TURNS, s.number), s) for s in _of_level(stored, TURNS)]
            for old in withdrawn:
                remade[level, old.number] = await self._make_again(old, turns)
        await self._state.add_summaries(list(remade.values()))
        return remade

    async def _make_again(
        self, old: StoredSummary, turns: Sequence[StoredSummary]
    ) -> StoredSummary:
        span = (old.first_sequence_no, old.last_sequence_no)
        lines: list[Utterance | str]
        if old.level == TURNS:
            messages = await self._state.messages_between(*span)
            lines = [to_utterance(m) for m in await self._state.without_forgotten(messages)]
        else:
            lines = [s.text for s in turns if span[0] <= s.first_sequence_no <= span[1] and s.text]
        return await self._summarise(old.level, old.number, lines, span)

    async def context(
        self, max_tokens: int, profile: Sequence[tuple[str, Sequence[str]]] = ()
    ) -> dict[str, Any]:
        """Return the session within `max_tokens`, for a prompt, and what the text consists of.

        That is profile facts, summaries, then the session's last messages in full, as many as fit.
        `profile` are facts with the ids of their source messages; `sources` are the ids of the
        messages shown and of those facts, `covers` the sequence numbers that summaries stand for.
        """
        require_limit("max_tokens", max_tokens, _MOST_TOKENS)
        stored = await self._state.summaries()
        latest = await self._state.last_messages(_MOST_MESSAGES)
        share = max_tokens * 2 // 3 if stored or profile else max_tokens
        lines, cost, first = _last_lines(latest, share)
        if not lines:  # The last message comes before everything else.
            lines, cost, first = _last_lines(latest, max_tokens)
        summaries, left = _fitting(
            _summaries_before(stored, first), max_tokens - cost, lambda summary: summary.text
        )
        facts, left = _fitting(profile, left if latest else 0, lambda fact: fact[0])
        # What summaries and facts leave of their share goes to earlier messages.
        lines, cost, _ = _last_lines(latest, cost + left)
        others = [*(fact for fact, _ in facts), *(s.text for s in reversed(summaries))]
        shown = latest[len(latest) - len(lines) :]
        ids = [name for _, evidence in facts for name in evidence]
        return {
            "text": "\n".join([*others, *lines]),
            "tokens": cost + sum(estimate_tokens(text) + 1 for text in others),
            "messages": len(lines),
            "summaries": len(summaries),
            "profile": len(facts),
            "sources": list(dict.fromkeys([*ids, *(message.message_id for message in shown)])),
            "covers": [[s.first_sequence_no, s.last_sequence_no] for s in reversed(summaries)],
        }

    async def _summarise_turns(
        self, stored: Sequence[StoredSummary], whole: bool
    ) -> list[StoredSummary]:
        after = _last_sequence_no(stored)
        new: list[StoredSummary] = []
        while batch := await self._state.messages_after(after, MESSAGES_PER_SUMMARY):
            if len(batch) < MESSAGES_PER_SUMMARY and not whole:
                break
            span = (batch[0].sequence_no, batch[-1].sequence_no)
            utterances = [to_utterance(m) for m in await self._state.without_forgotten(batch)]
            number = len(stored) + len(new) + 1
            new.append(await self._summarise(TURNS, number, utterances, span))
            after = batch[-1].sequence_no
        return new

    async def _summarise_chunks(
        self, turns: Sequence[StoredSummary], stored: Sequence[StoredSummary]
    ) -> list[StoredSummary]:
        after = _last_sequence_no(stored)
        pending = [summary for summary in turns if summary.first_sequence_no > after]
        new: list[StoredSummary] = []
        while len(pending) >= SUMMARIES_PER_CHUNK:
            batch, pending = pending[:SUMMARIES_PER_CHUNK], pending[SUMMARIES_PER_CHUNK:]
            span = (batch[0].first_sequence_no, batch[-1].last_sequence_no)
            texts = [summary.text for summary in batch if summary.text]
            number = len(stored) + len(new) + 1
            new.append(await self._summarise(CHUNKS, number, texts, span))
        return new

    async def _summarise_session(
        self,
        earlier: Sequence[StoredSummary],
        chunks: Sequence[StoredSummary],
        turns: Sequence[StoredSummary],
    ) -> list[StoredSummary]:
        """Return a new session summary: the last one with what has come since, if anything."""
        after = _last_sequence_no(earlier)
        new = [summary for summary in chunks if summary.first_sequence_no > after]
        covered = _last_sequence_no(new) or after
        new += [summary for summary in turns if summary.first_sequence_no > covered]
        if not new:
            return []
        parts = [*earlier[-1:], *new]
        span = (parts[0].first_sequence_no, parts[-1].last_sequence_no)
        texts = [summary.text for summary in parts if summary.text]
        return [await self._summarise(SESSION, len(earlier) + 1, texts, span)]

    async def _summarise(
        self, level: int, number: int, lines: Sequence[Utterance | str], span: tuple[int, int]
    ) -> StoredSummary:
        if not lines:
            return StoredSummary(level, number, *span, "", NOTHING, datetime.now(UTC))
        summary = await self._extractor.summarise(lines, _LENGTHS[level])
        return StoredSummary(level, number, *span, summary.text, summary.by, datetime.now(UTC))


def _of_level(summaries: Sequence[StoredSummary], level: int) -> list[StoredSummary]:
    return [summary for summary in summaries if summary.level == level]


def _last_sequence_no(summaries: Sequence[StoredSummary]) -> int:
    return summaries[-1].last_sequence_no if summaries else 0


def _last_lines(messages: Sequence[Message], budget: int) -> tuple[list[str], int, int]:
    """Return a session's last messages as lines, their cost, and their first sequence number."""
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


def _fitting(
    items: Sequence[Choice], budget: int, text_of: Callable[[Choice], str]
) -> tuple[list[Choice], int]:
    """Return the first items that fit a budget of tokens, and what is left of it."""
    chosen: list[Choice] = []
    for item in items:
        price = estimate_tokens(text_of(item)) + 1
        if price > budget:
            break
        budget -= price
        chosen.append(item)
    return chosen, budget


def _summaries_before(summaries: Sequence[StoredSummary], sequence_no: int) -> list[StoredSummary]:
    """Return summaries of what came before a message, latest first, without overlaps."""
    chosen: list[StoredSummary] = []
    for level in (TURNS, CHUNKS, SESSION):
        above = _of_level(summaries, level + 1)
        for summary in sorted(_of_level(summaries, level), key=lambda s: -s.number):
            is_covered = any(s.last_sequence_no >= summary.last_sequence_no for s in above)
            if summary.first_sequence_no < sequence_no and not is_covered:
                chosen.append(summary)
                if level == SESSION:
                    break  # The last session summary includes the earlier ones.
    return chosen
