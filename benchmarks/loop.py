"""The cost of the recall loop compared with AutoGen's agent: time per tool call, prompt sizes.

    python benchmarks/loop.py                   1,000 tool calls, best of three
    python benchmarks/loop.py --calls 200 --repeats 1 --json loop.json

There is no model and no search: the model is a script, and search results are fixed. Both agents
run the same script with tools of the same schemas, in the same process. Exits with 1 if a target is
missed.
"""

import argparse
import asyncio
import inspect
import json
import logging
import platform
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, cast

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from autogen_agentchat.agents import AssistantAgent  # noqa: E402
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent  # noqa: E402
from autogen_core.model_context import BufferedChatCompletionContext  # noqa: E402
from autogen_core.tools import FunctionTool  # noqa: E402

from benchmarks.report import Report, Target, number, say  # noqa: E402
from memrecall.agent import MEMRECALL_TOOLS, MemRecallAgent, RecallOptions  # noqa: E402
from memrecall.agent.tools.table import TOOLS  # noqa: E402
from memrecall.budget import Limits  # noqa: E402
from memrecall.library.library import Caches, Library  # noqa: E402
from memrecall.model.openai_client import write_request  # noqa: E402
from memrecall.scope import Scope  # noqa: E402
from memrecall.search import Hit, ScoreParts, SearchPage, SearchRequest  # noqa: E402
from memrecall.store import NewTrace, Store, UserVersion, WriteResult  # noqa: E402
from memrecall.testing import ScriptedClient, Step, call  # noqa: E402
from memrecall.testing import say as answer  # noqa: E402
from memrecall.types import (  # noqa: E402
    Language,
    MemoryRecord,
    Message,
    NewMemory,
    Origin,
    Provenance,
)

SECTION, SIZES = "time a tool call", "sizes in characters"
SHARE = 0.1  # of AssistantAgent's time
LARGEST = {"system prompt and tools, en": 6_000, "system prompt and tools, zh": 4_500}
LARGEST_RESULT = 3_000
NOW = datetime(2026, 4, 21, 9, 0, tzinfo=UTC)
ASKED: dict[Language, str] = {"en": "Which tea did I choose?", "zh": "我上次选的是什么茶？"}
KEPT = 20  # messages that AssistantAgent's context keeps
LONG_EN = "The retry budget of the billing worker was raised after the incident. " * 40
LONG_ZH = "上周三我们决定把结算服务的重试次数调高，并且把告警阈值改成五分钟。" * 60


class StubFeed:
    """The feed of an agent that has no entries."""

    async def version(self) -> None:
        """Return no version."""


class StubStore:
    """A store that answers at once: every key is a memory."""

    def feed(self, user_id: str) -> "StubStore":
        """Return the feed of a user."""
        return self

    def knowledge_feed(self, agent_id: str) -> "StubFeed":
        """Return the feed of an agent without knowledge."""
        return StubFeed()

    def memories(self, scope: Scope) -> "StubStore":
        """Return the memories of a scope."""
        return self

    def timeline(self, scope: Scope) -> "StubTimeline":
        """Return the messages of a scope."""
        return StubTimeline()

    def traces(self, scope: Scope) -> "StubStore":
        """Return the traces of a scope."""
        return self

    async def version(self) -> UserVersion:
        """Return a version that never changes."""
        return UserVersion("epoch", 1, 1, "UTC")

    async def read_version(self, scope: Scope) -> UserVersion:
        """Accept every user."""
        return await self.version()

    async def get_many(self, keys: Sequence[str]) -> list[MemoryRecord]:
        """Return a memory for each key."""
        return [_record(key) for key in keys]

    async def add(self, trace: NewTrace, keep_days: int) -> None:
        """Discard the trace."""


class StubTimeline:
    """A timeline without messages."""

    async def get_many(self, message_ids: Sequence[str]) -> list[Message]:
        """Return nothing."""
        return []


class StubLibrary:
    """A library without a database and a search."""

    def __init__(self, pages: Sequence[SearchPage]) -> None:
        self._pages = list(pages)
        self._asked = 0
        self.caches = Caches()

    @property
    def store(self) -> Store:
        """The store behind the search."""
        return cast(Store, StubStore())

    @property
    def engine(self) -> "StubLibrary":
        """The search engine: this object."""
        return self

    async def load_embedder(self) -> None:
        """Load nothing: no search needs an embedder."""

    async def read_version(self, scope: Scope, request: SearchRequest) -> UserVersion:
        """Return a version that never changes."""
        return UserVersion("epoch", 1, 1, "UTC")

    async def search(
        self, scope: Scope, request: SearchRequest, user: UserVersion | None = None
    ) -> SearchPage:
        """Return the next canned page."""
        self._asked += 1
        return self._pages[(self._asked - 1) % len(self._pages)]

    async def add_memories(
        self, scope: Scope, batch: Sequence[NewMemory], *, origin: Origin, actor: str
    ) -> WriteResult:
        """Discard the memories."""
        return WriteResult()


