"""Cassettes of whole runs: the parent's model and that of its recalls, recorded and replayed."""

import re
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import BaseChatMessage
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.models import AssistantMessage

from memrecall.agent import MemoryContext, MemRecallAgent, RecallTool
from memrecall.errors import CassetteMismatch, InvalidArgument
from memrecall.memory import Library
from memrecall.model.client import BaseClient, Request
from memrecall.testing import (
    CassetteRun,
    ScriptedClient,
    Step,
    call,
    calls,
    record_run,
    repeat,
    replay_run,
    say,
    wait,
)

from ..cases import check_each_async
from .recall_helpers import ANN, NOW, REQUEST, hand_off, search


def run_model(run: CassetteRun, name: str, *steps: Any) -> BaseClient:
    """Return a client of a run; a replay ignores the script."""
    return run.client(name, ScriptedClient(steps))


def recall_model(run: CassetteRun) -> BaseClient:
    return run_model(run, "recall", search(), hand_off("a1"))


def with_context(library: Library, run: CassetteRun) -> AssistantAgent:
    context = MemoryContext(library, ANN, model_client=recall_model(run), clock=run.clock)
    parent = run_model(run, "parent", say("Port 5433."))
    return AssistantAgent("parent", parent, model_context=context, model_client_stream=True)


def with_tool(library: Library, run: CassetteRun) -> AssistantAgent:
    tool = RecallTool(library, ANN, model_client=recall_model(run), clock=run.clock)
    parent = run_model(run, "parent", call("recall", query=REQUEST), say("Port 5433."))
    return AssistantAgent("parent", parent, tools=[tool], reflect_on_tool_use=True)


def make_agent(library: Library, run: CassetteRun) -> MemRecallAgent:
    return MemRecallAgent("recall", library, ANN, model_client=recall_model(run), clock=run.clock)


def with_agent_tool(library: Library, run: CassetteRun) -> AssistantAgent:
    parent = run_model(run, "parent", call("recall", task=REQUEST), say("Port 5433."))
    tool = AgentTool(make_agent(library, run))
    return AssistantAgent("parent", parent, tools=[tool], reflect_on_tool_use=True)


def with_team(library: Library, run: CassetteRun) -> RoundRobinGroupChat:
    parent = AssistantAgent("parent", run_model(run, "parent", say("Port 5433.")))
    return RoundRobinGroupChat([make_agent(library, run), parent], max_turns=2)


def with_swarm(library: Library, run: CassetteRun) -> Swarm:
    model = run_model(run, "parent", call("transfer_to_recall"), say("Port 5433."))
    parent = AssistantAgent("parent", model, handoffs=["recall"])
    return Swarm([parent, make_agent(library, run)], max_turns=3)


RUNS: dict[str, Callable[[Library, CassetteRun], Any]] = {
    make.__name__: make
    for make in (with_context, with_tool, with_agent_tool, with_team, with_swarm)
}


async def run_texts(
    library: Library, run: CassetteRun, name: str, task: str = REQUEST
) -> list[str]:
    result = await RUNS[name](library, run).run(task=task)
    return [m.to_text() for m in result.messages if isinstance(m, BaseChatMessage)]


async def test_whole_runs_replay(library: Library, tmp_path: Path) -> None:
    async def check(name: str) -> None:
        with record_run(tmp_path / name, clock=lambda: NOW) as run:
            recorded = await run_texts(library, run, name)
        assert recorded[-1].endswith("Port 5433.")
        assert sorted(p.name for p in (tmp_path / name).iterdir()) == [
            "parent.jsonl",
            "recall.jsonl",
        ]
        with replay_run(tmp_path / name) as run:
            assert run.clock() == NOW
            assert await run_texts(library, run, name) == recorded

    await check_each_async(RUNS, check)


