"""The sample: invented chats of two users, and what is remembered of them, checked by hand."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memrecall.agent import Recaller, RecallOptions
from memrecall.evaluation.corpus import read_corpus
from memrecall.evaluation.questions import read_questions
from memrecall.evaluation.runner import evaluate
from memrecall.extraction.protocol import (
    Entity,
    Extracted,
    Fact,
    KnownMemory,
    Relation,
    Summary,
    Utterance,
)
from memrecall.extraction.summaries import summarise_with
from memrecall.importers.jsonl import read_entry
from memrecall.library.library import Library
from memrecall.memory.memory import AsyncMemory
from memrecall.scope import DEFAULT_NAME, Permission, Scope
from memrecall.settings import Settings

# Chats over four months: `lin` in Chinese, `maya` in English.
_CHAT = Path(__file__).with_name("sample_chat.jsonl")
_MEMORIES = Path(__file__).with_name("sample_memories.json")
_QUESTIONS = Path(__file__).with_name("sample_questions.jsonl")  # labelled, about both chats
_ACTOR = "sample"
SAMPLE_USERS = {"en": "maya", "zh": "lin"}


@cache
def _read_memories() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_MEMORIES.read_text("utf-8"))
    return content


async def read_sample_questions(library: Library, scope: Scope) -> list[str]:
    """Return questions that the sample asks of a user; none if the user's chats are others."""
    questions: list[str] = _read_memories()["requests"].get(scope.user_id, [])
    first = [f"{scope.user_id}-001"]
    return questions if questions and await library.store.timeline(scope).get_many(first) else []


class SampleExtractor:
    """Extracts from the sample chats what the file of sample memories says of them."""

    async def extract(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
        known: Sequence[KnownMemory] = (),
    ) -> Extracted:
        """Return the memories that come from the utterances, and their relations."""
        del now, zone, prompt, context
        memories = list(_memories_of(utterances))
        facts = tuple(_to_fact(memory, known) for memory in memories)
        relations = tuple(
            Relation(source, how, destination, tuple(memory["sources"]), ended=bool(ended))
            for memory in memories
            for source, how, destination, *ended in memory["relations"]
        )
        types = _read_memories()["entities"]
        names = dict.fromkeys(end for r in relations for end in (r.source, r.destination))
        entities = tuple(Entity(n, types.get(n, "thing")) for n in names)
        return Extracted(facts, entities, relations)

    async def summarise(
        self, lines: str | Sequence[Utterance | str], limit_characters: int
    ) -> Summary:
        """Return the most informative sentences."""
        return await summarise_with(None, lines, limit_characters)


def _to_fact(memory: dict[str, Any], known: Sequence[KnownMemory]) -> Fact:
    subject, slot = memory["subject"], memory.get("field")
    same = (k for k in known if slot is not None and (k.subject, k.field) == (subject, slot))
    replaces = tuple(k.memory_key for k in same)
    sources = tuple(memory["sources"])
    return Fact(memory["text"], subject, memory["type"], slot, sources, replaces=replaces)


def _memories_of(utterances: Sequence[Utterance]) -> Iterator[dict[str, Any]]:
    """Yield the memories whose last source is among the utterances."""
    ids = {utterance.message_id for utterance in utterances}
    yield from (m for m in _read_memories()["memories"] if m["sources"][-1] in ids)


async def load_sample(library: Library) -> frozenset[str]:
    """Store the sample chats, memories, knowledge and some recalls; return the users."""
    entries = [read_entry(line) for line in _CHAT.read_bytes().splitlines()]
    permissions = {Permission.KNOWLEDGE}
    async with AsyncMemory(
        library=library, permissions=permissions, actor=_ACTOR, extractor=SampleExtractor()
    ) as memory:
        for scope, group in groupby(entries, attrgetter("scope")):
            messages = [entry.message for entry in group]
            added = await memory.add(messages, scope.user_id, session_id=scope.session_id)
            await _pin(memory, scope.user_id, added["results"])
        knowledge = (await memory.long_term(agent_id=DEFAULT_NAME)).knowledge
        for entry in _read_memories()["knowledge"]:
            await knowledge.add(**entry)
    await library.vectors.settle()
    options = RecallOptions(keep_traces_days=library.settings.trace_days)
    for user, requests in _read_memories()["requests"].items():
        for request in requests:  # by rules: the sample needs no model
            await Recaller(library, Scope(user), None, options).recall(request)
    return frozenset(entry.scope.user_id for entry in entries)


async def evaluate_sample(settings: Settings, out: Path) -> None:
    """Ask the labelled questions of the sample, by the rules, and store the run in a folder."""
    corpus, questions = read_corpus(_CHAT, read_entry), read_questions(_QUESTIONS)
    with TemporaryDirectory(prefix="memrecall-") as folder:
        own: dict[str, Any] = {"db": f"{folder}/sample.db", "read_only": False, "snapshots": False}
        async with await Library.open(replace(settings, **own, durability="normal")) as library:
            await evaluate(library, corpus, questions, out, mode="recall")


async def _pin(memory: AsyncMemory, user: str, results: Sequence[dict[str, Any]]) -> None:
    pinned = {item["text"] for item in _read_memories()["memories"] if item.get("pinned")}
    for result in results:
        if result["memory"] in pinned:
            await memory.update(result["id"], user_id=user, pinned=True)
