"""OpenAI Agents SDK: filter, session and tools in real runs."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memrecall import AsyncMemory, Memory
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.messages import parse_messages
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient, say, wait

from ..waiting import wait_until
from .frameworks import (
    AT_NOON,
    PEANUTS,
    REQUEST,
    REQUEST_ZH,
    SEAT,
    answer_keys,
    block_keys,
    check_recall_arguments,
    recorded_and_replayed,
    require,
    run_example,
)

require("agents")

from agents import (  # noqa: E402
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    set_tracing_disabled,
)
from agents.models.fake_id import FAKE_RESPONSES_ID  # noqa: E402
from openai.types.responses import (  # noqa: E402
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from memrecall.integrations.openai_agents import (  # noqa: E402
    MemorySession,
    RecallFilter,
    memory_tools,
)

set_tracing_disabled(True)


def speak(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id=FAKE_RESPONSES_ID,
        content=[content],
        role="assistant",
        status="completed",
        type="message",
    )


def call(name: str, **arguments: Any) -> ResponseFunctionToolCall:
    text = json.dumps(arguments, ensure_ascii=False)
    return ResponseFunctionToolCall(
        id=FAKE_RESPONSES_ID, call_id="call-1", name=name, arguments=text, type="function_call"
    )


class ScriptedModel(Model):
    """A model that plays a script and records its requests."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs = list(outputs)
        self.requests: list[list[Any]] = []

    async def get_response(self, *_: Any, **options: Any) -> ModelResponse:
        self.requests.append(list(options["input"]))
        return ModelResponse(output=[self.outputs.pop(0)], usage=Usage(), response_id=None)

    async def stream_response(self, _: Any, items: Any, *__: Any, **___: Any) -> AsyncIterator[Any]:
        self.requests.append(list(items))
        response = Response(
            id="r",
            created_at=0,
            model="scripted",
            object="response",
            output=[self.outputs.pop(0)],
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(
            type="response.completed", response=response, sequence_number=0
        )

    def request_texts(self) -> list[str]:
        return [message.text for message in parse_messages(self.requests[-1])]


def config(memory: Any) -> RunConfig:
    return RunConfig(call_model_input_filter=RecallFilter(memory))


class TestFilter:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_recalls_before_the_turn(self, memory: AsyncMemory, stream: bool) -> None:
        model = ScriptedModel(speak("Port 5433."))
        agent = Agent("assistant", model=model)
        if stream:
            result = Runner.run_streamed(agent, REQUEST, run_config=config(memory))
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, REQUEST, run_config=config(memory))
        assert result.final_output == "Port 5433."
        block, request = model.request_texts()
        assert request == REQUEST
        assert "a1" in block_keys(block)

    async def test_one_recall_for_the_calls_of_a_run(self, library: Library) -> None:
        recalls = ScriptedClient([say("no tools here")] * 9)
        memory = AsyncMemory(library=library, user_id="ann", model_client=recalls)
        model = ScriptedModel(call("remember", text="tea"), speak("Port 5433."))
        agent = Agent("assistant", model=model, tools=memory_tools(memory))
        await Runner.run(agent, REQUEST, run_config=config(memory))
        first, second = model.requests
        assert first[0] == second[0]
        assert "a1" in block_keys(first[0]["content"])
        traces = await library.store.traces(Scope("ann")).page()
        assert len(traces.items) == 1

    async def test_small_talk_needs_no_recall(self, memory: AsyncMemory) -> None:
        model = ScriptedModel(speak("Hello"))
        await Runner.run(Agent("assistant", model=model), "Hello!", run_config=config(memory))
        assert model.request_texts() == ["Hello!"]

    async def test_failed_recall_does_not_fail_the_run(
        self, memory: AsyncMemory, library: Library, caplog: pytest.LogCaptureFixture
    ) -> None:
        await library.store.owners.set_user_enabled("ann", False)
        model = ScriptedModel(speak("I cannot."))
        agent = Agent("assistant", model=model)
        result = await Runner.run(agent, REQUEST, run_config=config(memory))
        assert result.final_output == "I cannot."
        assert "do not conclude" in model.request_texts()[0]
        assert "no recall" in caplog.text

    @pytest.mark.concurrent
    async def test_cancelled_run_ends_the_recall(self, library: Library) -> None:
        slow = ScriptedClient([wait(600, then=say("too late"))])
        memory = AsyncMemory(library=library, user_id="ann", model_client=slow)
        model = ScriptedModel(speak("unused"))
        agent = Agent("assistant", model=model)
        running = asyncio.ensure_future(Runner.run(agent, REQUEST, run_config=config(memory)))
        await wait_until(lambda: bool(slow.requests))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert model.requests == []

    async def test_recall_can_be_replayed(self, library: Library, tmp_path: Path) -> None:
        blocks = []
        for memory in recorded_and_replayed(library, tmp_path / "cassette.jsonl"):
            model = ScriptedModel(speak("Port 5433."))
            recall = RunConfig(call_model_input_filter=RecallFilter(memory, options=AT_NOON))
            await Runner.run(Agent("assistant", model=model), REQUEST, run_config=recall)
            blocks.append(model.request_texts()[0])
        assert blocks[0] == blocks[1]
        assert block_keys(blocks[0]) == ["a1"]

    @pytest.mark.concurrent
    def test_sync_run(self, sync_memory: Memory) -> None:
        model = ScriptedModel(speak("Port 5433."))
        Runner.run_sync(Agent("assistant", model=model), REQUEST, run_config=config(sync_memory))
        asyncio.get_event_loop().close()  # the SDK keeps it for the next run
        asyncio.set_event_loop(None)
        assert block_keys(model.request_texts()[0])