def _record(key: str) -> MemoryRecord:
    provenance = Provenance(origin=Origin.USER, actor="bench", session_id=None, time=NOW, sha256="")
    return MemoryRecord(
        memory_key=key,
        user_id="bench",
        agent_id="default",
        session_id=None,
        summary="tea",
        content=f"We chose the green tea from Hangzhou, number {key}.",
        memory_type="preference",
        layer="long",
        keywords=(),
        metadata={},
        sensitive=False,
        valid_from=None,
        valid_to=None,
        source_message_ids=(),
        provenance=provenance,
        truncated=False,
        created_at=NOW,
        updated_at=NOW,
    )


def make_hit(key: str, content: str, **fields: Any) -> Hit:
    """Return a hit of a search."""
    zeros = dict.fromkeys(("thread", "neighbours", "time", "speaker", "nature"), 0.0)
    why = ScoreParts(lexical=1.0, semantic=1.0, coverage=1.0, cosine=0.8, **zeros)
    hit = Hit(
        key=key,
        kind="message",
        score=0.9,
        ts=NOW - timedelta(days=3),
        role="user",
        speaker="Maya",
        content=content,
        session_id="s1",
        memory_type="message",
        why=why,
    )
    return replace(hit, **fields)


def canned_pages(count: int) -> list[SearchPage]:
    """Return pages of five hits, two of them new: a loop without new results would be ended."""
    hits = [make_hit(f"m{n}", f"We chose the green tea, number {n}.") for n in range(2 * count + 5)]
    return [SearchPage(tuple(hits[2 * n : 2 * n + 5]), total_found=40) for n in range(count)]


def script(calls: int) -> list[Step]:
    """Return a script of searches and details, then a handoff."""
    steps = [
        call("get_memory_detail", memory_key=f"m{number - 1}")
        if number % 2
        else call("search_memories", query=f"green tea {number}", min_relevance_score=0.3)
        for number in range(calls - 1)
    ]
    return [*steps, HANDOFF]


HANDOFF = call(
    "handoff",
    reason="found",
    search_summary="The green tea from Hangzhou.",
    relevant_memory_keys=["m0"],
    confidence=0.9,
)


def recall_agent(
    client: ScriptedClient, pages: Sequence[SearchPage], user: str = "bench"
) -> MemRecallAgent:
    """Return memrecall's agent, with limits that the script does not reach."""
    limits = Limits(model_calls=10**6, tool_calls=10**6, tokens=10**9, seconds=3_600.0)
    options = RecallOptions(limits=limits, largest_prompt=10**9, keep_traces_days=0)
    return MemRecallAgent(
        "recall",
        cast(Library, StubLibrary(pages)),
        Scope(user),
        model_client=client,
        options=options,
    )


def assistant_agent(client: ScriptedClient, calls: int) -> AssistantAgent:
    """Return AutoGen's agent with five tools of the same schemas that answer at once."""
    return AssistantAgent(
        "assistant",
        client,
        tools=[_function_tool(name) for name in MEMRECALL_TOOLS],
        max_tool_iterations=calls + 1,
        model_context=BufferedChatCompletionContext(KEPT),
    )


def _function_tool(name: str) -> FunctionTool:
    """Return an AutoGen tool made from a function with the same arguments."""
    texts = TOOLS[name].texts("en")
    about, descriptions = texts.description, texts.arguments
    fields = MEMRECALL_TOOLS[name]["input_model"].model_fields
    text = json.dumps({"success": True, "results": ["We chose the green tea."] * 5})

    async def run(**_: Any) -> str:
        return text

    hints = {key: Annotated[fields[key].annotation, descriptions[key]] for key in descriptions}
    run.__annotations__ = {**hints, "return": str}
    signature = inspect.Signature(
        [
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty
                if fields[key].is_required()
                else fields[key].get_default(call_default_factory=True),
            )
            for key in descriptions
        ]
    )
    setattr(run, "__signature__", signature)  # noqa: B010 -- mypy knows no such attribute
    return FunctionTool(run, description=about, name=name)


async def consume(stream: AsyncGenerator[Any, None]) -> tuple[float, int]:
    """Consume a stream; return the seconds and the number of executed calls."""
    executed = 0
    started = time.perf_counter()
    async with aclosing(stream) as events:
        async for event in events:
            if isinstance(event, ToolCallExecutionEvent):
                executed += len(event.content)
    return time.perf_counter() - started, executed


