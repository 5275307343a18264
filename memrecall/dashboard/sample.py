"""The sample: invented chats of two users, and the recorded answers of a model that read them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from memrecall.agent import Recaller, RecallOptions
from memrecall.evaluation.datasets import read_corpus, read_questions
from memrecall.evaluation.runner import evaluate
from memrecall.extraction.model import ModelExtractor
from memrecall.extraction.protocol import Extracted, KnownMemory, Summary, Utterance
from memrecall.extraction.summaries import summarise_with
from memrecall.importers.jsonl import read_entry
from memrecall.library.library import Library
from memrecall.memory.memory import AsyncMemory
from memrecall.scope import DEFAULT_NAME, Permission, Scope
from memrecall.settings import Settings

if TYPE_CHECKING:
    from memrecall.model.protocol import ChatCompletionClient

SAMPLE_USERS = {"en": "maya", "zh": "lin"}
SAMPLE_TIME = datetime(2026, 4, 21, 9, 0, tzinfo=UTC)  # two days after the last message
SAMPLE_CASSETTE = Path(__file__).with_name("sample_cassette.jsonl")  # `make cassettes` records it
# Chats over four months: `lin` in Chinese, `maya` in English.
_CHAT = Path(__file__).with_name("sample_chat.jsonl")
_CONTENT = Path(__file__).with_name("sample.json")  # what is pinned, knowledge, and requests
_QUESTIONS = Path(__file__).with_name("sample_questions.jsonl")  # labelled, about both chats
_ACTOR = "sample"
_log = logging.getLogger(__name__)


@cache
def _read_content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_CONTENT.read_text("utf-8"))
    return content


async def read_sample_questions(library: Library, scope: Scope) -> list[str]:
    """Return questions that the sample asks of a user; none if the user's chats are others."""
    questions: list[str] = _read_content()["requests"].get(scope.user_id, [])
    first = [f"{scope.user_id}-001"]
    return questions if questions and await library.store.timeline(scope).get_many(first) else []


class _SampleExtractor:
    """The model extractor at a fixed time, so that its requests are those that were recorded."""

    def __init__(self, client: ChatCompletionClient) -> None:
        self._model = ModelExtractor(client)

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
        """Return what the model reads; the known memories are sorted, because keys are random."""
        del now, zone
        ordered = sorted(known, key=lambda memory: (str(memory.valid_from), memory.text))
        return await self._model.extract(
            utterances, now=SAMPLE_TIME, zone=UTC, prompt=prompt, context=context, known=ordered
        )

    async def summarise(
        self, lines: str | Sequence[Utterance | str], limit_characters: int
    ) -> Summary:
        """Return the most informative sentences: summaries are not recorded."""
        return await summarise_with(None, lines, limit_characters)


async def add_sample_chats(
    library: Library, client: ChatCompletionClient | None = None
) -> list[dict[str, Any]]:
    """Store the sample chats and what a model reads in them; return the results of each `add`.

    Without a client, the answers of the model come from the cassette of the package. Chats whose
    facts are stored are not read again.
    """
    from memrecall.model.cassette import ReplayClient

    entries = [read_entry(line) for line in _CHAT.read_bytes().splitlines()]
    users = dict.fromkeys(entry.scope.user_id for entry in entries)
    new = {user for user in users if not await library.store.memories(Scope(user)).last_change()}
    extractor = _SampleExtractor(client or ReplayClient(SAMPLE_CASSETTE))
    results: list[dict[str, Any]] = []
    async with AsyncMemory(library=library, actor=_ACTOR, extractor=extractor) as memory:
        for scope, group in groupby(entries, attrgetter("scope")):
            if scope.user_id in new:
                messages = [entry.message for entry in group]
                added = await memory.add(messages, scope.user_id, session_id=scope.session_id)
                results.append({"user_id": scope.user_id, **added})
        pinned = _read_content()["pinned"]
        for result in results:
            for item in result["results"]:
                if item["memory"] in pinned:
                    await memory.update(item["id"], user_id=result["user_id"], pinned=True)
    problems = [problem for result in results for problem in result["problems"]]
    if problems:  # such as a setting that redacts what was recorded
        _log.warning("the sample is incomplete: %s", problems[0])
    return results


async def load_sample(library: Library) -> frozenset[str]:
    """Store the sample chats, memories, knowledge and some recalls; return the users."""
    await add_sample_chats(library)
    permissions = {Permission.KNOWLEDGE}
    async with AsyncMemory(library=library, permissions=permissions, actor=_ACTOR) as memory:
        knowledge = (await memory.long_term(agent_id=DEFAULT_NAME)).knowledge
        for entry in _read_content()["knowledge"]:
            await knowledge.add(**entry)
    await library.vectors.settle()
    options = RecallOptions(keep_traces_days=library.settings.trace_days)
    requests = _read_content()["requests"]
    for user in requests:
        for request in requests[user]:  # the recalls of the sample need no model
            await Recaller(library, Scope(user), None, options).recall(request)
    return frozenset(requests)


async def evaluate_sample(settings: Settings, out: Path) -> None:
    """Ask the labelled questions of the sample, offline, and store the run in a folder."""
    corpus, questions = read_corpus(_CHAT, read_entry), read_questions(_QUESTIONS)
    with TemporaryDirectory(prefix="memrecall-") as folder:
        own: dict[str, Any] = {"db": f"{folder}/sample.db", "read_only": False, "snapshots": False}
        async with await Library.open(replace(settings, **own, durability="normal")) as library:
            await evaluate(library, corpus, questions, out, mode="recall")