ITEMS: list[Any] = [
    {"role": "user", "content": "Which port?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "1", "name": "recall", "arguments": '{"query": "端口"}'},
    {"type": "function_call_output", "call_id": "1", "output": "5433"},
    {
        "type": "message",
        "id": "__fake_id__",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "5433", "annotations": [], "logprobs": []}],
    },
    {"role": "user", "content": [{"type": "input_text", "text": "谢谢"}]},
]


@pytest.fixture
def session(memory: AsyncMemory) -> MemorySession:
    return MemorySession(memory.bind(session_id="chat-1"))


class TestSession:
    async def test_behaves_like_the_session_of_the_sdk(self, session: MemorySession) -> None:
        reference = SQLiteSession("chat-1")
        for each in (reference, session):
            await each.add_items(ITEMS[:4])
            await each.add_items(ITEMS[4:])

        async def compare(limit: int | None = None) -> list[Any]:
            items = await session.get_items(limit)
            assert items == await reference.get_items(limit)
            return items

        assert await compare() == ITEMS
        assert await compare(2) == ITEMS[-2:]
        for count in range(2):
            assert await session.pop_item() == await reference.pop_item() == ITEMS[-1 - count]
        assert await compare() == ITEMS[:-2]
        await session.add_items(ITEMS[-1:])
        await reference.add_items(ITEMS[-1:])
        assert await compare() == [*ITEMS[:-2], ITEMS[-1]]
        while await reference.pop_item():
            await session.pop_item()
        assert await session.pop_item() is None
        assert await compare() == []
        await session.add_items(ITEMS[:1])
        await session.clear_session()
        await session.clear_session()
        reference.close()
        assert await session.get_items() == []

    async def test_items_that_no_database_takes_are_stored_as_far_as_possible(
        self, session: MemorySession
    ) -> None:
        half, long = "bad \ud800 \0", "x" * 1_200_000
        await session.add_items(
            [
                {"role": "user", "content": half},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": long},
                {"type": "function_call_output", "call_id": "1", "output": long},
            ]
        )
        first, *rest = await session.get_items()
        assert first == {"role": "user", "content": "bad ? \ufffd"}
        assert [item.get("arguments") or item["output"] for item in rest] == [long, long]

    async def test_pages_of_a_long_session(self, session: MemorySession) -> None:
        items = [{"role": "user", "content": f"number {number}"} for number in range(230)]
        await session.add_items(items)
        await session.pop_item()
        assert await session.get_items() == items[:-1]
        assert await session.get_items(120) == items[-121:-1]

    async def test_items_survive_and_are_recalled(
        self, session: MemorySession, library: Library
    ) -> None:
        await session.add_items([{"role": "user", "content": "My boat is called Petunia."}])
        memory = AsyncMemory(library=library, user_id="ann")
        again = MemorySession(memory.bind(session_id="chat-1"))
        assert len(await again.get_items()) == 1
        result = await memory.recall("What is my boat called?")
        assert "Petunia" in result.memories[0].content

    async def test_run_continues_the_conversation(self, session: MemorySession) -> None:
        model = ScriptedModel(speak("5433"), speak("You are welcome"))
        agent = Agent("assistant", model=model)
        await Runner.run(agent, "Which port?", session=session)
        await Runner.run(agent, "Thanks", session=session)
        assert model.request_texts() == ["Which port?", "5433", "Thanks"]
        texts = [message.text for message in parse_messages(await session.get_items())]
        assert texts == ["Which port?", "5433", "Thanks", "You are welcome"]

    async def test_sessions_of_users_are_separate(self, library: Library) -> None:
        for user in ("ann", "ben"):
            memory = AsyncMemory(library=library, user_id=user, session_id="chat-1")
            await MemorySession(memory).add_items([{"role": "user", "content": f"I am {user}"}])
        await MemorySession(memory).clear_session()  # that of ben
        ann = MemorySession(AsyncMemory(library=library, user_id="ann", session_id="chat-1"))
        assert await ann.get_items() == [{"role": "user", "content": "I am ann"}]

    async def test_unbound_session_is_refused(self, memory: AsyncMemory) -> None:
        with pytest.raises(InvalidArgument, match="must be bound to a session"):
            MemorySession(memory)


