"""Ingestion: messages are stored first; what is derived from them may fail and is reported."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Literal, TypeVar
from weakref import WeakValueDictionary
from zoneinfo import ZoneInfo

from memrecall.errors import InvalidArgument, OutdatedPlan
from memrecall.extraction.protocol import (
    RETRACTION,
    USER,
    Extracted,
    Extractor,
    Fact,
    KnownMemory,
    Utterance,
)
from memrecall.extraction.summaries import summarise_with
from memrecall.library.library import Library
from memrecall.memory.jobs import WORK, Jobs, Processes, run_process
from memrecall.memory.results import outcome_item
from memrecall.memory.summaries import SummaryWriter
from memrecall.messages import origin_of
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.search import SearchRequest
from memrecall.store import (
    GONE,
    NOT_ENDED,
    MemoryQuery,
    NewRelation,
    PlanOutcome,
    PlanStep,
    Reading,
    WriteResult,
    WriteStatus,
)
from memrecall.store.privacy import protect_new
from memrecall.text.tokens import replace_characters
from memrecall.types import (
    EXTRACTION,
    NAME_LENGTH,
    PROCEDURAL,
    Keyword,
    MemoryRecord,
    NewMemory,
    NewMessage,
    Origin,
    Role,
    format_time,
    parse_time,
)

NO_MODEL = "No model is configured, so what was said is kept as it was said; set MEMRECALL_MODEL"
"""What `add` says without a model."""

ADD_JOB = "add"  # the kind of the jobs that finish an addition
CONTEXT = 6  # messages before the new ones, for what "it" and "yes" refer to
MOST_KNOWN = 60  # memories that a model is shown with new messages
_RELATED_PER_MESSAGE = 6
_LONGEST_QUERY = 2_000
_MOST_KEYWORDS = 12
_MOST_PLANS = 20  # for one addition, while other processes write too
_PROCEDURE_LENGTH = 4_000  # characters
_LEAST_TRUSTED_FIRST = (Origin.TOOL, Origin.IMPORT, Origin.ASSISTANT, Origin.USER)

# At most twenty openings: what is not said with one of them is kept as a message.
_OPENINGS = (
    "remember",
    "please remember",
    "note",
    "note to self",
    "make a note",
    "take a note",
    "please note",
    "don't forget",
    "keep in mind",
    "请记住",
    "帮我记住",
    "帮我记一下",
    "记住",
    "记一下",
    "备注",
    "别忘了",
)
_NOTE = re.compile(
    rf"\s*(?:{'|'.join(map(re.escape, sorted(_OPENINGS, key=len, reverse=True)))})"
    r"(?P<mark>\s*[:,]\s*|\b|(?=[^\x00-\x7f了啦]))",  # 记住了 is an answer
    re.IGNORECASE,
)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """The arguments of one `add`; the fields from `metadata` on apply to each new memory."""

    scope: Scope
    messages: Sequence[NewMessage]
    infer: bool = True
    prompt: str | None = None
    metadata: dict[str, object] = field(default_factory=dict)
    layer: Literal["short", "long"] = "long"
    memory_type: str | None = None
    sensitive: bool = False
    expires_at: datetime | None = None
    is_left: bool = False  # by another process: messages that have been read since are skipped

    def as_dict(self) -> dict[str, Any]:
        """Return what a later process needs to derive the same from the stored messages."""
        return {
            "agent_id": self.scope.agent_id,
            "session_id": self.scope.session_id,
            "project": self.scope.project,
            "expires_at": self.expires_at and format_time(self.expires_at),
            "prompt": self.prompt,
            "metadata": self.metadata,
            "layer": self.layer,
            "memory_type": self.memory_type,
            "sensitive": self.sensitive,
        }

    @classmethod
    def of_job(cls, user_id: str, work: Mapping[str, Any]) -> "Addition":
        """Return an addition, without its messages, whose job an earlier process has left."""
        fields = dict(work)
        names = {name: fields.pop(name) for name in ("agent_id", "session_id", "project")}
        expiry = fields.pop("expires_at")
        expires_at = parse_time(expiry, "expires_at") if expiry else None
        scope = Scope.of_owner(user_id, **names)
        return cls(scope=scope, messages=(), expires_at=expires_at, is_left=True, **fields)


@dataclass(frozen=True, slots=True)
class StoredMessages:
    """The outcome of storing messages, and the memories that were stored with them."""

    messages: Sequence[NewMessage]
    written: WriteResult
    added: tuple[tuple[PlanOutcome, NewMessage], ...] = ()
    hidden: frozenset[str] = frozenset()  # ids of messages that were stored and deleted before

    def pairs(self) -> list[tuple[NewMessage, str]]:
        """Return the messages with their ids, without those that were deleted before.

        Nothing is derived from a hidden or erased message again, however it is sent.
        """
        outcomes = zip(self.messages, self.written.ids, self.written.statuses, strict=True)
        return [
            (message, name)
            for message, name, status in outcomes
            if status is not WriteStatus.ERASED and name not in self.hidden
        ]

    def receipt(self) -> dict[str, Any]:
        """Return the fields of the result of an `add` that are about its messages."""
        written = self.written
        names = [status.value for status in written.statuses]
        receipt = {"messages": list(written.ids), "stored": written.stored, "statuses": names}
        if any(written.redacted):
            receipt["redacted"] = [list(kinds) for kinds in written.redacted]
        return receipt


@dataclass(frozen=True, slots=True)
class Derived:
    """What was derived from some messages, and what failed."""

    outcomes: list[PlanOutcome] = field(default_factory=list)
    relations: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Ingestor:
    """Stores messages; with a model it derives memories, relations and summaries from them."""

    def __init__(
        self,
        library: Library,
        extractor: Extractor | None,
        processes: Processes,
        jobs: Jobs | None = None,
    ) -> None:
        self._library = library
        self._extractor = extractor
        self._processes = processes
        self.summaries = SummaryWriter(library.store, extractor, jobs or Jobs())
        # One decision per user at a time, because they build on each other. Decisions of other
        # processes are noticed when a plan is applied.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def has_model(self) -> bool:
        """Whether a model reads messages."""
        return self._extractor is not None

    async def store(self, addition: Addition) -> StoredMessages:
        """Store the messages, all or none; without `infer` each becomes a memory as it is."""
        scope, privacy = addition.scope, self._library.store.database.privacy
        # Extractors and processes read what is stored, never what is redacted.
        messages = [protect_new(privacy, message) for message in addition.messages]
        if not addition.infer:
            memories = [_message_memory(message, addition) for message in messages]
            return await self._store_with_memories(scope, messages, memories)
        if self._extractor is None and addition.memory_type != PROCEDURAL:
            if addition.sensitive or addition.expires_at is not None:
                raise InvalidArgument(
                    "only memories are sensitive or expire, and without a model none is made",
                    hint="Pass infer=False: it makes a memory of each message. Or set a model",
                )
            notes = [note_memory(message, addition) for message in messages]
            if any(notes):
                return await self._store_with_memories(scope, messages, notes)
        result = await self._library.add_messages(scope, messages)
        return StoredMessages(messages, result, hidden=await self._find_hidden(scope, result))

    async def _find_hidden(self, scope: Scope, result: WriteResult) -> frozenset[str]:
        """Return which messages of a write were stored before and are hidden."""
        outcomes = zip(result.ids, result.statuses, strict=True)
        same = {name for name, status in outcomes if status is WriteStatus.SAME}
        if not same:
            return frozenset()
        timeline = self._library.store.timeline(Scope.of_owner(scope.user_id))
        return frozenset(same - {m.message_id for m in await timeline.get_many(sorted(same))})

    async def _store_with_memories(
        self,
        scope: Scope,
        messages: Sequence[NewMessage],
        memories: Sequence[tuple[NewMemory, Origin] | None],
    ) -> StoredMessages:
        await self._library.vectors.prepare()
        self._library.require_small_metadata(messages)
        changes = self._library.store.changes(scope)
        result, keys = await changes.write_turn(messages, memories, actor=EXTRACTION)
        added: list[tuple[PlanOutcome, NewMessage]] = []
        for message, pair, key in zip(messages, memories, keys, strict=True):
            if pair is not None and key is not None:
                added.append((PlanOutcome.of_content("ADD", key, pair[0].content), message))
        self._library.vectors.expect({scope.user_id: result.stored + len(added)})
        hidden = await self._find_hidden(scope, result)
        return StoredMessages(messages, result, tuple(added), hidden)

    async def finish(
        self, addition: Addition, stored: StoredMessages, problems: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Derive what was requested from stored messages; the result lists what failed."""
        derived = Derived(problems=list(problems))
        results = [outcome_item(outcome, message) for outcome, message in stored.added]
        pairs = stored.pairs()
        if addition.infer and pairs:
            # In the order of their times; one without a time was said with the one before.
            last, dated = datetime.min.replace(tzinfo=UTC), []
            for message, name in pairs:
                last = message.ts or last
                dated.append((last, Utterance.of(message, name)))
            utterances = [utterance for _, utterance in sorted(dated, key=itemgetter(0))]
            await self._derive(addition, utterances, derived)
            results += [outcome_item(o) for o in derived.outcomes if o.event != "NONE"]
        result: dict[str, Any] = {
            "results": results,
            **stored.receipt(),
            "relations": derived.relations,
            "problems": derived.problems,
        }
        if addition.infer and self._extractor is None:
            result["message"] = NO_MODEL
        if processes := self._processes.on_add():
            items = [
                {"id": name, "memory": message.content, "role": message.role.value}
                for message, name in pairs
            ]
            result["processes"] = [await run_process(process, items) for process in processes]
        return result

    def describe_work(self, addition: Addition, receipt: dict[str, Any]) -> dict[str, Any]:
        """Return what a later process needs to finish an addition; nothing if no model reads it."""
        if self._extractor is None or not addition.infer:
            return {}
        return {"kind": ADD_JOB, WORK: {"addition": addition.as_dict(), "receipt": receipt}}

    async def finish_left(self, user_id: str, work: Mapping[str, Any]) -> dict[str, Any]:
        """Derive what an earlier process has left of an addition; return what `finish` does."""
        addition, derived = Addition.of_job(user_id, work["addition"]), Derived()
        unread = self._library.store.unread(addition.scope)
        forgotten = await unread.forgotten()
        messages = await unread.among(work["receipt"]["messages"])
        utterances = [Utterance.of(m) for m in messages if m.message_id not in forgotten]
        if utterances:
            await self._derive(addition, utterances, derived)
        return {
            "results": [outcome_item(o) for o in derived.outcomes if o.event != "NONE"],
            **work["receipt"],
            "relations": derived.relations,
            "problems": derived.problems,
        }

    async def _derive(
        self, addition: Addition, utterances: Sequence[Utterance], derived: Derived
    ) -> None:
        if addition.memory_type == PROCEDURAL:
            work = self._summarise_procedure(addition, utterances, derived)
            await _report_failure("memories", work, derived.problems)
        elif self._extractor is not None:
            await self.extract(addition, utterances, derived)
        if self._extractor is not None:
            self.summaries.expect(addition.scope)

    async def extract(
        self, addition: Addition, utterances: Sequence[Utterance], derived: Derived
    ) -> list[str]:
        """Derive memories and relations from stored messages, one call of the model a part.

        Return the ids of the messages that the model has read.
        """
        from memrecall.extraction.model import split_conversation

        done: list[str] = []
        for part in split_conversation(utterances):
            work = self.extract_part(addition, part, derived)
            if await _report_failure("memories", work, derived.problems):
                done += [utterance.message_id for utterance in part]
        return done

    async def extract_part(
        self,
        addition: Addition,
        utterances: Sequence[Utterance],
        derived: Derived,
        run: str | None = None,
    ) -> bool:
        """Derive what one call of the model reads; return whether it was read.

        That the messages were read is noted with what is derived from them. A `run` of an
        extraction raises Conflict if they were read, deleted or erased since.
        """
        assert self._extractor is not None  # noqa: S101 -- callers have checked
        scope = addition.scope
        session = scope.session_id or DEFAULT_NAME
        before = await self._library.store.timeline(scope).thread(
            utterances[0].message_id, session_id=session, limit=CONTEXT
        )
        context = [Utterance.of(message) for message in before]
        sources = {utterance.message_id: utterance for utterance in (*context, *utterances)}
        reader = _Reader(self, scope, utterances, addition.prompt, context)
        kept: list[str] = []

        async def plan() -> list[PlanStep]:
            extracted = await reader.read()
            keys = {key for fact in extracted.facts for key in fact.replaces}
            found = await self._library.store.memories(scope.own).get_many(sorted(keys))
            records = {record.memory_key: record for record in found}
            kept.clear()
            for fact in extracted.facts:
                kept.extend(_describe_kept(fact, records, sources))
            return [
                step
                for number, fact in enumerate(extracted.facts)
                for step in _plan_fact(fact, number, records, sources, addition)
            ]

        def reading() -> Reading | None:  # What could not be read is read another time.
            ids = [utterance.message_id for utterance in utterances]
            return None if reader.extracted.problem else Reading(ids, run, addition.is_left)

        outcomes = await self._apply(scope, plan, EXTRACTION, reading)
        extracted = reader.extracted
        derived.problems.extend([*filter(None, [extracted.problem]), *extracted.dropped, *kept])
        derived.problems.extend(
            _not_ended(outcome.text, outcome.reason)
            for outcome in outcomes
            if outcome.event == "NONE" and outcome.reason in NOT_ENDED
        )
        derived.outcomes.extend(outcomes)
        derived.relations.extend(
            await self._relate(scope, extracted, [*context, *utterances], outcomes)
        )
        return not extracted.problem

    async def _relate(
        self,
        scope: Scope,
        extracted: Extracted,
        utterances: Sequence[Utterance],
        outcomes: Sequence[PlanOutcome],
    ) -> list[dict[str, Any]]:
        relations = await self._write_relations(scope, extracted, utterances)
        # The graph takes each relation for the latest one; the memories know better.
        added = [o.memory_key for o in outcomes if o.memory_key and o.event in ("ADD", "UPDATE")]
        states = await self._library.store.memories(scope).get_states(added) if added else []
        keys = [memory.memory_key for memory in states if memory.valid_to or memory.deleted_at]
        keys += [outcome.successor_key for outcome in outcomes if outcome.successor_key]
        await self._library.changes(scope).follow_neighbours(keys)
        return relations

    async def _write_relations(
        self, scope: Scope, extracted: Extracted, utterances: Sequence[Utterance]
    ) -> list[dict[str, Any]]:
        """Write extracted entities and relations into the graph; return the relations."""
        if not extracted.relations and not extracted.entities:
            return []
        await self._library.claim_for_graph(scope)
        graph = self._library.graph(scope)
        times = {u.message_id: u.ts for u in utterances if u.ts is not None}
        relations: list[NewRelation] = []
        for relation in extracted.relations:
            # A message that is not stored has no id, and cannot be a source.
            ids = tuple(filter(None, relation.source_ids))
            relations.append(
                NewRelation(
                    relation.source[:NAME_LENGTH],
                    relation.relationship[:NAME_LENGTH],
                    relation.destination[:NAME_LENGTH],
                    ids,
                    relation.valid_from,
                    relation.ended,
                    said_at=max((times[name] for name in ids if name in times), default=None),
                )
            )
        types: dict[str, str] = {e.name[:NAME_LENGTH]: e.type for e in extracted.entities}
        await graph.add(types, relations)
        for entity in extracted.entities:
            name, sources = entity.name[:NAME_LENGTH], tuple(filter(None, entity.source_ids))
            for alias in (alias[:NAME_LENGTH] for alias in entity.aliases):
                if name == USER:  # The message is evidence of the name, not of "user".
                    await graph.merge(alias, name, ())
                await graph.merge(name, alias, sources)
        return [
            {
                "source": relation.source,
                "relationship": relation.relationship,
                "destination": relation.destination,
                "ended": relation.ended,
            }
            for relation in extracted.relations
        ]

    async def extract_graph(self, scope: Scope, utterances: Sequence[Utterance]) -> dict[str, Any]:
        """Write only the entities and relations of messages; return them."""
        if self._extractor is None:
            return {"entities": [], "relations": [], "problems": [NO_MODEL]}
        extracted = await self.read(scope, utterances)
        return {
            "entities": [{"name": e.name, "type": e.type} for e in extracted.entities],
            "relations": await self._write_relations(scope, extracted, utterances),
            "problems": [extracted.problem] if extracted.problem else [],
        }

    async def relate_memory(self, scope: Scope, record: MemoryRecord) -> None:
        """Write the relations that the corrected text of a memory states, as long as it holds."""
        if record.subject is None or record.provenance.conflicts_with:
            return  # Nobody's facts and mere claims are not in the graph.
        if self._extractor is not None:
            source = record.source_message_ids[-1] if record.source_message_ids else ""
            said = Utterance(source, record.speaker, Role.USER, record.content, record.since)
            extracted = await self.read(scope, [said])
            await self._write_relations(scope, extracted, [said])
        await self._library.changes(scope).follow_neighbours([record.memory_key])

    async def remember(
        self, scope: Scope, memory: NewMemory, *, origin: Origin, actor: str
    ) -> list[PlanOutcome]:
        """Store a memory as it is, unless it is stored already.

        With a model, it replaces the memories that do not hold any more because of it. The first
        outcome is about the memory, the others about memories that it ended. What the user said is
        kept: only the user's own messages replace it.
        """
        memory, scope = protect_new(self._library.store.database.privacy, memory), scope.own
        said = [Utterance("", None, Role.USER, memory.content)]
        reader = _Reader(self, scope, said)

        async def plan() -> list[PlanStep]:
            extracted = await reader.read() if self._extractor is not None else Extracted()
            facts = [fact for fact in extracted.facts if fact.memory_type != RETRACTION]
            keys = list(dict.fromkeys(key for fact in facts for key in fact.replaces))
            records = await self._library.store.memories(scope).get_many(keys)
            described = _describe_memory(memory, facts[0]) if len(facts) == 1 else memory
            return _plan_replacement(described, records, origin)

        return await self._apply(scope, plan, actor)

    async def _apply(
        self,
        scope: Scope,
        plan: Callable[[], Awaitable[list[PlanStep]]],
        actor: str,
        reading: Callable[[], Reading | None] = lambda: None,
    ) -> list[PlanOutcome]:
        """Apply a plan; plan again while other processes change memories."""

        async def attempt() -> list[PlanOutcome]:
            last_change = await self._library.store.memories(scope).last_change()
            steps, read = await plan(), reading()
            if not steps and read is None:
                return []
            decided_at = last_change if steps else None
            return await self._library.apply_plan(
                scope, steps, actor=actor, decided_at=decided_at, reading=read
            )

        async with self._locks.setdefault(scope.user_id, asyncio.Lock()):
            for _ in range(_MOST_PLANS - 1):
                with suppress(OutdatedPlan):
                    return await attempt()
            return await attempt()

    async def find_known(self, scope: Scope, utterances: Sequence[Utterance]) -> list[KnownMemory]:
        """Return the memories that new messages may repeat or replace: all, or those about them.

        Claims are left out, because nobody has confirmed them.
        """
        store, scope = self._library.store, scope.own
        page = await store.memories(scope).page(MemoryQuery(), limit=MOST_KNOWN)
        records = {record.memory_key: record for record in page.items}
        if page.next_cursor is not None:
            records = await self._find_related(scope, utterances)
        return [
            KnownMemory(
                memory_key=record.memory_key,
                text=record.content,
                subject=record.subject or USER,
                field=record.field,
                memory_type=record.memory_type,
                valid_from=record.valid_from,
            )
            for record in records.values()
            if not record.provenance.conflicts_with
        ]

    async def _find_related(
        self, scope: Scope, utterances: Sequence[Utterance]
    ) -> dict[str, MemoryRecord]:
        store = self._library.store
        user = await store.read_version(scope)  # A write waits for no vectors of earlier rows.
        keys: dict[str, None] = {}
        for utterance in utterances:
            if not utterance.is_from_person or len(keys) >= MOST_KNOWN:
                continue
            request = SearchRequest(
                utterance.text[:_LONGEST_QUERY], limit=_RELATED_PER_MESSAGE, kind="memory"
            )
            hits = await self._library.search(scope, request, user)
            keys |= dict.fromkeys(hit.key for hit in hits.results)
        records = await store.memories(scope).get_many(list(keys)[:MOST_KNOWN])
        return {record.memory_key: record for record in records}

    async def read(
        self,
        scope: Scope,
        utterances: Sequence[Utterance],
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
        known: Sequence[KnownMemory] = (),
    ) -> Extracted:
        """Return what the model reads in messages."""
        assert self._extractor is not None  # noqa: S101 -- callers have checked
        version = await self._library.store.feed(scope.user_id).version()
        return await self._extractor.extract(
            utterances,
            now=datetime.now(UTC),
            zone=ZoneInfo(version.time_zone if version else "UTC"),
            prompt=prompt,
            context=context,
            known=known,
        )

    async def _summarise_procedure(
        self, addition: Addition, utterances: Sequence[Utterance], derived: Derived
    ) -> None:
        """Store one memory of how the conversation went."""
        summary = await summarise_with(self._extractor, utterances, _PROCEDURE_LENGTH)
        if summary.problem:
            derived.problems.append(summary.problem)
        if addition.prompt:
            derived.problems.append("memories: a procedural memory is made without the prompt")
        fact = Fact(summary.text, source_ids=tuple(u.message_id for u in utterances))
        sources = {utterance.message_id: utterance for utterance in utterances}
        steps = _plan_fact(fact, 0, {}, sources, addition)
        reading = Reading(list(sources), None, addition.is_left) if summary.by == "model" else None
        derived.outcomes.extend(
            await self._library.apply_plan(addition.scope, steps, actor=EXTRACTION, reading=reading)
        )


