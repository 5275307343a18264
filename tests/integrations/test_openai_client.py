"""OpenAI's client with memory: both APIs, sync and async, against scripted servers."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

import memrecall
from memrecall import AsyncMemory, Memory
from memrecall.errors import InvalidArgument
from memrecall.memory import Library

from ..memory.conftest import make_settings
from ..model.openai_server import ModelServer, Reply, refusal, serve, stream, text, tool_call
from ..waiting import wait_until
from .contract import HISTORY, REQUEST, REQUEST_ZH, SEAT, block_keys, run_example

ANSWER = "Port 5433."
APIS = ("chat", "responses")
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {}}}


def respond(content: str) -> Reply:
    """Return a reply of the Responses API; its keys are in another order than a completion's."""
    part = {"type": "output_text", "text": content, "annotations": []}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    answer = {
        "object": "response", "id": "r", "created_at": 1, "model": "tiny", "tools": [],
        "tool_choice": "auto", "parallel_tool_calls": False, "status": "completed",
        "output": [{**item, "content": [part]}],
    }  # fmt: skip
    return Reply(body=json.dumps(answer))


def respond_in_parts(content: str) -> Reply:
    whole = json.loads(respond(content).body)
    item = whole["output"][0]
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    delta = {"type": "response.output_text.delta", "logprobs": [], **place}
    empty = {"type": "output_text", "text": "", "annotations": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**whole, "output": []}},
        {"type": "response.output_item.added", "item": {**item, "content": []}, **place},
        {"type": "response.content_part.added", "part": empty, **place},
        {**delta, "delta": content[:4]},
        {**delta, "delta": content[4:]},
        {"type": "response.completed", "response": whole},
    ]
    numbered = [{**event, "sequence_number": n} for n, event in enumerate(events)]
    return Reply(chunks=tuple(map(json.dumps, numbered)))


def reply(api: str, *, streamed: bool = False, content: str = ANSWER) -> Reply:
    if api == "responses":
        return (respond_in_parts if streamed else respond)(content)
    return (
        stream([{"content": content[:4]}, {"content": content[4:]}]) if streamed else text(content)
    )


def arguments(api: str, conversation: Any) -> dict[str, Any]:
    return {"model": "tiny", "input" if api == "responses" else "messages": conversation}


def create_of(client: Any, api: str) -> Any:
    return client.responses.create if api == "responses" else client.chat.completions.create


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def sent(server: ModelServer) -> list[Any]:
    """Return the conversation of the last request."""
    request = server.requests[-1]
    conversation: list[Any] = request.get("messages") or request["input"]
    return conversation


def block_of(server: ModelServer) -> list[str]:
    """Return the keys in the block, which comes just before the user's message."""
    return block_keys(sent(server)[-2]["content"])


def stored(memory: Memory) -> list[str]:
    """Return the texts of the turns that calls have stored, oldest first."""
    page = memory.get_all(messages=True, limit=100)["results"]
    old = {message["content"] for message in HISTORY}
    return [item["memory"] for item in page if item["memory"] not in old][::-1]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serve() as server:
        yield server


