"""Adding: messages are stored first; what is made from them may fail and is told, never lost."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from weakref import WeakValueDictionary
from zoneinfo import ZoneInfo

from memrecall.extraction.names import aliases_in
from memrecall.extraction.protocol import Decision, Extractor, Fact, Known, Utterance
from memrecall.library.library import Library
from memrecall.memory.display import AddResult, GraphResult
from memrecall.memory.jobs import Processes, run_processes
from memrecall.memory.records import outcome_item
from memrecall.memory.summaries import SessionSummaries
from memrecall.messages import origin_of
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.search import SearchRequest
from memrecall.store import (
    MemoryQuery,
    NewRelation,
    PendingText,
    PlanOutcome,
    PlanStep,
    RowKey,
    ScopedMessage,
    read_filter,
)
from memrecall.types import (
    NAME_LENGTH,
    Keyword,
    MemoryRecord,
    NewMemory,
    NewMessage,
    Origin,
    Role,
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

    outcomes: tuple[PlanOutcome, ...] = ()
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
        mark = await self._library.store.feed(scope.user_id).version()
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
                page = await listing.page(MemoryQuery(same), limit=_KNOWN_PER_FACT)
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


def _step(
    decision: Decision, known: set[str], said: dict[str, Utterance], marks: Marks
) -> PlanStep:
    """A decision as a step. One that names a memory nobody showed it is not followed blindly."""
    fact = decision.fact
    event, key = decision.event, decision.memory_key
    if key is not None and key not in known:
        event, key = ("ADD" if event == "UPDATE" else "NONE" if event == "DELETE" else event), None
    if event == "DELETE" and key is None:
        event = "NONE"
    if event in ("NONE", "DELETE"):
        return PlanStep(event, memory_key=key, reason=decision.reason)
    sources = [said[name] for name in fact.source_ids if name in said]
    slotted = replace(fact, field=fact.field or decision.field)
    memory = _memory(slotted, decision.text or fact.text, sources, marks)
    return PlanStep(event, memory, key, _origin(sources), decision.reason)


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


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Addition:
    """What is to be added, and how."""

    scope: Scope
    messages: Sequence[NewMessage]
    marks: Marks
    infer: bool
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """The messages are safe: their ids, and the memories that they are themselves."""

    ids: tuple[str, ...]
    fresh: int  # of the messages, those that were not there yet
    outcomes: tuple[PlanOutcome, ...] = ()


class Adder:
    """Stores messages and makes of them what is asked for."""

    def __init__(
        self, library: Library, learner: Learner, extractor: Extractor, processes: Processes
    ) -> None:
        self._library = library
        self._learner = learner
        self._extractor = extractor
        self._processes = processes

    async def store(self, addition: Addition) -> Stored:
        """Store the messages, all or nothing."""
        scope = addition.scope
        if addition.infer:
            written = await self._library.add_messages(scope, addition.messages)
            return Stored(written.ids, written.stored)
        await self._library.vectors.prepare()
        kept = [_as_memory(message, addition.marks) for message in addition.messages]
        written, keys = await self._library.store.write_turn(
            [ScopedMessage(scope, message) for message in addition.messages], kept, actor=ACTOR
        )
        outcomes: list[PlanOutcome] = []
        rows: list[PendingText] = []
        for message, name, key in zip(addition.messages, written.ids, keys, strict=True):
            if key is not None:
                outcomes.append(PlanOutcome("ADD", key, message.content))
                rows.append(PendingText(RowKey(scope.user_id, "message", name), message.content))
                rows.append(PendingText(RowKey(scope.user_id, "memory", key), message.content))
        await self._library.vectors.submit(rows)
        return Stored(written.ids, written.stored, tuple(outcomes))

    async def finish(
        self, addition: Addition, stored: Stored, missed: Sequence[str] = ()
    ) -> AddResult:
        """Make what is to be made of stored messages; the result tells what failed."""
        problems: list[str] = list(missed)
        outcomes: Sequence[PlanOutcome] = stored.outcomes
        relations: list[dict[str, Any]] = []
        if addition.infer:
            said = [
                as_utterance(message, name)
                for message, name in zip(addition.messages, stored.ids, strict=True)
            ]
            learned = await _guard("memories", self._learn(addition, said), problems)
            if learned is not None:
                outcomes = learned.outcomes
                problems += learned.problems
            scope = addition.scope
            found = await _guard("relations", self.relate(scope, said), problems)
            if found is not None:
                relations = found["relations"]
                problems += found["problems"]
            layers = SessionSummaries(self._library.store, scope, self._extractor)
            await _guard("summaries", layers.update(), problems)
        result = AddResult(
            results=[outcome_item(outcome) for outcome in outcomes if outcome.event != "NONE"],
            messages=list(stored.ids),
            stored=stored.fresh,
            relations=relations,
            problems=problems,
        )
        if processes := self._processes.on_add():
            items = [
                {"id": name, "memory": message.content, "role": message.role.value}
                for message, name in zip(addition.messages, stored.ids, strict=True)
            ]
            result["processes"] = await run_processes(processes, items)
        return result

    async def relate(self, scope: Scope, said: Sequence[Utterance]) -> GraphResult:
        """Write the relations that messages tell of into the graph."""
        told = await self._extractor.relations(said, now=datetime.now(UTC))
        names = {entity.name[:NAME_LENGTH]: entity.type for entity in told.entities}
        known = {utterance.message_id for utterance in said}
        new = [
            NewRelation(
                relation.source[:NAME_LENGTH],
                relation.relationship,
                relation.destination[:NAME_LENGTH],
                tuple(name for name in relation.source_ids if name in known),
                relation.valid_from,
                relation.ended,
            )
            for relation in told.relations
        ]
        if new or names:
            await self._library.claim_for_graph(scope)
        graph = self._library.graph(scope)
        await graph.add(dict(names), new)
        for pair in {pair for utterance in said for pair in aliases_in(utterance.text)}:
            if await graph.entities(pair):  # of nobody who is known, it tells nothing yet
                await graph.merge(*sorted(pair))
        return GraphResult(
            entities=[{"name": name, "type": kind} for name, kind in names.items()],
            relations=[
                {
                    "source": relation.source,
                    "relationship": relation.relationship,
                    "destination": relation.destination,
                    "ended": relation.ended,
                }
                for relation in new
            ],
            problems=[told.problem] if told.problem else [],
        )

    async def _learn(self, addition: Addition, said: Sequence[Utterance]) -> Learned:
        scope = addition.scope
        before = await self._library.store.timeline(scope).thread(
            said[0].message_id, session_id=scope.session_id or DEFAULT_NAME, limit=CONTEXT
        )
        context = [Utterance(m.message_id, m.speaker, m.role, m.content, m.ts) for m in before]
        return await self._learner.learn(
            scope, said, addition.marks, prompt=addition.prompt, context=context
        )


async def _guard(name: str, work: Awaitable[Result], problems: list[str]) -> Result | None:
    """What work gives, or None and its failure among the problems: the messages are safe."""
    try:
        return await work
    except asyncio.CancelledError:
        raise
    # An extractor may be anybody's; whatever it raises, the write before it has succeeded.
    except Exception as error:
        problems.append(f"{name}: {type(error).__name__}: {error}")
        return None


def _as_memory(message: NewMessage, marks: Marks) -> tuple[NewMemory, Origin] | None:
    """A message that is remembered as it is."""
    if message.role is Role.SYSTEM:
        return None  # instructions of the application are no memory of the user's
    memory = NewMemory(
        content=message.content,
        memory_type=marks.memory_type or "general",
        layer="short" if marks.layer == "short" else "long",
        metadata={**message.metadata, "role": message.role.value},
        sensitive=marks.sensitive,
        valid_from=message.ts,
        speaker=message.speaker,
        expires_at=marks.expires_at,
    )
    return memory, origin_of(message.role)