@dataclass
class _Reader:
    """Reads messages with the model, and again once the known memories have changed."""

    ingestor: Ingestor
    scope: Scope
    utterances: Sequence[Utterance]
    prompt: str | None = None
    context: Sequence[Utterance] = ()
    extracted: Extracted = field(default_factory=Extracted)
    _known: list[KnownMemory] | None = None

    async def read(self) -> Extracted:
        """Return the facts and relations, given the memories that are known now."""
        known = await self.ingestor.find_known(self.scope, self.utterances)
        if known != self._known:
            self.extracted = await self.ingestor.read(
                self.scope, self.utterances, self.prompt, self.context, known
            )
            self._known = known
        return self.extracted


async def _report_failure(name: str, work: Awaitable[Result], problems: list[str]) -> Result | None:
    """Return the result of some work, or None after adding its error to the problems."""
    try:
        return await work
    # An extractor may be a plugin; whatever it raises, the messages are stored already.
    except Exception as error:
        problems.append(f"{name}: {type(error).__name__}: {error}")
        return None


def _plan_fact(
    fact: Fact,
    number: int,
    records: Mapping[str, MemoryRecord],
    utterances: Mapping[str, Utterance],
    addition: Addition,
) -> list[PlanStep]:
    """Return the steps that store a fact and end what it replaces.

    What was said after the fact stays: the fact becomes part of its history. An unchecked fact
    ends nothing: it is stored as a claim, and what it would replace stays.
    """
    replaced = [records[key] for key in fact.replaces if key in records]
    sources = [utterances[name] for name in fact.source_ids if name in utterances]
    origin = _least_trusted(sources)
    if fact.memory_type == RETRACTION:
        reason = "the speaker asked to forget it"
        ended = [r for r in replaced if _may_end(r, origin) and not _is_earlier(sources, r)]
        return [PlanStep("DELETE", memory_key=r.memory_key, reason=reason) for r in ended]
    memory = _fact_memory(fact, sources, addition)
    first = next(iter(replaced), None)
    if first is not None and _is_earlier(sources, first):
        reason = f"it was said before: {first.content}"
        return [PlanStep("ADD", memory, first.memory_key, origin, reason, number)]
    current = [record for record in replaced if not _is_earlier(sources, record)]
    if fact.doubts and current:
        reason = f"it is unchecked, so this is kept: {current[0].content}"
        claim = memory.as_claim(*(record.memory_key for record in current))
        return [PlanStep("ADD", claim, None, origin, reason, number)]
    return _plan_replacement(memory, current, origin, number)