@pytest.fixture
def client(server: ModelServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(server: ModelServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        yield client


@pytest.mark.concurrent
@pytest.mark.parametrize("api", APIS)
class TestTurn:
    def test_recalls_before_and_stores_after(
        self, api: str, client: OpenAI, server: ModelServer, sync_memory: Memory
    ) -> None:
        server.play(reply(api))
        wrapped = memrecall.wrap_openai(client, sync_memory)
        conversation = [{"role": "system", "content": "Be brief."}, user(REQUEST)]
        answer = create_of(wrapped, api)(**arguments(api, iter(conversation)))
        assert (
            answer.output_text if api == "responses" else answer.choices[0].message.content
        ) == (ANSWER)
        assert isinstance(wrapped, OpenAI)
        assert "a1" in block_of(server)
        assert [sent(server)[0], sent(server)[-1]] == conversation
        assert len(conversation) == 2
        assert stored(sync_memory) == [REQUEST, ANSWER]

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_stream_is_passed_on_unchanged(
        self, api: str, is_async: bool, client: OpenAI, server: ModelServer, sync_memory: Memory
    ) -> None:
        events = []
        for wrap in (lambda client, _: client, memrecall.wrap_openai):
            server.play(reply(api, streamed=True))
            options = {**arguments(api, [user(REQUEST)]), "stream": True}
            if is_async:
                async with AsyncOpenAI(base_url=server.url, api_key="k") as other:
                    parts = await create_of(wrap(other, sync_memory), api)(**options)
                    events.append([part.model_dump() async for part in parts])
            else:
                parts = create_of(wrap(client, sync_memory), api)(**options)
                assert isinstance(parts, openai.Stream)
                events.append([part.model_dump() for part in parts])
        assert events[0] == events[1]
        assert "a1" in block_of(server)
        assert stored(sync_memory) == [REQUEST, ANSWER]

    def test_helpers_and_options_of_the_client(
        self, api: str, client: OpenAI, server: ModelServer, sync_memory: Memory
    ) -> None:
        wrapped = memrecall.wrap_openai(client, sync_memory).with_options(timeout=30)
        resource: Any = wrapped.responses if api == "responses" else wrapped.chat.completions
        server.play(reply(api), reply(api, streamed=True), reply(api))
        resource.parse(**arguments(api, [user(REQUEST)]))
        assert "a1" in block_of(server)
        with resource.stream(**arguments(api, [user(REQUEST)])) as events:
            for _ in events:
                pass
        assert "a1" in block_of(server)
        resource.with_raw_response.create(**arguments(api, [user(REQUEST)]))
        assert "a1" in block_of(server)
        assert stored(sync_memory) == [REQUEST, ANSWER] * 2 + [REQUEST]

    def test_one_call_can_be_left_alone(
        self, api: str, client: OpenAI, server: ModelServer, sync_memory: Memory
    ) -> None:
        wrapped = memrecall.wrap_openai(client, sync_memory)
        server.play(reply(api), reply(api, streamed=True))
        create_of(wrapped, api)(
            **arguments(api, REQUEST if api == "responses" else [user(REQUEST)]), recall=False
        )
        resource: Any = wrapped.responses if api == "responses" else wrapped.chat.completions
        with resource.stream(**arguments(api, [user(REQUEST)]), recall=False) as events:
            assert list(events)
        assert sent(server) == [user(REQUEST)]
        assert stored(sync_memory) == []

    def test_failed_call_raises_as_before_and_stores_nothing(
        self, api: str, client: OpenAI, server: ModelServer, sync_memory: Memory
    ) -> None:
        server.play(refusal(400, "no such model"))
        with pytest.raises(openai.BadRequestError, match="no such model"):
            create_of(memrecall.wrap_openai(client, sync_memory), api)(
                **arguments(api, [user(REQUEST)])
            )
        assert stored(sync_memory) == []

    async def test_cancelled_call_stores_nothing(
        self, api: str, async_client: AsyncOpenAI, server: ModelServer, memory: AsyncMemory
    ) -> None:
        server.play(Reply(body=reply(api).body, seconds=600))
        wrapped = memrecall.wrap_openai(async_client, memory)
        call = create_of(wrapped, api)(**arguments(api, [user("A new thing: I moved to Ulm.")]))
        running = asyncio.ensure_future(call)
        await wait_until(lambda: bool(server.requests))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        page = await memory.get_all(messages=True)
        assert not [item for item in page["results"] if "Ulm" in item["memory"]]

    async def test_abandoned_or_broken_stream_stores_nothing(
        self, api: str, async_client: AsyncOpenAI, server: ModelServer, sync_memory: Memory
    ) -> None:
        broken = reply(api, streamed=True)
        server.play(broken, Reply(chunks=(broken.chunks[0],), is_interrupted=True))
        create = create_of(memrecall.wrap_openai(async_client, sync_memory), api)
        for _ in range(2):
            parts = await create(**arguments(api, [user(REQUEST)]), stream=True)
            await anext(parts)
        with pytest.raises(openai.APIError):
            await anext(parts)
        await parts.close()
        assert stored(sync_memory) == []


class TestTools:
    @pytest.mark.concurrent
    def test_calls_of_a_turn_share_one_recall_and_store_it_once(
        self, client: OpenAI, server: ModelServer, sync_memory: Memory
    ) -> None:
        server.play(tool_call("weather", "{}"), text(ANSWER))
        wrapped = memrecall.wrap_openai(client, sync_memory)
        messages: list[Any] = [user(REQUEST)]
        first = wrapped.chat.completions.create(model="tiny", messages=messages, tools=[WEATHER])
        assert stored(sync_memory) == [REQUEST]
        message = first.choices[0].message
        assert message.tool_calls
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
        messages += [message, result]
        wrapped.chat.completions.create(model="tiny", messages=messages, tools=[WEATHER])
        before, after = (request["messages"] for request in server.requests)
        assert before == after[:2]
        assert [message["role"] for message in after[2:]] == ["assistant", "tool"]
        assert server.requests[0]["tools"] == [WEATHER]
        assert stored(sync_memory) == [REQUEST, ANSWER]

    @pytest.mark.concurrent
    def test_outputs_of_the_responses_api(
        self, client: OpenAI, server: ModelServer, sync_memory: Memory
    ) -> None:
        server.play(respond(ANSWER))
        call = {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "1", "output": "sunny"}
        wrapped = memrecall.wrap_openai(client, sync_memory)
        wrapped.responses.create(model="tiny", input=[user(REQUEST), call, output])  # type: ignore[list-item]
        assert "a1" in block_keys(sent(server)[0]["content"])
        assert sent(server)[1:] == [user(REQUEST), call, output]
        assert stored(sync_memory) == [ANSWER]


PORTS = {"ann": "5433", "lin": "7788"}


def quote_the_user(request: dict[str, Any]) -> Reply:
    """Answer with the user and the last message of a request."""
    conversation = request.get("messages") or request["input"]
    content = f"Noted for {request['user']}: {conversation[-1]['content']}"
    return (text if "messages" in request else respond)(content)


class TestUsers:
    @pytest.fixture
    def everyone(self, tmp_path: Path) -> Iterator[Memory]:
        """A memory that is not bound; each user has another port."""
        with Memory(settings=make_settings(str(tmp_path / "all.db"))) as memory:
            for name, port in PORTS.items():
                memory.add(f"My database config has the port {port}.", name, infer=False)
            yield memory

    @pytest.mark.concurrent
    @pytest.mark.parametrize("is_async", [False, True])
    async def test_concurrent_requests_of_two_users(
        self,
        is_async: bool,
        client: OpenAI,
        async_client: AsyncOpenAI,
        server: ModelServer,
        everyone: Memory,
    ) -> None:
        server.answer = quote_the_user
        names = [("ann", "lin")[number % 2] for number in range(20)]
        requests = [
            {
                **arguments(APIS[number // 2 % 2], [user(f"{REQUEST}, part {number} of {name}")]),
                "user": name,
            }
            for number, name in enumerate(names)
        ]
        wrapped: Any = memrecall.wrap_openai(
            async_client if is_async else client, lambda name: everyone.bind(user_id=name)
        )
        calls = [create_of(wrapped, APIS[number // 2 % 2]) for number in range(20)]
        if is_async:
            await asyncio.gather(
                *(call(**options) for call, options in zip(calls, requests, strict=True))
            )
        else:
            with ThreadPoolExecutor(20) as pool:
                list(pool.map(lambda call, options: call(**options), calls, requests))
        assert len(server.requests) == 20
        for request in server.requests:
            block = (request.get("messages") or request["input"])[0]["content"]
            assert {port for port in PORTS.values() if port in block} == {PORTS[request["user"]]}
        for name in PORTS:
            texts = stored(everyone.bind(user_id=name))
            expected = [f"{REQUEST}, part {n} of {each}" for n, each in enumerate(names)]
            own = [content for content in expected if content.endswith(name)]
            answers = [f"Noted for {name}: {content}" for content in own]
            assert sorted(texts) == sorted(
                [f"My database config has the port {PORTS[name]}.", *own, *answers]
            )

    @pytest.mark.concurrent
    @pytest.mark.parametrize(("name", "reported"), [(None, False), ("", True), ("eve", True)])
    def test_requests_without_a_memory(
        self,
        name: str | None,
        reported: bool,
        client: OpenAI,
        server: ModelServer,
        everyone: Memory,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def find(name: str | None) -> Memory | None:
            if name is None:
                return None
            if name == "":
                return everyone  # which is not bound
            raise KeyError(name)

        server.play(text(ANSWER))
        options = {} if name is None else {"user": name}
        create = memrecall.wrap_openai(client, find).chat.completions.create
        create(**arguments("chat", [user(REQUEST)]), **options)
        assert ("do not conclude" in str(sent(server)[0])) == reported
        assert ("recall failed" in caplog.text) == reported
        assert not any(port in str(server.requests) for port in PORTS.values())


class TestFailures:
    @pytest.mark.concurrent
    def test_memory_never_fails_the_call(
        self,
        client: OpenAI,
        server: ModelServer,
        sync_memory: Memory,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        sync_memory.close()
        server.play(text(ANSWER), stream([{"content": ANSWER}]))
        create = memrecall.wrap_openai(client, sync_memory).chat.completions.create
        answer = create(**arguments("chat", [user(REQUEST)]))
        assert answer.choices[0].message.content == ANSWER
        assert list(create(**arguments("chat", [user(REQUEST)]), stream=True))
        assert caplog.text.count("storing a turn failed") == 2

    async def test_messages_that_cannot_be_read_or_stored(
        self, async_client: AsyncOpenAI, server: ModelServer, memory: AsyncMemory
    ) -> None:
        server.play(text(ANSWER), text(""), Reply(body='{"id": "1", "choices": null}'))
        create = memrecall.wrap_openai(async_client, memory).chat.completions.create
        bad = {"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}}
        for content in ([bad], "\0", REQUEST):
            assert await create(**arguments("chat", [user(content)]))

    async def test_async_client_takes_an_async_memory(
        self, async_client: AsyncOpenAI, server: ModelServer, library: Library
    ) -> None:
        memory = AsyncMemory(library=library, user_id="lin")
        server.play(text(ANSWER), text(ANSWER))
        wrapped = memrecall.wrap_openai(async_client, memory, remember=False)
        for content, count in ((REQUEST_ZH, 2), ("你好", 1)):
            await wrapped.chat.completions.create(**arguments("chat", [user(content)]))
            assert len(sent(server)) == count
        assert "l1" in block_keys(server.requests[0]["messages"][0]["content"])
        page = await memory.get_all(messages=True)
        assert ANSWER not in [item["memory"] for item in page["results"]]

    @pytest.mark.parametrize(
        ("client", "memory", "problem"),
        [
            (OpenAI(api_key="k"), AsyncMemory(user_id="ann"), "sync code cannot wait"),
            (OpenAI(api_key="k"), "ann", "a str is not a memory"),
            (object(), lambda name: None, "a object is not a client"),
        ],
    )
    def test_wrong_arguments(self, client: Any, memory: Any, problem: str) -> None:
        with pytest.raises(InvalidArgument, match=problem):
            memrecall.wrap_openai(client, memory)


@pytest.mark.concurrent
def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("openai_client.py", monkeypatch, capsys)
    assert lines == [f"lin: You said: “{SEAT}”", "eve: Hello! What can I do for you?"]