async def time_memrecall(calls: int) -> float:
    """Return the microseconds per tool call of `MemRecallAgent`."""
    client = ScriptedClient(script(calls))
    agent = recall_agent(client, canned_pages(calls))
    seconds, executed = await consume(agent.run_stream(task=ASKED["en"]))
    assert (executed, client.remaining) == (calls, 0), "the loop ended before its script"
    return seconds / calls * 1e6


async def time_autogen(calls: int) -> float:
    """Return the microseconds per tool call of AutoGen's `AssistantAgent`."""
    client = ScriptedClient([*script(calls), answer("The green tea.")])
    agent = assistant_agent(client, calls)
    seconds, executed = await consume(agent.run_stream(task=ASKED["en"]))
    assert (executed, client.remaining) == (calls, 0), "the agent ended before its script"
    return seconds / calls * 1e6


async def measure_time(report: Report, calls: int, repeats: int) -> None:
    """Run both agents in turn after a warm-up; return the best time of each."""
    await time_memrecall(min(calls, 50))
    await time_autogen(min(calls, 50))
    memrecall_times: list[float] = []
    autogen_times: list[float] = []
    for turn in range(1, repeats + 1):
        say(f"{calls:,} tool calls of each agent, round {turn} of {repeats}")
        memrecall_times.append(await time_memrecall(calls))
        autogen_times.append(await time_autogen(calls))
    share = min(memrecall_times) / min(autogen_times)
    report.add(SECTION, "MemRecallAgent", min(memrecall_times), "µs")
    report.add(SECTION, "AssistantAgent, five tools", min(autogen_times), "µs")
    report.add(SECTION, "ratio", share, "")
    report.targets.append(Target("MemRecallAgent of AssistantAgent", share, SHARE))


async def prompt_size(language: Language) -> int:
    """Return the characters of prompt and tools, which are equal in every request.

    Uses two users, several turns and two iterations.
    """
    widen = call("expand_context_window", reason="more", current_size=5, requested_size=10)
    heads: set[str] = set()
    for user in ("one", "another"):
        client = ScriptedClient([call("search_memories", query="tea"), widen, HANDOFF])
        agent = recall_agent(client, canned_pages(2), user)
        messages = [
            TextMessage(content=f"{number} {user}", source="user", created_at=NOW)
            for number in range(12)
        ]
        question = TextMessage(content=ASKED[language], source="user", created_at=NOW)
        await agent.run(task=[*messages, question])
        assert client.remaining == 0, "the loop ended before its script"
        for request in client.requests:
            body = write_request(request, send_reasoning=False)
            head = [body["messages"][0]["content"], json.dumps(body["tools"], ensure_ascii=False)]
            heads.add("".join(head))
    assert len(heads) == 1, "the beginning of the prompt differs between requests"
    return len(heads.pop())


async def largest_result() -> int:
    """Return the characters of a result with ten long contents, keys, summaries and keywords."""
    sizes = []
    for long, language in ((LONG_EN, "en"), (LONG_ZH, "zh")):
        words = tuple(f"{long[:30]}{number}" for number in range(10))
        hits = [
            make_hit(
                f"{number:x>64}",
                long,
                kind="memory",
                memory_type="x" * 50,
                summary=long[:300],
                keywords=words,
                speaker=None,
                role=None,
            )
            for number in range(10)
        ]
        page = SearchPage(tuple(hits), total_found=1_000)
        client = ScriptedClient([call("search_memories", query="x", limit=10), HANDOFF])
        agent = recall_agent(client, [page])
        result = await agent.run(task=ASKED[cast(Language, language)])
        sizes += [
            len(each.content)
            for event in result.messages
            if isinstance(event, ToolCallExecutionEvent)
            for each in event.content
            if each.name == "search_memories"
        ]
    return max(sizes)


async def measure_sizes(report: Report) -> None:
    """Measure the constant part of a request, and the largest search result."""
    languages: tuple[Language, ...] = ("en", "zh")
    for language in languages:
        name = f"system prompt and tools, {language}"
        size = await prompt_size(language)
        report.add(SIZES, name, size, "")
        report.targets.append(Target(name, size, LARGEST[name] - 1))
    size = await largest_result()
    report.add(SIZES, "largest search result", size, "")
    report.targets.append(Target("largest search result", size, LARGEST_RESULT - 1))


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000, help="tool calls of one run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each agent")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args()
    for name in ("autogen_core", "autogen_core.events", "autogen_agentchat.events"):
        logging.getLogger(name).setLevel(logging.ERROR)
    report = Report(sizes=[])
    report.notes.append(f"Python {platform.python_version()}, {options.calls:,} tool calls a run")
    asyncio.run(measure_time(report, options.calls, options.repeats))
    asyncio.run(measure_sizes(report))
    for name, value in report.figures.items():
        print(f"{name:<56} {number(value):>8}")
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
