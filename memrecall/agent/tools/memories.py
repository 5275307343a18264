"""Tools on one user's memories: remember, correct, forget and list.

A parent agent and an MCP client may see different arguments and results; each has one handler.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import AliasChoices, Field, PrivateAttr, ValidationError

from memrecall.agent.blocks import write_block
from memrecall.agent.result import Certainty, RecalledMemory, RecallResult
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.models import (
    StrictInput,
    ToolInput,
    ToolOutput,
    excerpt_length,
)
from memrecall.errors import InvalidArgument, MemrecallError, NotFound
from memrecall.messages import ConversationMessage
from memrecall.scope import Scope, qualify_key
from memrecall.search import Hit, SearchRequest
from memrecall.search.results import origin_fields
from memrecall.store import PlanOutcome, PlanStep
from memrecall.text.snippets import find_center
from memrecall.text_length import single_line, truncate_around
from memrecall.types import LABEL_LENGTH, MemoryRecord, NewMemory, Origin, Role, format_time

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


_EVIDENCE_FIELDS = {
    *("memory_key", "kind", "summary", "speaker", "certainty"),
    *("claimed_by", "conflicts_with", "truncated", "checked", "doubts"),
}


class RecallToolArguments(ToolInput):
    """Arguments of `recall` for a parent agent."""

    query: str
    context: str | None = None
    time: str | None = None

    def messages(self) -> list[ConversationMessage]:
        """Return the conversation to recall for."""
        before = [ConversationMessage(Role.OTHER, self.context)] if self.context else []
        return [*before, ConversationMessage(Role.USER, self.query)]


class RecallParams(StrictInput):
    """A question that refers to something."""

    # Clients of earlier versions send `question`.
    query: Annotated[
        str,
        Field(min_length=1, max_length=10_000, validation_alias=AliasChoices("query", "question")),
    ]
    time: str | None = None

    def messages(self) -> str:
        """Return the conversation to recall for."""
        return self.query


class RecallAnswer(ToolOutput):
    """Result of `recall` for a parent agent."""

    found: bool
    confidence: float
    certainty: Certainty = Certainty.NONE
    summary: str
    memories: list[dict[str, str]] = Field(default_factory=list)
    closest: list[str] | None = None  # quotes, if nothing was found that is likely to be meant
    follow_up_question: str | None = None
    withheld: int | None = None  # sensitive memories that match and may not be shown
    stop_reason: str
    judged: bool = False  # False: a limit or a failure ended the recall first
    fallback: str | None = None  # why the recall went on without its model
    problem: str | None = None
    dropped_keys: list[str] | None = None  # handed off, but not found in this recall

    @classmethod
    def from_result(cls, result: RecallResult) -> Self:
        """Return the answer for the parent's model."""
        length = excerpt_length(len(result.memories))
        return cls(
            found=bool(result.memories),
            confidence=result.confidence,
            certainty=result.certainty,
            summary=result.handoff.search_summary,
            memories=[
                {
                    "memory_key": memory.memory_key,
                    "said_at": format_time(memory.ts),
                    **({"by": memory.by} if memory.by else {}),
                    "certainty": memory.certainty.value,
                    "content": _excerpt(result, memory, length),
                    **memory.describe_conflict(result.language),
                    **origin_fields(memory),
                    **({} if memory.checked else memory.describe_certainty(result.language)),
                }
                for memory in result.memories
            ],
            closest=_quote_closest(result, length) or None,
            follow_up_question=result.handoff.follow_up_question,
            withheld=result.withheld or None,
            stop_reason=result.stop_reason.value,
            judged=result.judged,
            fallback=result.fallback,
            problem=result.problem,
            dropped_keys=result.keys_dropped or None,
        )

    @classmethod
    def from_error(cls, error: MemrecallError) -> Self:
        """Return the answer to a recall that failed."""
        problem = f"The memories could not be searched: {error.message}."
        return cls(
            found=False,
            confidence=0.0,
            summary=f"{problem} This does not mean that nothing was found.",
            stop_reason=error.code.lower(),
            problem=error.message,
        )


def _excerpt(result: RecallResult, memory: RecalledMemory, length: int) -> str:
    """Return a content, or the part of a long one that is about the request."""
    return cut_excerpts([memory.content], result.words_about(memory.memory_key), length)[0]


def _quote_closest(result: RecallResult, length: int) -> list[str]:
    """Return the closest contents, each unchecked fact with quotes of its messages."""
    return [
        " ".join(
            [
                _excerpt(result, memory, length),
                *(f"({doubt})" for doubt in memory.describe_doubts(result.language).values()),
            ]
        )
        for memory in result.closest
    ]


class RecallReply(ToolOutput):
    """What was found; `abstained` means that nothing was, and that guessing would be wrong."""

    summary: str
    confidence: float
    certainty: Certainty
    abstained: bool
    memories: list[dict[str, Any]]
    # Quotes, if nothing was found that is likely to be meant.
    closest: list[str] = Field(default_factory=list)
    follow_up_question: str | None = None
    withheld: int = 0  # sensitive memories that match and may not be shown
    _block: str = PrivateAttr(default="")

    @classmethod
    def from_result(cls, result: RecallResult) -> Self:
        """Return the reply for an MCP client."""
        length = excerpt_length(len(result.memories))
        reply = cls(
            summary=result.handoff.search_summary,
            confidence=result.confidence,
            certainty=result.certainty,
            abstained=result.abstained,
            memories=[
                {
                    **memory.model_dump(mode="json", include=_EVIDENCE_FIELDS),
                    "content": _excerpt(result, memory, length),
                    "probability": memory.probability and round(memory.probability, 2),
                    "characters": len(memory.content),
                    "said_at": format_time(memory.ts),
                    **origin_fields(memory),
                }
                for memory in result.memories
            ],
            closest=_quote_closest(result, length),
            follow_up_question=result.handoff.follow_up_question,
            withheld=result.withheld,
        )
        reply._block = write_block(result, place="apart")
        return reply

    def as_text(self) -> str:
        """Return the memories as the block of data that a model reads."""
        return self._block


async def recall(
    context: ToolContext, arguments: RecallToolArguments | RecallParams
) -> RecallResult:
    """Recall what the request refers to."""
    return await context.recall_messages(arguments.messages(), arguments.time)


def cut_excerpts(contents: Sequence[str], words: Sequence[str], length: int) -> list[str]:
    """Return each content, cut around some words if it is long."""
    return [
        content
        if len(content) <= length
        else truncate_around(content, length, find_center(content, words))
        for content in contents
    ]
