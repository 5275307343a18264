"""Tools on one user's memories: remember, correct, forget and list.

A parent agent and an MCP client may see different arguments and results; each has one handler.
"""

import re
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, Field, ValidationError

from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.models import StrictInput, ToolInput, ToolOutput, excerpt_length
from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope, qualify_key
from memrecall.search import Hit, SearchRequest
from memrecall.store import MemoryQuery, PlanOutcome, PlanStep
from memrecall.text_length import single_line, truncate_text
from memrecall.types import LABEL_LENGTH, MemoryRecord, NewMemory, Origin, format_time

MAX_MEMORY_TEXT = 4_000
_SIMILAR_MEMORIES = 3
# Nearness is 0 for unrelated texts and 1 for the same. Memories of one topic, such as two pets,
# are up to 0.5 near; those about the same thing are nearer, and mostly share some of its words.
_MIN_NEARNESS, _MIN_NEARNESS_ALONE = 0.5, 0.6
_MIN_COVERAGE, _MIN_COVERAGE_ALONE = 0.15, 0.35  # of the weight of the new sentence's words
_COMPARED_SENTENCES = 5  # of a new memory
_SENTENCE = re.compile(r"[^.!?。！？\n]*\w(?:[^!?。！？\n.]|\.(?=\S))*")

_KEPT_FIELDS = {"memory_type", "layer", "metadata", "sensitive", "subject", "field", "pinned"}

MemoryText = Annotated[str, Field(min_length=1, max_length=MAX_MEMORY_TEXT)]
Reason = Annotated[str, Field(max_length=500)]


class RememberArguments(ToolInput):
    """Arguments of `remember` for a parent agent."""

    space: ClassVar[None] = None  # a parent agent writes to the user's own data
    text: MemoryText
    memory_type: str = Field(default="general", min_length=1, max_length=LABEL_LENGTH)

    def new_memory(self) -> NewMemory:
        """Return the memory to store."""
        return NewMemory(content=self.text.strip(), memory_type=self.memory_type)


class RememberParams(StrictInput):
    """A fact to remember."""

    text: Annotated[
        str, Field(min_length=1, validation_alias=AliasChoices("text", "content"))
    ]  # long texts are truncated, and `content` is its former name
    summary: str = ""
    space: str | None = None

    def new_memory(self) -> NewMemory:
        """Return the memory to store."""
        return NewMemory(content=self.text.strip(), summary=self.summary)


class MemoryChange(ToolOutput):
    """The outcome of a write: the key of the memory, or why nothing changed."""

    done: bool
    memory_key: str | None = None
    note: str = ""


class StoredMemory(MemoryChange):
    """The outcome of storing a memory."""

    similar: list[dict[str, str]] = Field(default_factory=list)
    replaced: list[str] = Field(default_factory=list)  # keys of memories that no longer hold
    truncated: bool = False
    redacted: list[str] = Field(default_factory=list)  # the kinds of data that are not stored


async def remember(
    context: ToolContext, arguments: RememberArguments | RememberParams
) -> StoredMemory:
    """Store a fact; a fact that is stored already is not stored again."""
    try:
        memory = arguments.new_memory()
    except ValidationError:
        raise InvalidArgument("the text cannot be stored") from None
    if arguments.space is not None:
        context = replace(context, scope=await context.enter(arguments.space, writes=True))
    similar_memories = await _find_similar(context, memory.content[:MAX_MEMORY_TEXT])
    outcomes = await context.add_memory(memory)
    outcome, *ended = [_name_outside(context.scope, each) for each in outcomes]
    if outcome.memory_key is None:
        raise InvalidArgument(outcome.reason)
    redacted = context.redacted_kinds(memory.content, memory.summary)
    if outcome.event == "NONE":
        return StoredMemory(
            done=True,
            memory_key=outcome.memory_key,
            note="This fact is already stored",
            truncated=outcome.truncated,
            redacted=redacted,
        )
    length = excerpt_length(_SIMILAR_MEMORIES)
    replaced = [key for key in (outcome.previous_key, *(step.memory_key for step in ended)) if key]
    similar = [
        {"memory_key": key, "content": single_line(hit.content, length)}
        for hit in similar_memories
        if (key := _qualify(context.scope, hit.key)) not in replaced
    ]
    note = "If one of the similar memories is now wrong, correct or forget it" if similar else ""
    return StoredMemory(
        done=True,
        memory_key=outcome.memory_key,
        note=outcome.reason or _describe_claim(outcome) or note,
        similar=similar,
        replaced=replaced,
        truncated=outcome.truncated,
        redacted=redacted,
    )


def _qualify(scope: Scope, key: str) -> str:
    """Return the key of a row as it is named outside of its space, if it is in one."""
    return key if scope.space is None else qualify_key(scope.space, key)


def _name_outside(scope: Scope, outcome: PlanOutcome) -> PlanOutcome:
    keys = {n: getattr(outcome, n) for n in ("memory_key", "previous_key")}
    named: dict[str, Any] = {n: key and _qualify(scope, key) for n, key in keys.items()}
    conflicts = tuple(_qualify(scope, key) for key in outcome.conflicts_with)
    return replace(outcome, **named, conflicts_with=conflicts)


