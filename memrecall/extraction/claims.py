"""New facts and what is stored: related memories, later ones, and those that claims contradict.

Claims that the user did not make are stored too, but never replace what they contradict.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from memrecall.extraction.conflicts import denies_other_value, is_known, replaces
from memrecall.extraction.decisions import KNOWN_ALREADY, find_successor
from memrecall.extraction.protocol import RETRACTION, USER, Decision, Fact, KnownMemory, Utterance
from memrecall.extraction.rules.conversation import build_facts, read_statements
from memrecall.extraction.sentences import drop_orders
from memrecall.library.library import Library
from memrecall.messages import origin_of
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.store import MemoryQuery, MessageFilter, PlanStep, read_filter
from memrecall.types import DIGESTS, MemoryRecord, NewMemory, Origin, Role

_RELATED_PER_FACT = 6
_MOST_RELATED = 60
_LONGEST_QUERY = 2_000
_LONGEST_CLAIM = 4_000
_LEAST_TRUSTED_FIRST = (Origin.TOOL, Origin.IMPORT, Origin.ASSISTANT, Origin.USER)
_IS_ORDER = "the text gives orders and states no fact"


async def find_related(
    library: Library, scope: Scope, facts: Iterable[Fact]
) -> dict[str, MemoryRecord]:
    """Return memories about the same things: of the same field, and found by search."""
    related: dict[str, MemoryRecord] = {}
    store, scope = library.store, scope.own
    user = await store.read_version(scope)  # A write waits for no vectors of earlier rows.
    for fact in facts:
        if fact.field is not None:
            same_field = read_filter({"subject": fact.subject, "field": fact.field})
            query = MemoryQuery(same_field)
            page = await store.memories(scope).page(query, limit=_RELATED_PER_FACT)
            related |= {record.memory_key: record for record in page.items}
        text = fact.text[:_LONGEST_QUERY]
        request = SearchRequest(text, limit=_RELATED_PER_FACT, kind="memory")
        hits = await library.search(scope, request, user)
        keys = [hit.key for hit in hits.results if hit.key not in related]
        records = await store.memories(scope).get_many(keys)
        related |= {record.memory_key: record for record in records}
        if len(related) >= _MOST_RELATED:
            break
    return related


def known_memories(records: Mapping[str, MemoryRecord]) -> dict[str, KnownMemory]:
    """Return the stored facts, without claims."""
    stated = (r for r in records.values() if not r.provenance.conflicts_with)
    return {record.memory_key: _to_known(record) for record in stated}


def _to_known(record: MemoryRecord) -> KnownMemory:
    return KnownMemory(
        memory_key=record.memory_key,
        text=record.content,
        subject=record.subject or USER,
        field=record.field,
        memory_type=record.memory_type,
        valid_from=record.valid_from,
    )


def decide_outdated(
    facts: Sequence[Fact],
    related: Mapping[str, KnownMemory],
    records: Mapping[str, MemoryRecord],
    utterances: Mapping[str, Utterance],
) -> Iterator[Decision]:
    """Yield the decisions on facts that were said before a memory that takes their place."""
    for fact in facts:
        sources = [utterances[name] for name in fact.source_ids if name in utterances]
        later = [key for key in related if is_earlier(sources, records[key])]
        later.sort(key=lambda key: records[key].said_at)
        successor = find_successor(fact, [related[key] for key in later])
        if successor is not None and fact.memory_type != RETRACTION:
            field = None if fact.field else successor.field
            yield Decision("UPDATE", fact, successor.memory_key, fact.text, field=field)


def is_earlier(sources: Sequence[Utterance], record: MemoryRecord) -> bool:
    """Return True if the sources predate the memory.

    A user's own message never counts as older than someone else's claim.
    """
    is_own = record.provenance.origin is Origin.USER or least_trusted(sources) is not Origin.USER
    said_at = latest_time(sources)
    return is_own and said_at is not None and said_at < record.said_at


def denies(record: MemoryRecord, fact: Fact) -> bool:
    """Return True if a memory only denies another value of the fact's slot.

    "No longer lives in Berlin" does not outdate Rome, whichever was said first.
    """
    memory = _to_known(record)
    denial = Fact(memory.text, memory.subject, fact.memory_type, memory.field)
    return denies_other_value(denial, fact.as_known())


def least_trusted(sources: Sequence[Utterance]) -> Origin:
    """Return the origin of a fact that comes from some messages."""
    origins = {origin_of(source.role) for source in sources}
    return next((origin for origin in _LEAST_TRUSTED_FIRST if origin in origins), Origin.USER)


def latest_time(sources: Sequence[Utterance]) -> datetime | None:
    """Return the time of the last of some messages, if any has one."""
    return max((source.ts for source in sources if source.ts is not None), default=None)


def find_conflicts(fact: Fact, records: Iterable[MemoryRecord]) -> list[str]:
    """Return the keys of the user's own statements that a claim contradicts."""
    return [
        record.memory_key
        for record in records
        if record.provenance.origin is Origin.USER
        and replaces(_name_subject(fact, record), _to_known(record))
    ]