def _describe_kept(
    fact: Fact, records: Mapping[str, MemoryRecord], utterances: Mapping[str, Utterance]
) -> list[str]:
    """Return why memories hold on that a fact replaces and no outcome names."""
    if not fact.replaces and fact.memory_type == RETRACTION:
        return [f"memories: {fact.text!r} ends nothing: it names no known memory"]
    gone = [key for key in fact.replaces if key not in records]
    kept = [_not_ended(key, GONE) for key in gone]
    sources = [utterances[name] for name in fact.source_ids if name in utterances]
    origin = _least_trusted(sources)
    replaced = [records[key] for key in fact.replaces if key in records]
    for number, record in enumerate(replaced):
        if _is_earlier(sources, record):
            # A fact that was said before the first becomes part of its history, which is told.
            if number or fact.memory_type == RETRACTION:
                kept.append(_not_ended(record.content, "it was said later"))
        elif fact.memory_type == RETRACTION and not _may_end(record, origin):
            kept.append(_not_ended(record.content, "only its user can have it forgotten"))
    return kept


def _not_ended(memory: str, reason: str) -> str:
    return f"memories: {memory!r} is not ended: {reason}"


def _may_end(record: MemoryRecord, origin: Origin) -> bool:
    """Return True unless the user said it, and something else would end it."""
    return origin is Origin.USER or record.provenance.origin is not Origin.USER


