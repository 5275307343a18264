"""Ingestion: messages are stored first; what is derived from them may fail and is reported."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar
from weakref import WeakValueDictionary
from zoneinfo import ZoneInfo

from memrecall.errors import OutdatedPlan
from memrecall.extraction.claims import (
    decide_outdated,
    denies,
    find_conflicts,
    find_equal_claim,
    find_related,
    is_earlier,
    known_memories,
    latest_time,
    least_trusted,
    plan_replacement,
)
from memrecall.extraction.decisions import as_one_fact
from memrecall.extraction.protocol import (
    RETRACTION,
    Decision,
    Extracted,
    Extractor,
    Fact,
    KnownMemory,
    Utterance,
)
from memrecall.extraction.rules.conversation import refers_back
from memrecall.library.library import Library
from memrecall.memory.graph import write_relations
from memrecall.memory.jobs import Jobs, Processes, run_process
from memrecall.memory.records import StoredMessages, outcome_item, to_utterance, to_utterances
from memrecall.memory.summaries import SummaryWriter
from memrecall.messages import origin_of
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import PlanOutcome, PlanStep
from memrecall.store.privacy import protect_new
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
)

CONTEXT = 6  # messages before the new ones, for what "it" and "yes" refer to
_MOST_KEYWORDS = 12
_MOST_PLANS = 20  # for one addition, while other processes write too
_PROCEDURE_LENGTH = 4_000  # characters
CONFLICTING = "it contradicts what the user said"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """The arguments of one `add`; those from `metadata` on apply to every memory of it."""

    scope: Scope
    messages: Sequence[NewMessage]
    infer: bool = True
    prompt: str | None = None
    metadata: dict[str, object] = field(default_factory=dict)
    layer: Literal["short", "long"] = "long"
    memory_type: str | None = None
    sensitive: bool = False
    expires_at: datetime | None = None


class Ingestor:
    """Stores messages and derives memories, relations and summaries from them."""

    def __init__(
        self,
        library: Library,
        extractor: Extractor,
        processes: Processes,
        jobs: Jobs | None = None,
    ) -> None:
        self._library = library
        self._extractor = extractor
        self._processes = processes
        self.summaries = SummaryWriter(library.store, extractor, jobs or Jobs())
        # One decision per user at a time, because they build on each other. Those of other
        # processes are noticed when a plan is applied.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def store(self, addition: Addition) -> StoredMessages:
        """Store the messages, all or none; without `infer` each becomes a memory as it is."""
        scope, privacy = addition.scope, self._library.store.database.privacy
        # Extractors and processes read what is stored, never what is redacted.
        messages = [protect_new(privacy, message) for message in addition.messages]
        if addition.infer:
            result = await self._library.add_messages(scope, messages)
            return StoredMessages(messages, result)
        await self._library.vectors.prepare()
        memories = [_message_memory(message, addition) for message in messages]
        self._library.require_small_metadata(messages)
        changes = self._library.store.changes(scope)
        result, keys = await changes.write_turn(messages, memories, actor=EXTRACTION)
        added: list[tuple[PlanOutcome, NewMessage]] = []
        for message, key in zip(messages, keys, strict=True):
            if key is not None:
                added.append((PlanOutcome.of_content("ADD", key, message.content), message))
        self._library.vectors.expect({scope.user_id: result.stored + len(added)})
        return StoredMessages(messages, result, tuple(added))

    async def finish(
        self, addition: Addition, stored: StoredMessages, problems: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Derive what was requested from stored messages; the result lists what failed."""
        problems = list(problems)
        results = [outcome_item(outcome, message) for outcome, message in stored.added]
        relations: list[dict[str, Any]] = []
        pairs = stored.pairs()
        if addition.infer and pairs:
            utterances = to_utterances(pairs)
            is_procedure = addition.memory_type == PROCEDURAL
            extract = self._summarise_procedure if is_procedure else self._extract_memories
            memories = extract(addition, utterances, problems)
            outcomes = await _report_failure("memories", memories, problems) or ()
            results = [outcome_item(outcome) for outcome in outcomes if outcome.event != "NONE"]
            extracted = self._extract_with_context(addition.scope, utterances, outcomes)
            if graph := await _report_failure("relations", extracted, problems):
                relations = graph["relations"]
                problems += graph["problems"]
            self.summaries.expect(addition.scope)
        result: dict[str, Any] = {
            "results": results,
            **stored.receipt(),
            "relations": relations,
            "problems": problems,
        }
        if processes := self._processes.on_add():
            items = [
                {"id": name, "memory": message.content, "role": message.role.value}
                for message, name in pairs
            ]
            result["processes"] = [await run_process(process, items) for process in processes]
        return result

    async def extract(self, addition: Addition, stored: StoredMessages) -> None:
        """Derive only memories from stored messages."""
        if pairs := stored.pairs():
            await self._extract_memories(addition, to_utterances(pairs), [])

    async def _extract_with_context(
        self, scope: Scope, utterances: Sequence[Utterance], outcomes: Sequence[PlanOutcome]
    ) -> dict[str, Any]:
        """Extract relations; messages that refer back are read after those before them."""
        refers = any(refers_back(utterance.text) for utterance in utterances)
        context = await self._context(scope, utterances) if refers else ()
        graph = await write_relations(self._library, self._extractor, scope, utterances, context)
        # The graph takes each relation for the latest one; the memories know better.
        added = [o.memory_key for o in outcomes if o.memory_key and o.event in ("ADD", "UPDATE")]
        states = await self._library.store.memories(scope).get_states(added) if added else []
        keys = [memory.memory_key for memory in states if memory.valid_to or memory.deleted_at]
        keys += [outcome.successor_key for outcome in outcomes if outcome.successor_key]
        await self._library.changes(scope).follow_neighbours(keys)
        return graph

    async def remember(
        self, scope: Scope, memory: NewMemory, *, origin: Origin, actor: str
    ) -> list[PlanOutcome]:
        """Store a memory as it is, unless it is known; it replaces what it contradicts.

        The first outcome is about the memory, the others about memories that it ended. What the
        user said is kept: only the user's own messages replace it.
        """
        memory, scope = protect_new(self._library.store.database.privacy, memory), scope.own
        extracted = await self._read_facts(scope, [Utterance("", None, Role.USER, memory.content)])
        facts = [fact for fact in extracted.facts if fact.memory_type != RETRACTION]
        whole = as_one_fact(memory.content, facts)

        async def plan() -> list[PlanStep]:
            stored = await find_related(self._library, scope, [whole, *facts])
            if equal := find_equal_claim(whole, stored.values()):
                return [PlanStep("NONE", memory, equal)]
            related = known_memories(stored)
            decided = await self._decide([whole], related)
            if known := next((d for d in decided if d.event == "NONE"), None):
                return [PlanStep("NONE", memory, known.memory_key)]
            if whole.field is None and facts:
                decided = await self._decide(facts, related)
            replaced = [d.memory_key for d in decided if d.event in ("UPDATE", "DELETE")]
            records = [stored[key] for key in replaced if key is not None]
            slot = {"subject": whole.subject[:NAME_LENGTH], "field": whole.field}
            update: dict[str, Any] = slot if whole.field else {}
            if memory.memory_type == "general" and len({f.memory_type for f in facts}) == 1:
                update = {**update, "memory_type": facts[0].memory_type}  # decides the project
            return plan_replacement(memory.model_copy(update=update), records, origin)

        return await self._apply(scope, plan, actor)

    async def _apply(
        self, scope: Scope, plan: Callable[[], Awaitable[list[PlanStep]]], actor: str
    ) -> list[PlanOutcome]:
        """Apply a plan; make another as long as other processes change memories meanwhile."""

        async def attempt() -> list[PlanOutcome]:
            last_change = await self._library.store.memories(scope).last_change()
            steps = await plan()
            return await self._library.apply_plan(scope, steps, actor=actor, decided_at=last_change)

        async with self._locks.setdefault(scope.user_id, asyncio.Lock()):
            for _ in range(_MOST_PLANS - 1):
                with suppress(OutdatedPlan):
                    return await attempt()
            return await attempt()

    async def _extract_memories(
        self, addition: Addition, utterances: Sequence[Utterance], problems: list[str]
    ) -> Sequence[PlanOutcome]:
        scope = addition.scope
        context = await self._context(scope, utterances)
        extracted = await self._read_facts(scope, utterances, addition.prompt, context)
        problems += [*filter(None, [extracted.problem]), *extracted.dropped]
        if not extracted.facts and not extracted.claims:
            return ()
        claims = extracted.claims
        sources = {utterance.message_id: utterance for utterance in utterances}

        async def plan() -> list[PlanStep]:
            records = await find_related(self._library, scope, (*extracted.facts, *claims))
            related = known_memories(records)
            stated = {key: records[key] for key in related}
            outdated = list(decide_outdated(extracted.facts, related, stated, sources))
            is_outdated = {id(decision.fact) for decision in outdated}
            facts = [fact for fact in extracted.facts if id(fact) not in is_outdated]
            decided = await self._extractor.decide(facts, list(related.values()))
            problems.extend({decided.problem} - {"", *problems})
            places = {id(fact): place for place, fact in enumerate(extracted.facts)}
            steps = [
                replace(
                    _plan_step(decision, stated, sources, addition),
                    fact=places.get(id(decision.fact)),
                )
                for decision in (*outdated, *decided.decisions)
            ]
            return [*steps, *_claim_steps(claims, records, sources, addition)]

        return await self._apply(scope, plan, EXTRACTION)

    async def _decide(
        self, facts: Sequence[Fact], related: dict[str, KnownMemory]
    ) -> list[Decision]:
        """Return the decisions that name a memory which the extractor was shown."""
        decided = await self._extractor.decide(facts, list(related.values()))
        return [decision for decision in decided.decisions if decision.memory_key in related]

    async def _read_facts(
        self,
        scope: Scope,
        utterances: Sequence[Utterance],
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
    ) -> Extracted:
        version = await self._library.store.feed(scope.user_id).version()
        return await self._extractor.facts(
            utterances,
            now=datetime.now(UTC),
            zone=ZoneInfo(version.time_zone if version else "UTC"),
            prompt=prompt,
            context=context,
        )

    async def _summarise_procedure(
        self, addition: Addition, utterances: Sequence[Utterance], problems: list[str]
    ) -> Sequence[PlanOutcome]:
        """Store one memory of how the conversation went."""
        summary = await self._extractor.summarise(utterances, _PROCEDURE_LENGTH)
        problems += [summary.problem] if summary.problem else []
        if addition.prompt:
            problems.append("memories: a procedural memory is made without the prompt")
        fact = Fact(summary.text, source_ids=tuple(u.message_id for u in utterances))
        sources = {utterance.message_id: utterance for utterance in utterances}
        step = _plan_step(Decision("ADD", fact, text=fact.text), {}, sources, addition)
        return await self._library.apply_plan(addition.scope, [step], actor=EXTRACTION)

    async def _context(self, scope: Scope, utterances: Sequence[Utterance]) -> list[Utterance]:
        """Return the messages before new ones in their session."""
        session = scope.session_id or DEFAULT_NAME
        timeline = self._library.store.timeline(scope)
        first = utterances[0].message_id
        earlier = await timeline.thread(first, session_id=session, limit=CONTEXT)
        return [to_utterance(message) for message in earlier]