async def _find_similar(context: ToolContext, text: str) -> list[Hit]:
    """Return memories about the same thing as a sentence of a text, not only of the same topic."""
    library = context.library  # its ranking is relative: the best memory can still be unrelated
    similar: dict[str, Hit] = {}
    for sentence in _SENTENCE.findall(text)[:_COMPARED_SENTENCES]:
        request = SearchRequest(sentence, limit=_SIMILAR_MEMORIES, kind="memory")
        page = await library.search(context.scope, request)
        floor = await library.engine.noise_floor(sentence, page.searched)
        similar |= {hit.key: hit for hit in page.results if _is_similar(hit, floor)}
    return list(similar.values())[:_SIMILAR_MEMORIES]


def _is_similar(hit: Hit, floor: float) -> bool:
    shares_words = hit.why.coverage >= _MIN_COVERAGE
    nearness = _MIN_NEARNESS if shares_words else _MIN_NEARNESS_ALONE
    is_near = hit.why.cosine >= floor + nearness * (1 - floor)
    return is_near or hit.why.coverage >= _MIN_COVERAGE_ALONE


def _describe_claim(outcome: PlanOutcome) -> str:
    """Return a note on a write that contradicts what the user said; "" for others."""
    if not outcome.conflicts_with:
        return ""
    keys = ", ".join(outcome.conflicts_with)
    return f"Stored as an unconfirmed claim: it conflicts with {keys}, which only the user changes"


class CorrectArguments(ToolInput):
    """Arguments of `correct`."""

    memory_key: str
    text: MemoryText
    reason: Reason = ""


async def correct(context: ToolContext, arguments: CorrectArguments) -> StoredMemory:
    """Replace a memory; the old one stays readable in the history."""
    scope, key = await context.resolve_write(arguments.memory_key)
    old = await context.library.store.memories(scope).get(key)
    if old.superseded_by is not None:
        note = "It was already replaced by the memory with this key"
        return StoredMemory(done=False, memory_key=_qualify(scope, old.superseded_by), note=note)
    try:
        content = arguments.text.strip()
        new = NewMemory(content=content, **old.model_dump(include=_KEPT_FIELDS))
    except ValidationError:
        raise InvalidArgument("the text cannot be stored") from None
    step = PlanStep("UPDATE", new, old.memory_key, Origin.ASSISTANT, arguments.reason)
    (outcome,) = await context.library.apply_plan(scope, [step], actor=context.actor)
    outcome = _name_outside(scope, outcome)
    if outcome.memory_key is None:
        raise InvalidArgument(outcome.reason)
    if outcome.event == "NONE":
        return StoredMemory(
            done=False, memory_key=outcome.memory_key, note="The memory already says this"
        )
    note = _describe_claim(outcome) or f"Replaced {arguments.memory_key}"
    is_done, redacted = not outcome.conflicts_with, context.redacted_kinds(content)
    return StoredMemory(done=is_done, memory_key=outcome.memory_key, note=note, redacted=redacted)


class ForgetArguments(ToolInput):
    """Arguments of `forget`."""

    memory_key: str
    reason: Reason = ""
    sources: bool = True


async def forget(context: ToolContext, arguments: ForgetArguments) -> MemoryChange:
    """Hide a memory and its messages, or a message; its user can have it restored until a purge."""
    library, name = context.library, arguments.memory_key
    scope, key = await context.resolve_write(name)
    changes, actor, reason = library.changes(scope), context.actor, arguments.reason
    if await library.store.timeline(scope).get_many([key]):
        await changes.delete([], message_ids=[key], actor=actor, reason=reason)
        return MemoryChange(done=True, memory_key=name, note="The message is hidden")
    await _find_memory(context, name)
    removal = await changes.delete([key], actor=actor, reason=reason, sources=arguments.sources)
    note = "Hidden with the messages that it comes from" if removal.messages else ""
    return MemoryChange(done=True, memory_key=name, note=note)


async def _find_memory(context: ToolContext, key: str) -> MemoryRecord:
    """Return a memory of the user; tell knowledge, which recall returns too, from unknown keys."""
    try:
        return await context.library.store.memories(context.scope).get(key)
    except NotFound:
        with suppress(NotFound):
            await context.knowledge.get(key)
            raise InvalidArgument(
                f"{key!r} is an entry of the knowledge base, which all users share",
                hint="Only delete_knowledge removes it",
            ) from None
        raise


class ListParams(StrictInput):
    """A page of the memories."""

    limit: Annotated[int, Field(ge=1, le=50)] = 20
    cursor: str | None = None
    space: str | None = None


class MemoryList(ToolOutput):
    """The memories that hold now, the newest first; `next_cursor` leads to older ones."""

    memories: list[dict[str, Any]]
    next_cursor: str | None
    kept_messages: int = 0  # counted if there is no memory


async def list_memories(context: ToolContext, params: ListParams) -> MemoryList:
    """Return a page of the memories of the user or a space; long contents are shortened."""
    store, space = context.library.store, params.space
    scope = context.scope.own if space is None else await context.enter(space)
    names = await store.spaces.names(scope.user_id) if space else {}
    page = await store.memories(scope).page(MemoryQuery(), limit=params.limit, cursor=params.cursor)
    length = excerpt_length(len(page.items))
    memories = [
        {
            "memory_key": _qualify(scope, record.memory_key),
            "memory_type": record.memory_type,
            "content": truncate_text(record.content, length),
            "characters": len(record.content),
            "since": format_time(record.since),
            **({"by": names.get(record.author or "", record.author)} if space else {}),
        }
        for record in page.items
    ]
    kept = 0 if memories or params.cursor else await store.timeline(scope).count()
    return MemoryList(memories=memories, next_cursor=page.next_cursor, kept_messages=kept)