def _is_earlier(sources: Sequence[Utterance], record: MemoryRecord) -> bool:
    """Return True if the sources predate the memory.

    A user's own message never counts as older than someone else's claim.
    """
    is_own = record.provenance.origin is Origin.USER or _least_trusted(sources) is not Origin.USER
    said_at = _latest_time(sources)
    return is_own and said_at is not None and said_at < record.said_at


def _least_trusted(sources: Sequence[Utterance]) -> Origin:
    """Return the origin of a fact that comes from some messages."""
    origins = {origin_of(source.role) for source in sources}
    return next((origin for origin in _LEAST_TRUSTED_FIRST if origin in origins), Origin.USER)


def _latest_time(sources: Iterable[Utterance]) -> datetime | None:
    """Return the time of the last of some messages, if any has one."""
    return max((source.ts for source in sources if source.ts is not None), default=None)


def _plan_replacement(
    memory: NewMemory, replaced: Sequence[MemoryRecord], origin: Origin, fact: int = 0
) -> list[PlanStep]:
    """Return steps that store a memory and end those it replaces, but for the user's own."""
    ended = [record for record in replaced if _may_end(record, origin)]
    kept = [record for record in replaced if not _may_end(record, origin)]
    reason = f"it replaces: {ended[0].content}" if ended else "it is new"
    if kept:
        reason = f"the user said otherwise, which is kept: {kept[0].content}"
        memory = memory.as_claim(*(record.memory_key for record in kept))
    first = ended[0].memory_key if ended else None
    steps = [PlanStep("UPDATE" if ended else "ADD", memory, first, origin, reason, fact)]
    for record in ended[1:]:
        reason = f"it ended: {record.content}"
        steps.append(
            PlanStep("DELETE", None, record.memory_key, origin, reason, fact, memory.valid_from)
        )
    return steps


