"""CrewAI: memory and tools in real crews."""

import json
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from memrecall import AsyncMemory, Memory
from memrecall.errors import InvalidArgument

from ..agent.recall_helpers import check_clock_and_observer, check_date
from ..memory.conftest import make_settings
from .contract import (
    AT_NOON,
    HISTORY,
    PEANUTS,
    REQUEST,
    REQUEST_ZH,
    SEAT,
    answer_keys,
    record_and_replay,
    require,
    run_example,
)

require("crewai")
pytestmark = [
    pytest.mark.concurrent,  # the memory and the crews have threads
    pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai"),  # it warns of its own use
]

from crewai import Agent, BaseLLM, Crew, Task  # noqa: E402
from pydantic import Field  # noqa: E402

from memrecall.integrations.crewai import CrewMemory, memory_tools  # noqa: E402


@pytest.fixture(autouse=True)
def _private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path))
    monkeypatch.setenv("CREWAI_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("CREWAI_TRACING_ENABLED", "false")


LONG_AGO = "2026-02-01T12:00:00Z"


class ScriptedLLM(BaseLLM):
    """A model that plays a script and records its requests."""

    answers: list[str] = Field(default_factory=list)
    requests: list[str] = Field(default_factory=list)

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        texts = [messages] if isinstance(messages, str) else [m["content"] for m in messages]
        self.requests.append("\n".join(map(str, texts)))
        return self.answers.pop(0)


def run_task(llm: ScriptedLLM, text: str, *, tools: Any = (), memory: Any = False) -> str:
    agent = Agent(role="helper", goal="help", backstory="b", llm=llm, tools=list(tools))
    task = Task(description=text, expected_output="an answer", agent=agent)
    return str(Crew(agents=[agent], tasks=[task], memory=memory).kickoff())


def finish(text: str) -> str:
    return f"Thought: I now can give a great answer\nFinal Answer: {text}"


def act(name: str, **arguments: Any) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return f"Thought: look\nAction: {name}\nAction Input: {text}"


class TestMemory:
    def test_recalls_before_a_task_and_stores_its_result(self, sync_memory: Memory) -> None:
        llm = ScriptedLLM(model="scripted", answers=[finish("Port 5433, done.")])
        assert run_task(llm, REQUEST, memory=CrewMemory(sync_memory)) == "Port 5433, done."
        assert "PostgreSQL on port 5433" in llm.requests[0]
        stored = sync_memory.get_all(kinds="messages")["results"]
        assert any("Port 5433, done." in item["memory"] for item in stored)

    def test_failed_recall_does_not_fail_the_task(self, sync_memory: Memory) -> None:
        memory = CrewMemory(sync_memory)
        sync_memory.close()
        llm = ScriptedLLM(model="scripted", answers=[finish("I cannot.")])
        assert run_task(llm, REQUEST, memory=memory) == "I cannot."
        assert "this memory is closed" in llm.requests[0]

    async def test_async(self, sync_memory: Memory) -> None:
        memory = CrewMemory(sync_memory)
        await memory.aremember("Ann's boat is called Petunia.")
        (match, *_) = await memory.arecall("What is my boat called?")
        assert "Petunia" in match.record.content
        assert match.record.metadata["certainty"] in ("sure", "possible")
        assert len(await memory.arecall(REQUEST, limit=1)) == 1

    def test_recall_can_be_replayed(self, tmp_path: Path) -> None:
        settings = make_settings(str(tmp_path / "m.db"))
        with Memory(settings=settings, user_id="ann") as memory:
            memory.add([{**message, "ts": LONG_AGO} for message in HISTORY], infer=False)
        found = []
        for client in record_and_replay(tmp_path / "cassette.jsonl"):
            with Memory(settings=settings, user_id="ann", model_client=client) as memory:
                matches = CrewMemory(memory, options=AT_NOON).recall(REQUEST)
                found.append([match.format() for match in matches])
        assert found[0] == found[1]
        assert "5433" in found[0][0]

    async def test_times_and_observer(self, tmp_path: Path) -> None:
        settings = make_settings(str(tmp_path / "m.db"))
        with Memory(settings=settings, user_id="ann") as memory:
            memory.add([{**message, "ts": LONG_AGO} for message in HISTORY], infer=False)

        async def recall(model_client: Any, **arguments: Any) -> None:
            with Memory(settings=settings, user_id="ann", model_client=model_client) as memory:
                await CrewMemory(memory, **arguments).arecall(REQUEST)

        async def tool(model_client: Any, **arguments: Any) -> None:
            with Memory(settings=settings, user_id="ann", model_client=model_client) as memory:
                await memory_tools(memory, **arguments)[1].arun(query=REQUEST)

        for start in (recall, tool):
            await check_clock_and_observer(start)
            await check_date(start)

    def test_read_only_stores_nothing(self, sync_memory: Memory) -> None:
        before = len(sync_memory.get_all(kinds="messages")["results"])
        assert CrewMemory(sync_memory, read_only=True).remember_many(["tea", "cake"]) == []
        assert len(sync_memory.get_all(kinds="messages")["results"]) == before

    def test_other_methods_say_what_to_use(self, sync_memory: Memory) -> None:
        with pytest.raises(InvalidArgument, match="does not support 'list_records'"):
            CrewMemory(sync_memory).list_records()

    async def test_async_memory_is_refused(self, tmp_path: Path) -> None:
        async with AsyncMemory(db=str(tmp_path / "m.db"), user_id="ann") as memory:
            with pytest.raises(InvalidArgument, match="sync code cannot wait"):
                CrewMemory(memory)


def test_function_finds_the_memory_of_each_run(tmp_path: Path) -> None:
    current: ContextVar[str] = ContextVar("user")
    with Memory(settings=make_settings(str(tmp_path / "m.db"))) as everyone:
        everyone.add(HISTORY, user_id="ann", infer=False)

        def find(context: object) -> Memory:
            assert context is None
            return everyone.bind(user_id=current.get())

        for user, is_known in (("ann", True), ("ben", False)):
            current.set(user)
            answers = [act("recall", query=REQUEST), finish(f"Done for {user}.")]
            for tools, memory in (([], CrewMemory(find)), (memory_tools(find), False)):
                llm = ScriptedLLM(model="scripted", answers=answers[len(tools) == 0 :])
                run_task(llm, REQUEST, tools=tools, memory=memory)
                assert ("PostgreSQL on port 5433" in llm.requests[-1]) == is_known
        stored = everyone.get_all(user_id="ann", kinds="messages")["results"]
        assert "ben" not in str([item["memory"] for item in stored])


class TestTools:
    def test_recall(self, sync_memory: Memory) -> None:
        answers = [act("recall", query=REQUEST), finish("Port 5433.")]
        llm = ScriptedLLM(model="scripted", answers=answers)
        assert run_task(llm, "Set it up.", tools=memory_tools(sync_memory)) == "Port 5433."
        assert "PostgreSQL on port 5433" in llm.requests[-1]

    def test_tools_serve_the_bound_user(self, sync_memory: Memory) -> None:
        tools = {tool.name: tool for tool in memory_tools(sync_memory, language="zh")}
        assert list(tools) == ["remember", "recall", "correct", "forget"]
        assert answer_keys(tools["recall"].run(query=REQUEST))
        stored = json.loads(tools["remember"].run(text="林晓喝茉莉花茶"))
        item = sync_memory.get(stored["memory_key"])
        assert item is not None
        assert (item["memory"], item["user_id"]) == ("林晓喝茉莉花茶", "ann")

    def test_no_argument_names_another_user(self, sync_memory: Memory) -> None:
        answers = [act("recall", query=REQUEST_ZH, user_id="lin"), finish("No.")]
        llm = ScriptedLLM(model="scripted", answers=answers)
        assert run_task(llm, "?", tools=memory_tools(sync_memory)) == "No."
        assert "PostgreSQL" not in llm.requests[-1]


def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("crewai_crew.py", monkeypatch, capsys)
    assert f"memory: You said: “{PEANUTS}”" in lines
    assert f"tools:  You said: “{SEAT}”" in lines
