"""Summaries of sessions: a model's are stored in levels, those without a model are computed.

A model summarises turns, chunks of turns and the whole session. Each level's next summary starts
where its last one ended, so that work which stops can go on at any time. It is done in the
background, a piece at a time: nobody waits for it. What takes more than one piece, such as a
session that was imported, is visible as a job, which a later process takes up again.

Without a model, a summary is the most informative sentences of the last messages, computed when it
is read. Nothing is stored and no job runs, so a deleted message is in no later summary.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from memrecall.errors import Conflict, describe_for_log
from memrecall.extraction.protocol import Extractor, Utterance, text_length
from memrecall.extraction.summaries import summarise, summarise_with
from memrecall.memory.jobs import Jobs
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import JOB_PREFIX, SessionState, Store, StoredSummary
from memrecall.store.database.cursors import require_limit
from memrecall.store.sessions import CHUNKS, NOTHING, SESSION, TURNS
from memrecall.text_length import estimate_tokens, fitting_characters
from memrecall.timing import in_background, seconds_left
from memrecall.types import Message
from memrecall.workers import in_process

log = logging.getLogger(__name__)

MESSAGES_PER_SUMMARY = 6
SUMMARIES_PER_CHUNK = 5  # also the most summaries of turns in one piece
_PIECE_CHARACTERS = 2_000  # after which a piece ends: rules read as many in 70 ms
_LENGTHS = {TURNS: 400, CHUNKS: 800, SESSION: 1200}  # characters
_MOST_MESSAGES = 200  # that `context` shows, and that a summary without a model covers
_MOST_CHARACTERS = 20_000  # that a summary without a model reads, in some 100 ms
_SUMMARY_TOKENS = range(20, 401)  # of a summary without a model in a prompt
_MOST_TOKENS = 10_000_000  # more than any model reads
_MOST_REMADE = 10  # withdrawn summaries of each level that one update makes again
SUMMARIES_JOB = "summaries"  # the kind of the jobs that summarise what takes long
_PATIENCE, _SHARE = 2.0, 0.25  # seconds, or share of a deadline, that a reader waits

Choice = TypeVar("Choice")


async def summarise_text(
    state: SessionState, *, before: int | None = None, tokens: int | None = None
) -> list[StoredSummary]:
    """Return a summary, without a model, of a session's last messages; nothing of no messages.

    With `before`, it covers the last messages before that sequence number. It is not stored.
    """
    messages = await state.last_messages(_MOST_MESSAGES, before=before)
    lines: list[Utterance] = []
    left = _MOST_CHARACTERS
    for message in reversed(await state.without_forgotten(messages)):
        if left > 0:
            lines.append(replace(Utterance.of(message), text=message.content[:left]))
            left -= len(message.content)
    lines.reverse()
    limit = _LENGTHS[SESSION]
    if tokens is not None:
        words = "".join(f"{line.speaker}{line.text}" for line in lines)
        limit = min(limit, fitting_characters(words, tokens))
    text = await in_process(text_length(*lines), summarise, lines, limit)
    if not text:
        return []
    numbers = {message.message_id: message.sequence_no for message in messages}
    span = (numbers[lines[0].message_id], numbers[lines[-1].message_id])
    return [StoredSummary(SESSION, 1, *span, text, "text", datetime.now(UTC))]


class SessionSummaries:
    """The summaries of one session; without an extractor, none are stored."""

    def __init__(self, store: Store, scope: Scope, extractor: Extractor | None) -> None:
        self._state = store.session_state(scope)
        self._extractor = extractor
        self.has_more = False  # after the last piece

    async def update(self, *, whole: bool = False) -> list[StoredSummary]:
        """Summarise the messages since the last update; `whole` includes an incomplete batch."""
        new: list[StoredSummary] = []
        while piece := await self.update_piece(whole=whole, is_first=not new):
            new += piece
        return new

    async def update_piece(
        self, *, whole: bool = False, is_first: bool = False
    ) -> list[StoredSummary]:
        """Summarise the next messages; return nothing if there are none.

        The first piece makes summaries again that were withdrawn.
        """
        new_turns = await self._summarise_turns(whole)
        remade = await self._remake() if is_first and (new_turns or whole) else []
        last_chunk = await self._state.last_summaries(CHUNKS, 1)
        # Fewer than a chunk are left each time.
        turns = await self._state.last_summaries(TURNS, SUMMARIES_PER_CHUNK)
        turns = [s for s in turns if s.first_sequence_no > _end_of(last_chunk)] + new_turns
        chunks: list[StoredSummary] = []
        if len(turns) >= SUMMARIES_PER_CHUNK:
            parts = turns[:SUMMARIES_PER_CHUNK]
            span = (parts[0].first_sequence_no, parts[-1].last_sequence_no)
            texts = [summary.text for summary in parts if summary.text]
            chunks = [await self._summarise(CHUNKS, _next_number(last_chunk), texts, span)]
        session: list[StoredSummary] = []
        if chunks or (whole and not self.has_more) or (remade and last_chunk):
            session = await self._summarise_session(chunks, turns)
        new = [*new_turns, *chunks, *session]
        await self._state.add_summaries(new)
        return new

    async def _remake(self) -> list[StoredSummary]:
        """Rebuild withdrawn summaries from the remaining messages."""
        state, remade = self._state, list[StoredSummary]()
        for level in (TURNS, CHUNKS):
            again: list[StoredSummary] = []
            for old in await state.withdrawn_summaries(level, _MOST_REMADE):
                span = (old.first_sequence_no, old.last_sequence_no)
                lines: list[Utterance | str]
                if level == TURNS:
                    left = await state.without_forgotten(await state.messages_between(*span))
                    lines = [Utterance.of(message) for message in left]
                else:
                    lines = [s.text for s in await state.summaries_between(TURNS, *span) if s.text]
                again.append(await self._summarise(level, old.number, lines, span))
            await state.add_summaries(again)
            remade += again
        return remade

    async def context(
        self, max_tokens: int, profile: Sequence[tuple[str, Sequence[str]]] = ()
    ) -> dict[str, Any]:
        """Return the session within `max_tokens`, for a prompt, and what the text consists of.

        That is profile facts, summaries, then the session's last messages in full, as many as fit.
        `profile` are facts with the ids of their source messages; `sources` are the ids of the
        messages shown and of those facts, `covers` the sequence numbers that summaries stand for.
        """
        require_limit("max_tokens", max_tokens, _MOST_TOKENS)
        stored = [] if self._extractor is None else await self._state.summaries()
        latest = await self._state.last_messages(_MOST_MESSAGES)
        share = max_tokens * 2 // 3 if stored or profile else max_tokens
        lines, cost, first = _last_lines(latest, share)
        room = 0  # for a summary without a model, of what does not fit
        if self._extractor is None and not len(lines) == len(latest) < _MOST_MESSAGES:
            lines, cost, first = _last_lines(latest, max_tokens * 2 // 3)
            room = min((max_tokens - cost) // (2 if profile else 1), _SUMMARY_TOKENS[-1])
        if not lines:  # The last message comes before everything else.
            lines, cost, first = _last_lines(latest, max_tokens)
            room = min(room, max_tokens - cost)
        room = room if room in _SUMMARY_TOKENS else 0
        summaries, left = _fitting(
            _summaries_before(stored, first), max_tokens - cost - room, lambda summary: summary.text
        )
        facts, left = _fitting(profile, left if latest else 0, lambda fact: fact[0])
        # What summaries and facts leave of their share goes to earlier messages.
        lines, cost, first = _last_lines(latest, cost + left)
        if room:
            summaries = await summarise_text(self._state, before=first, tokens=room - 1)
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

    async def _summarise_turns(self, whole: bool) -> list[StoredSummary]:
        last = await self._state.last_summaries(TURNS, 1)
        after, number = _end_of(last), _next_number(last)
        new: list[StoredSummary] = []
        characters = 0
        while True:
            batch = await self._state.messages_after(after, MESSAGES_PER_SUMMARY)
            self.has_more = len(batch) == MESSAGES_PER_SUMMARY or (whole and bool(batch))
            is_full = len(new) == SUMMARIES_PER_CHUNK or characters >= _PIECE_CHARACTERS
            if is_full or not self.has_more:
                return new
            span = (batch[0].sequence_no, batch[-1].sequence_no)
            utterances = [Utterance.of(m) for m in await self._state.without_forgotten(batch)]
            new.append(await self._summarise(TURNS, number + len(new), utterances, span))
            after = batch[-1].sequence_no
            characters += sum(len(message.content) for message in batch)

    async def _summarise_session(
        self, new_chunks: Sequence[StoredSummary], turns: Sequence[StoredSummary]
    ) -> list[StoredSummary]:
        """Return a new session summary: the last one with what has come since, if anything."""
        earlier = await self._state.last_summaries(SESSION, 1)
        after = _end_of(earlier)
        chunks = await self._state.summaries_between(CHUNKS, after + 1)
        new = [*chunks, *(chunk for chunk in new_chunks if chunk.first_sequence_no > after)]
        covered = _end_of(new) or after
        new += [summary for summary in turns if summary.first_sequence_no > covered]
        if not new:
            return []
        parts = [*earlier, *new]
        span = (parts[0].first_sequence_no, parts[-1].last_sequence_no)
        texts = [summary.text for summary in parts if summary.text]
        return [await self._summarise(SESSION, _next_number(earlier), texts, span)]

    async def _summarise(
        self, level: int, number: int, lines: Sequence[Utterance | str], span: tuple[int, int]
    ) -> StoredSummary:
        if not lines:
            return StoredSummary(level, number, *span, "", NOTHING, datetime.now(UTC))
        summary = await summarise_with(self._extractor, lines, _LENGTHS[level])
        return StoredSummary(level, number, *span, summary.text, summary.by, datetime.now(UTC))


class SummaryWriter:
    """Summarises sessions in the background."""

    def __init__(self, store: Store, extractor: Extractor | None, jobs: Jobs) -> None:
        self._store = store
        self._extractor = extractor
        self._jobs = jobs
        if extractor is not None:
            jobs.continued.add(SUMMARIES_JOB)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()  # sessions that got messages while they are summarised
        self._turn = asyncio.Lock()  # of one piece at a time, first come first served

    def expect(self, scope: Scope) -> None:
        """Let a model summarise what is new in a session soon; nobody waits for it."""
        if self._extractor is None:
            return
        job_id = _job_id(scope)
        if job_id in self._tasks:
            self._again.add(job_id)
        else:
            self._tasks[job_id] = in_background(self._run(scope, job_id))

    async def update(self, scope: Scope, *, whole: bool) -> tuple[int, list[StoredSummary]]:
        """Summarise all of a session now; return how many are new, and all summaries.

        Without a model, no summary is new and one is computed.
        """
        state = self._store.session_state(scope)
        if self._extractor is None:
            return 0, await summarise_text(state)
        await self.settle(scope)
        new = await self._summaries_of(scope).update(whole=whole)
        return len(new), await state.summaries()

    def _summaries_of(self, scope: Scope) -> SessionSummaries:
        """Return the summaries of a whole session, which may belong to several projects."""
        whole = replace(scope, all_projects=True)
        return SessionSummaries(self._store, whole, self._extractor)

    async def settle(self, scope: Scope) -> None:
        """Wait a moment for a session's summaries."""
        if task := self._tasks.get(_job_id(scope)):
            patience = min(_PATIENCE, _SHARE * seconds_left(_PATIENCE / _SHARE))
            await asyncio.wait([task], timeout=patience)

    async def close(self) -> None:
        """Stop; what is left is done later."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, scope: Scope, job_id: str) -> None:
        summaries = self._summaries_of(scope)
        try:
            while True:
                self._again.discard(job_id)
                await self._piece(summaries, is_first=True)
                if summaries.has_more:
                    about = {
                        "kind": SUMMARIES_JOB,
                        "agent_id": scope.agent_id,
                        "session_id": scope.session_id or DEFAULT_NAME,
                    }
                    await self._jobs.run(
                        self._store,
                        partial(self._catch_up, summaries),
                        scope.user_id,
                        job_id,
                        about,
                        again=True,
                    )
                if job_id not in self._again:
                    return
        except Conflict:
            log.info("another process summarises the session")
        # An extractor may be a plugin. The next messages of the session are another attempt.
        except Exception as error:
            log.warning("a session is not summarised yet: %s", describe_for_log(error))
        finally:
            del self._tasks[job_id]

    async def _catch_up(self, summaries: SessionSummaries) -> dict[str, Any]:
        made = 0
        while piece := await self._piece(summaries):
            made += len(piece)
        return {"summaries": made}

    async def _piece(
        self, summaries: SessionSummaries, *, is_first: bool = False
    ) -> list[StoredSummary]:
        async with self._turn:
            return await summaries.update_piece(is_first=is_first)


def _job_id(scope: Scope) -> str:
    """Return the id of the job for a session, the same in every process."""
    session = f"{scope.user_id}\n{scope.agent_id}\n{scope.session_id or DEFAULT_NAME}"
    return f"{JOB_PREFIX}s{hashlib.sha256(session.encode()).hexdigest()[:16]}"


def _end_of(last: Sequence[StoredSummary]) -> int:
    return last[-1].last_sequence_no if last else 0


def _next_number(last: Sequence[StoredSummary]) -> int:
    return last[-1].number + 1 if last else 1


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
        above = [summary for summary in summaries if summary.level == level + 1]
        same = [summary for summary in summaries if summary.level == level]
        for summary in sorted(same, key=lambda s: -s.number):
            is_covered = any(s.last_sequence_no >= summary.last_sequence_no for s in above)
            if summary.first_sequence_no < sequence_no and not is_covered:
                chosen.append(summary)
                if level == SESSION:
                    break  # The last session summary includes the earlier ones.
    return chosen
