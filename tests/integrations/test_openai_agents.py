"""OpenAI Agents SDK: filter, session and tools in real runs."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from memrecall import AsyncMemory, Memory
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.messages import parse_messages
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient, say

from .contract import (
    PEANUTS,
    REQUEST,
    SEAT,
    ToolContract,
    Turn,
    TurnContract,
    block_keys,
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


def config(memory: Any, **arguments: Any) -> RunConfig:
    return RunConfig(call_model_input_filter=RecallFilter(memory, **arguments))


class TestFilter(TurnContract):
    def user_of(self, context: Any) -> str:
        return str(context.context)

    async def run_turn(
        self, memory: Any, request: str, *, stream: bool = False, **arguments: Any
    ) -> Turn:
        user = arguments.pop("user", None)
        model = ScriptedModel(speak("Port 5433."))
        agent, settings = Agent("assistant", model=model), config(memory, **arguments)
        if stream:
            result: Any = Runner.run_streamed(agent, request, run_config=settings)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, request, run_config=settings, context=user)
        return Turn(model.request_texts(), str(result.final_output))

    async def test_one_recall_for_the_calls_of_a_run(self, library: Library) -> None:
        recalls = ScriptedClient([say("no tools here")] * 9)
        memory = AsyncMemory(library=library, user_id="ann", model_client=recalls)
        model = ScriptedModel(call("remember", text="tea"), speak("Port 5433."))
        agent = Agent("assistant", model=model, tools=memory_tools(memory))
        await Runner.run(agent, REQUEST, run_config=config(memory))
        first, second = model.requests
        assert first[0] == second[0]
        assert "a1" in block_keys(first[0]["content"])
        assert len((await library.store.traces(Scope("ann")).page()).items) == 1

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
        texts = [item.get("arguments") or item["output"] for item in rest]
        assert all(long.startswith(text[:90_000]) and len(text) < 110_000 for text in texts)

    async def test_pictures_come_back_as_text(self, session: MemorySession) -> None:
        data = base64.b64encode(b"GIF89a;").decode()
        picture = {"type": "input_image", "image_url": f"data:image/gif;base64,{data}"}
        await session.add_items([{"role": "user", "content": [picture]}])
        (item,) = await session.get_items()
        assert item["content"] == [{"type": "input_text", "text": "[image]"}]

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
        assert len(await MemorySession(memory.bind(session_id="chat-1")).get_items()) == 1
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


class TestTools(ToolContract):
    def user_of(self, context: Any) -> str:
        return str(context.context)

    async def call_tool(
        self, memory: Any, name: str, arguments: dict[str, Any], **settings: Any
    ) -> str:
        user = settings.pop("user", None)
        model = ScriptedModel(call(name, **arguments), speak("Done."))
        agent = Agent("assistant", model=model, tools=memory_tools(memory, **settings))
        parsed = parse_messages((await Runner.run(agent, "Go.", context=user)).new_items)
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
