"""Adding: messages are stored first; what is made from them may fail and is told, never lost."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from memrecall.memory.conversations import origin_of
from memrecall.memory.display import Added, GraphAnswer
from memrecall.memory.extraction.facts import Utterance
from memrecall.memory.extraction.names import aliases_in
from memrecall.memory.extraction.protocol import Extractor
from memrecall.memory.learning import ACTOR, CONTEXT, Learned, Learner, Marks, as_utterance
from memrecall.memory.library import Library
from memrecall.memory.processing import Processes, run_processes
from memrecall.memory.shapes import outcome_item
from memrecall.memory.summaries import SessionSummaries
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import Entry, NewRelation, Outcome, PendingText, RowKey
from memrecall.types import NAME_LENGTH, NewMemory, NewMessage, Origin, Role

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
    outcomes: tuple[Outcome, ...] = ()


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
            [Entry(scope, message) for message in addition.messages], kept, actor=ACTOR
        )
        outcomes: list[Outcome] = []
        rows: list[PendingText] = []
        for message, name, key in zip(addition.messages, written.ids, keys, strict=True):
            if key is not None:
                outcomes.append(Outcome("ADD", key, message.content))
                rows.append(PendingText(RowKey(scope.user_id, "message", name), message.content))
                rows.append(PendingText(RowKey(scope.user_id, "memory", key), message.content))
        await self._library.vectors.submit(rows)
        return Stored(written.ids, written.stored, tuple(outcomes))

    async def finish(self, addition: Addition, stored: Stored, missed: Sequence[str] = ()) -> Added:
        """Make what is to be made of stored messages; the result tells what failed."""
        problems: list[str] = list(missed)
        outcomes: Sequence[Outcome] = stored.outcomes
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
        result = Added(
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

    async def relate(self, scope: Scope, said: Sequence[Utterance]) -> GraphAnswer:
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
        return GraphAnswer(
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