async def _report_failure(name: str, work: Awaitable[Result], problems: list[str]) -> Result | None:
    """Return the result of some work, or None after adding its error to the problems."""
    try:
        return await work
    # An extractor may be a plugin; whatever it raises, the messages are stored already.
    except Exception as error:
        problems.append(f"{name}: {type(error).__name__}: {error}")
        return None


def _claim_steps(
    claims: Sequence[Fact],
    records: Mapping[str, MemoryRecord],
    utterances: Mapping[str, Utterance],
    addition: Addition,
) -> list[PlanStep]:
    """Return steps that store the claims that contradict the user; others are dropped."""
    steps: list[PlanStep] = []
    for place, claim in enumerate(claims):
        conflicts = find_conflicts(claim, records.values())
        if find_equal_claim(claim, records.values()) or claim in claims[:place]:
            continue
        if not conflicts or claim.memory_type == RETRACTION:
            continue
        sources = [utterances[name] for name in claim.source_ids if name in utterances]
        origin = least_trusted(sources)
        # A claim in the user's message that is not in their own words is a quotation.
        origin = Origin.IMPORT if origin is Origin.USER else origin
        memory = _fact_memory(claim, claim.text, sources, addition).as_claim(*conflicts)
        steps.append(PlanStep("ADD", memory, origin=origin, reason=CONFLICTING))
    return steps