def _describe_memory(memory: NewMemory, fact: Fact) -> NewMemory:
    """Return a memory with the slot and the type of the only fact that it states."""
    update: dict[str, Any] = {"subject": memory.subject or fact.subject[:NAME_LENGTH]}
    update["field"] = memory.field or fact.field
    if memory.memory_type == "general":
        update["memory_type"] = fact.memory_type  # decides the project
    return memory.model_copy(update=update)


def _fact_memory(fact: Fact, sources: Sequence[Utterance], addition: Addition) -> NewMemory:
    now = datetime.now(UTC)
    latest = _latest_time(sources)
    valid_from = fact.valid_from or latest
    speakers = {source.speaker for source in sources if source.speaker}
    return NewMemory(
        content=fact.text,
        memory_type=addition.memory_type or fact.memory_type,
        layer=addition.layer,
        keywords=tuple(
            Keyword(keyword=word[:NAME_LENGTH]) for word in fact.keywords[:_MOST_KEYWORDS]
        ),
        metadata=addition.metadata,
        sensitive=addition.sensitive,
        # A fact about the future is known now and must be found from now on.
        valid_from=valid_from if valid_from is not None and valid_from <= now else None,
        source_message_ids=tuple(source.message_id for source in sources),
        subject=fact.subject[:NAME_LENGTH],
        speaker=speakers.pop() if len(speakers) == 1 else None,
        field=fact.field,
        expires_at=addition.expires_at,
        doubts=fact.doubts,
        said_at=latest and min(latest, now),
    )