async def test_times_and_observer(library: Library) -> None:
    async def run_filter(memory: AsyncMemory, **arguments: Any) -> None:
        recall = RunConfig(call_model_input_filter=RecallFilter(memory, **arguments))
        agent = Agent("assistant", model=ScriptedModel(speak("Port 5433.")))
        await Runner.run(agent, REQUEST, run_config=recall)

    async def tool(memory: AsyncMemory, **arguments: Any) -> None:
        model = ScriptedModel(call("recall", query=REQUEST), speak("Port 5433."))
        await Runner.run(
            Agent("assistant", model=model, tools=list(memory_tools(memory, **arguments))), "Go."
        )

    await check_recall_arguments(library, run_filter, tool)


class TestTools:
    async def test_recall(self, memory: AsyncMemory) -> None:
        assert "a1" in answer_keys(await run_tool(memory, "recall", query=REQUEST))

    async def test_remember_in_chinese(self, memory: AsyncMemory) -> None:
        answer = json.loads(await run_tool(memory, "remember", text="林晓喝茉莉花茶"))
        item = await memory.get(answer["memory_key"])
        assert item is not None
        assert (item["memory"], item["user_id"]) == ("林晓喝茉莉花茶", "ann")

    async def test_no_argument_names_another_user(self, memory: AsyncMemory) -> None:
        answer = await run_tool(memory, "recall", query=REQUEST_ZH, user_id="lin")
        assert json.loads(answer)["error"] == "invalid_arguments"


async def run_tool(memory: AsyncMemory, name: str, **arguments: Any) -> str:
    """Return the output of a tool call in a run."""
    model = ScriptedModel(call(name, **arguments), speak("Done."))
    agent = Agent("assistant", model=model, tools=memory_tools(memory))
    result = await Runner.run(agent, "Go.")
    parsed = parse_messages(result.new_items)
    assert [message.role.value for message in parsed] == ["tool", "assistant"]
    assert parsed[1].text == "Done."
    return parsed[0].text


@pytest.mark.concurrent
def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("openai_agents_session.py", monkeypatch, capsys)
    assert lines == [
        f"filter:  You said: “{PEANUTS}”",
        f"tools:   You said: “{SEAT}”",
        "session: 6 items",
    ]