def _name_subject(fact: Fact, record: MemoryRecord) -> Fact:
    """Return a fact about "the user" as one about the name under which they speak."""
    speaks_of_self = record.speaker is not None and record.speaker == record.subject
    is_user = fact.subject == USER and speaks_of_self
    return replace(fact, subject=record.subject or USER) if is_user else fact


def find_equal_claim(claim: Fact, records: Iterable[MemoryRecord]) -> str | None:
    """Return the key of a stored claim that says the same."""
    claims = (record for record in records if record.provenance.conflicts_with)
    equal = (r.memory_key for r in claims if is_known(claim, _to_known(r)))
    return next(equal, None)


def plan_replacement(
    memory: NewMemory, contradicted: Sequence[MemoryRecord], origin: Origin
) -> list[PlanStep]:
    """Return steps that store a memory and end those it contradicts, but for the user's own."""
    ended = [record for record in contradicted if record.provenance.origin is not Origin.USER]
    kept = [record for record in contradicted if record not in ended]
    reason = f"it replaces: {ended[0].content}" if ended else ""
    if kept:
        reason = f"the user said otherwise, which is kept: {kept[0].content}"
        memory = memory.as_claim(*(record.memory_key for record in kept))
    first = ended[0].memory_key if ended else None
    return [
        PlanStep("UPDATE" if ended else "ADD", memory, first, origin, reason, fact=0),
        *(PlanStep("DELETE", memory_key=record.memory_key, fact=0) for record in ended[1:]),
    ]


async def review_plan(library: Library, scope: Scope, steps: Sequence[PlanStep]) -> list[PlanStep]:
    """Return the steps; what others say against the user is marked as a claim.

    What the user's last message states is the user's, whoever writes it down.
    """
    return [step if _is_settled(step) else await _review(library, scope, step) for step in steps]


def _is_settled(step: PlanStep) -> bool:
    memory = step.memory
    if memory is None or step.origin is Origin.USER or memory.conflicts_with:
        return True
    # A digest tells how stored messages went, with what assistants did; tools cannot name any.
    return memory.memory_type in DIGESTS and bool(memory.source_message_ids)


async def _review(library: Library, scope: Scope, step: PlanStep) -> PlanStep:
    assert step.memory is not None  # noqa: S101 -- others are settled
    memory: NewMemory = step.memory
    text = drop_orders(memory.content)
    if not text:
        return PlanStep("NONE", reason=_IS_ORDER)
    memory = memory.model_copy(update={"content": text})
    step = replace(step, memory=memory)
    facts = _read_facts(text[:_LONGEST_CLAIM])
    if not facts:
        return step
    related = await find_related(library, scope, facts) if step.event == "ADD" else {}
    conflicts = [key for fact in facts for key in find_conflicts(fact, related.values())]
    if not conflicts and step.event == "ADD":
        return step
    if source := await _find_statement(library, scope, facts):
        stated = memory.model_copy(update={"source_message_ids": (source,)})
        return replace(step, origin=Origin.USER, memory=stated)
    subject = memory.subject or facts[0].subject
    claim = memory.model_copy(update={"subject": subject}).as_claim(*conflicts)
    equal = [find_equal_claim(fact, related.values()) for fact in facts]
    if all(equal):  # Repeating a claim adds nothing to it.
        return PlanStep("NONE", claim, equal[0], reason=KNOWN_ALREADY)
    return replace(step, memory=claim)


async def _find_statement(library: Library, scope: Scope, facts: Sequence[Fact]) -> str | None:
    """Return the id of the user's last message if it states the facts."""
    last = MessageFilter(role=Role.USER, session_id=scope.session_id)
    page = await library.store.timeline(scope).page(last, page_size=1)
    for message in page.items:
        said = _read_facts(message.content)
        if message.speaker:
            said += _read_facts(message.content, message.speaker)
        memories = [fact.as_known() for fact in said]
        if all(any(is_known(fact, memory) for memory in memories) for fact in facts):
            return message.message_id
    return None


def _read_facts(text: str, speaker: str | None = None) -> list[Fact]:
    """Return the facts that the rules read in a text."""
    utterance = Utterance("", speaker, Role.USER, text)
    return list(build_facts(read_statements([utterance], now=datetime.now(UTC), zone=UTC)))