def _message_memory(message: NewMessage, addition: Addition) -> tuple[NewMemory, Origin] | None:
    """Return the memory that stores a message as it is, or None for a system message."""
    if message.role is Role.SYSTEM:
        return None  # Instructions of the application are not memories of the user.
    metadata = {"role": message.role.value, **message.metadata}
    return _said_memory(message, message.content, metadata, addition)


def noted_text(text: str) -> str | None:
    """Return what a message asks to remember, in its own words; None if it does not ask.

    Only an opening that is set off by a mark is left out: "remember that time in Rome" and
    记住的单词 would else lose a part of what they say.
    """
    match = _NOTE.match(replace_characters(text))
    if match is None or text.rstrip().endswith(("?", "？")):
        return None
    note = text[match.end() :].strip()
    if len(re.findall(r"\w", note)) < 2:
        return None
    return note if match["mark"].strip() else text.strip()


def note_memory(message: NewMessage, addition: Addition) -> tuple[NewMemory, Origin] | None:
    """Return the memory of a message that asks to remember something, or None."""
    text = noted_text(message.content) if message.role is Role.USER else None
    if text is None:
        return None
    return _said_memory(message, text, addition.metadata, addition)


def _said_memory(
    message: NewMessage, content: str, metadata: dict[str, object], addition: Addition
) -> tuple[NewMemory, Origin]:
    memory = NewMemory(
        content=content,
        memory_type=addition.memory_type or "general",
        layer=addition.layer,
        metadata=metadata,
        sensitive=addition.sensitive,
        valid_from=message.ts,
        speaker=message.speaker,
        expires_at=addition.expires_at,
    )
    return memory, origin_of(message.role)
