"""From messages to memories: facts, what is known of them, decisions, and their carrying out."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from weakref import WeakValueDictionary
from zoneinfo import ZoneInfo

from memrecall.memory.conversations import origin_of
from memrecall.memory.extraction.facts import Decision, Fact, Known, Utterance
from memrecall.memory.extraction.protocol import Extractor
from memrecall.memory.library import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.store import Outcome, Step, Wanted, read_filter
from memrecall.types import (
    NAME_LENGTH,
    Keyword,
    MemoryRecord,
    NewMemory,
    NewMessage,
    Origin,
)

ACTOR = "extraction"
CONTEXT = 6  # messages before the new ones, for what "it" and "yes" refer to
_KNOWN_PER_FACT = 6
_KNOWN_IN_ALL = 60
_KEYWORDS = 12
_LEAST_TRUSTED = (Origin.TOOL, Origin.IMPORT, Origin.ASSISTANT, Origin.USER)


@dataclass(frozen=True, slots=True)
class Marks:
    """What a caller says of all memories that an add makes."""

    metadata: dict[str, object] = field(default_factory=dict)
    layer: str = "long"
    memory_type: str | None = None
    sensitive: bool = False
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of some messages, and what went wrong on the way."""

    outcomes: tuple[Outcome, ...] = ()
    problems: tuple[str, ...] = ()
    by: str = ""


class Learner:
    """Makes memories from messages. One at a time for each user: decisions build on each other."""

    def __init__(self, library: Library, extractor: Extractor) -> None:
        self._library = library
        self._extractor = extractor
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def learn(
        self,
        scope: Scope,
        utterances: Sequence[Utterance],
        marks: Marks,
        *,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
    ) -> Learned:
        """Extract facts, decide about them and do what was decided."""
        mark = await self._library.store.feed(scope.user_id).mark()
        zone = ZoneInfo(mark.time_zone if mark else "UTC")
        told = await self._extractor.facts(
            utterances, now=datetime.now(UTC), zone=zone, prompt=prompt, context=context
        )
        problems = [told.problem] if told.problem else []
        if not told.facts:
            return Learned((), tuple(problems), told.by)
        lock = self._locks.setdefault(scope.user_id, asyncio.Lock())
        async with lock:
            known = await self._known(scope, told.facts)
            decided = await self._extractor.decide(told.facts, list(known.values()))
            problems += [decided.problem] if decided.problem else []
            roles = {utterance.message_id: utterance for utterance in utterances}
            steps = [_step(decision, set(known), roles, marks) for decision in decided.decisions]
            outcomes = await self._library.apply_plan(scope, steps, actor=ACTOR)
        return Learned(tuple(outcomes), tuple(problems), told.by)

    async def _known(self, scope: Scope, facts: Sequence[Fact]) -> dict[str, Known]:
        """What is known of the same things: by meaning, and by the slot that a fact fills."""
        found: dict[str, Known] = {}
        listing = self._library.store.memory_list(scope)
        for fact in facts:
            if fact.field is not None:
                same = read_filter({"subject": fact.subject, "field": fact.field})
                page = await listing.page(Wanted(same), limit=_KNOWN_PER_FACT)
                found |= {record.memory_key: as_known(record) for record in page.items}
            request = SearchRequest(fact.text[:2000], limit=_KNOWN_PER_FACT, kind="memory")
            hits = await self._library.search(scope, request)
            keys = [hit.key for hit in hits.results if hit.key not in found]
            records = await self._library.store.memories(scope).get_many(keys)
            found |= {record.memory_key: as_known(record) for record in records}
            if len(found) >= _KNOWN_IN_ALL:
                break
        return found


def as_known(record: MemoryRecord) -> Known:
    """A stored memory as deciding sees it."""
    return Known(
        memory_key=record.memory_key,
        text=record.content,
        subject=record.subject or "user",
        field=record.field,
        memory_type=record.memory_type,
        valid_from=record.valid_from,
    )


def as_utterance(message: NewMessage, message_id: str) -> Utterance:
    """A message that has been stored, as extraction reads it."""
    return Utterance(message_id, message.speaker, message.role, message.content, message.ts)


def _step(decision: Decision, known: set[str], said: dict[str, Utterance], marks: Marks) -> Step:
    """A decision as a step. One that names a memory nobody showed it is not followed blindly."""
    fact = decision.fact
    event, key = decision.event, decision.memory_key
    if key is not None and key not in known:
        event, key = ("ADD" if event == "UPDATE" else "NONE" if event == "DELETE" else event), None
    if event == "DELETE" and key is None:
        event = "NONE"
    if event in ("NONE", "DELETE"):
        return Step(event, memory_key=key, reason=decision.reason)
    sources = [said[name] for name in fact.source_ids if name in said]
    slotted = replace(fact, field=fact.field or decision.field)
    memory = _memory(slotted, decision.text or fact.text, sources, marks)
    return Step(event, memory, key, _origin(sources), decision.reason)


def _memory(fact: Fact, text: str, sources: Sequence[Utterance], marks: Marks) -> NewMemory:
    now = datetime.now(UTC)
    said = max((source.ts for source in sources if source.ts is not None), default=None)
    since = fact.valid_from or said
    speakers = {source.speaker for source in sources if source.speaker}
    return NewMemory(
        content=text,
        memory_type=marks.memory_type or fact.memory_type,
        layer="short" if marks.layer == "short" else "long",
        keywords=tuple(Keyword(keyword=word[:NAME_LENGTH]) for word in fact.keywords[:_KEYWORDS]),
        metadata=marks.metadata,
        sensitive=marks.sensitive,
        # What is told of the future is known now: it is found from now on.
        valid_from=since if since is not None and since <= now else None,
        source_message_ids=tuple(source.message_id for source in sources),
        subject=fact.subject[:NAME_LENGTH],
        speaker=speakers.pop() if len(speakers) == 1 else None,
        field=fact.field,
        expires_at=marks.expires_at,
    )


def _origin(sources: Sequence[Utterance]) -> Origin:
    """That of the least trusted message it came from."""
    origins = {origin_of(source.role) for source in sources}
    return next((origin for origin in _LEAST_TRUSTED if origin in origins), Origin.USER)
