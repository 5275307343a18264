"""Model answers, what a prompt shows, and memories with a scripted model."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from autogen_core.models import SystemMessage, UserMessage

from memrecall.extraction import Extracted, Fact, ModelExtractor, Utterance
from memrecall.memory import AsyncMemory
from memrecall.memory.results import AddedItems
from memrecall.settings import Settings
from memrecall.testing import Request, ScriptedClient, Step, say

from .transcripts import NOW


def answer(**value: Any) -> Step:
    """Return a model's step that answers with this JSON object."""
    return say(json.dumps(value, ensure_ascii=False))


def stated(text: str, *sources: int, **fields: Any) -> dict[str, Any]:
    """Return a fact about the user as a model writes it."""
    return {"text": text, "about": "user", "sources": list(sources), **fields}


def prompt_lines(request: Request) -> list[dict[str, Any]]:
    """Return the JSON lines that a request shows to the model."""
    system, user = request.messages
    assert isinstance(system, SystemMessage)
    assert isinstance(user, UserMessage)
    assert isinstance(user.content, str)
    return [json.loads(line) for line in user.content.split("\n")]


def known_numbers(request: Request, *texts: str) -> list[int]:
    """Return the numbers under which a request shows known memories with these texts."""
    numbers = {line["text"]: line["known"] for line in prompt_lines(request) if "known" in line}
    return [numbers[text] for text in texts]


def replacing(*texts: str, **fact: Any) -> Any:
    """Return a step: a fact that replaces the known memories with these texts."""
    return lambda request: answer(facts=[{**fact, "replaces": known_numbers(request, *texts)}])


async def extract(
    steps: Any, messages: Sequence[Utterance], **options: Any
) -> tuple[Extracted, ScriptedClient]:
    """Return what an extractor reads with a model that plays the steps, and the model."""
    client = ScriptedClient(steps if isinstance(steps, list) else [steps])
    verify = options.pop("verify", "none")
    extractor = ModelExtractor(client, verify=verify)
    return await extractor.extract(messages, now=NOW, zone=UTC, **options), client


async def read_facts(
    items: Sequence[Any], messages: Sequence[Utterance], **options: Any
) -> tuple[Fact, ...]:
    """Return the facts of a model's answer with these items; nothing may go wrong."""
    extracted, _ = await extract(answer(facts=items), messages, **options)
    assert (extracted.problem, extracted.dropped) == ("", ())
    return extracted.facts


def pairs(facts: Sequence[Fact]) -> list[tuple[str, str]]:
    """Return the subjects and texts of facts."""
    return [(fact.subject, fact.text) for fact in facts]


@asynccontextmanager
async def open_memory(
    location: str, steps: Any = None, **settings: Any
) -> AsyncIterator[tuple[AsyncMemory, ScriptedClient]]:
    """Open the memory of the user ann with a model that plays the steps; None: without a model."""
    fixed = {"embedder": "hash", "snapshots": False, "durability": "normal"}
    client = ScriptedClient(steps or [])
    async with AsyncMemory(
        settings=Settings(db=location, **{**fixed, **settings}),
        model_client=None if steps is None else client,
        user_id="ann",
    ) as memory:
        yield memory, client


def said(text: str, *, at: datetime = NOW, role: str = "user", **fields: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": text, "ts": at.isoformat(), **fields}


async def memories(memory: AsyncMemory, **options: Any) -> list[str]:
    """Return the texts of the memories that hold, in order of the alphabet."""
    return sorted(item["memory"] for item in (await memory.get_all(**options))["results"])


def events(report: AddedItems) -> list[tuple[str, str]]:
    """Return the events of an `add`, and their memories."""
    return [(item["event"], item["memory"]) for item in report["results"]]