def answer_any_recall(delays: Iterator[float]) -> Callable[[Request], Step]:
    """Return a model that searches for what is asked, then hands off, each after a delay."""

    def answer(request: Request) -> Step:
        text = str(request.messages[1].content)
        (number,) = re.findall(r"question (\d)", text)[:1]
        is_first = not any(isinstance(m, AssistantMessage) for m in request.messages)
        step = search(f"database config {number}") if is_first else hand_off("a1", reason=number)
        return wait(next(delays), then=step)

    return answer


@pytest.mark.concurrent
@pytest.mark.parametrize("count", [2, 6])
async def test_recalls_at_once_replay(library: Library, tmp_path: Path, count: int) -> None:
    many = calls(*(call("recall", query=f"{REQUEST}, question {n}") for n in range(count)))

    async def run_turn(run: CassetteRun, *delays: float) -> list[str]:
        answers = repeat(answer_any_recall(cycle(delays)), 2 * count)
        model = run_model(run, "recall", *answers)
        tool = RecallTool(library, ANN, model_client=model, clock=run.clock)
        parent = run_model(run, "parent", many, say("Port 5433."))
        agent = AssistantAgent("parent", parent, tools=[tool], reflect_on_tool_use=True)
        return [m.to_text() for m in (await agent.run(task="Go.")).messages[1:]]

    with record_run(tmp_path / "run", clock=lambda: NOW) as run:
        recorded = await run_turn(run, 0.03, 0.0, 0.02, 0.01, 0.0)
    assert recorded[-1] == "Port 5433."
    with replay_run(tmp_path / "run") as run:
        replayed = await run_turn(run)
    assert sorted(replayed) == sorted(recorded)  # the steps of the recalls are interleaved
    assert replayed[-2:] == recorded[-2:]


async def test_mismatch_of_a_run_is_never_swallowed(library: Library, tmp_path: Path) -> None:
    async def check(name: str) -> None:
        with record_run(tmp_path / name, clock=lambda: NOW) as run:
            await run_texts(library, run, name)
        mismatch = pytest.raises(CassetteMismatch, match="differs in messages")
        with mismatch, replay_run(tmp_path / name) as run:
            await run_texts(library, run, name, "Do you remember my dinner at the lake?")

    await check_each_async(RUNS, check)


async def test_call_of_a_tool_that_differs_fails_the_run(library: Library, tmp_path: Path) -> None:
    with record_run(tmp_path / "run", clock=lambda: NOW) as run:
        tool = RecallTool(library, ANN, model_client=recall_model(run), clock=run.clock)
        await tool.run_json({"query": REQUEST}, CancellationToken())
    with pytest.raises(CassetteMismatch, match=r"recall\.jsonl .*differs"):
        await replay_with_a_new_parent(library, tmp_path / "run")


async def replay_with_a_new_parent(library: Library, folder: Path) -> None:
    """Replay a recall for a parent whose model takes the error of the tool as a result."""
    with replay_run(folder) as run:
        tool = RecallTool(library, ANN, model_client=run.client("recall"), clock=run.clock)
        model = ScriptedClient([call("recall", query="another question"), say("Hm.")])
        parent = AssistantAgent("parent", model, tools=[tool], reflect_on_tool_use=True)
        assert (await parent.run(task=REQUEST)).messages[-1].to_text() == "Hm."


async def test_run_that_stops_early_fails_the_replay(library: Library, tmp_path: Path) -> None:
    with record_run(tmp_path / "run") as run:
        await run_texts(library, run, "with_team")
    with pytest.raises(CassetteMismatch, match="never made"), replay_run(tmp_path / "run"):
        pass


async def test_cassettes_of_a_run_are_named(library: Library, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no cassettes"), replay_run(tmp_path):
        pass
    with record_run(tmp_path) as run:
        with pytest.raises(InvalidArgument, match="cannot name a cassette"):
            run_model(run, "../parent")
        run_model(run, "parent")
    with pytest.raises(CassetteMismatch, match="no cassette planner"), replay_run(tmp_path) as run:
        run.client("planner")
    with pytest.raises(InvalidArgument, match="exists already"), record_run(tmp_path) as run:
        run_model(run, "parent")