def _plan_step(
    decision: Decision,
    records: Mapping[str, MemoryRecord],
    utterances: Mapping[str, Utterance],
    addition: Addition,
) -> PlanStep:
    """Return a decision as a plan step; a key that the extractor was not shown is ignored.

    What was said after the fact stays: the fact becomes part of its history.
    """
    fact, event, reason = decision.fact, decision.event, decision.reason
    record = records.get(decision.memory_key or "")
    sources = [utterances[name] for name in fact.source_ids if name in utterances]
    if record is None:
        event = "NONE" if event in ("NONE", "DELETE") else "ADD"
    elif event in ("UPDATE", "DELETE") and is_earlier(sources, record) and not denies(record, fact):
        event = "NONE" if event == "DELETE" else "ADD"
        reason = f"it was said before: {record.content}"
    key = record.memory_key if record else None
    if event in ("NONE", "DELETE"):
        return PlanStep(event, memory_key=key, reason=reason)
    fact = replace(fact, field=fact.field or decision.field)
    memory = _fact_memory(fact, decision.text or fact.text, sources, addition)
    return PlanStep(event, memory, key, least_trusted(sources), reason)


def _fact_memory(
    fact: Fact, text: str, sources: Sequence[Utterance], addition: Addition
) -> NewMemory:
    now = datetime.now(UTC)
    latest = latest_time(sources)
    valid_from = fact.valid_from or latest
    speakers = {source.speaker for source in sources if source.speaker}
    return NewMemory(
        content=text,
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
        said_at=latest and min(latest, now),
    )


def _message_memory(message: NewMessage, addition: Addition) -> tuple[NewMemory, Origin] | None:
    """Return the memory that stores a message as it is, or None for a system message."""
    if message.role is Role.SYSTEM:
        return None  # Instructions of the application are not memories of the user.
    memory = NewMemory(
        content=message.content,
        memory_type=addition.memory_type or "general",
        layer=addition.layer,
        metadata={"role": message.role.value, **message.metadata},
        sensitive=addition.sensitive,
        valid_from=message.ts,
        speaker=message.speaker,
        expires_at=addition.expires_at,
    )
    return memory, origin_of(message.role)
