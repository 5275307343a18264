"""OpenAI's client with memory: both APIs, sync and async, against scripted servers."""

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from memrecall import AsyncMemory, Memory, wrap_openai
from memrecall.errors import InvalidArgument
from memrecall.memory import Library

from ..memory.conftest import make_settings
from ..model.openai_server import ModelServer, Reply, refusal, serve, stream, text, tool_call
from ..waiting import wait_until
from .contract import HISTORY, REQUEST, REQUEST_ZH, SEAT, block_keys, run_example

pytestmark = pytest.mark.concurrent  # the server and the memory have threads
ANSWER = "Port 5433."
APIS = ("chat", "responses")
in_both_apis = pytest.mark.parametrize("api", APIS)
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {}}}


def reply(api: str, *, streamed: bool = False, content: str = ANSWER) -> Reply:
    if api == "chat":
        parts = [{"content": content[:4]}, {"content": content[4:]}]
        return stream(parts) if streamed else text(content)
    part = {"type": "output_text", "text": content, "annotations": []}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    whole = {
        "object": "response", "id": "r", "created_at": 1, "model": "tiny", "tool_choice": "auto",
        "tools": [], "parallel_tool_calls": False, "output": [{**item, "content": [part]}],
    }  # fmt: skip
    if not streamed:
        return Reply(body=json.dumps(whole))
    first = {"type": "response.created", "sequence_number": 0, "response": {**whole, "output": []}}
    last = {"type": "response.completed", "sequence_number": 1, "response": whole}
    return Reply(chunks=(json.dumps(first), json.dumps(last)))


def options(api: str, conversation: Any, **others: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages" if api == "chat" else "input": conversation, **others}


def resource(client: Any, api: str) -> Any:
    return client.chat.completions if api == "chat" else client.responses


def user(content: Any = REQUEST) -> dict[str, Any]:
    return {"role": "user", "content": content}


def stored(memory: Memory) -> list[str]:
    """Return the texts of the turns that calls have stored, oldest first."""
    page = memory.get_all(kinds="messages", limit=100)["results"]
    old = {message["content"] for message in HISTORY}
    return [item["memory"] for item in page if item["memory"] not in old][::-1]


@dataclass
class Host:
    """A program with clients of a scripted server, and the memory of ann."""

    server: ModelServer
    client: OpenAI
    async_client: AsyncOpenAI
    memory: Memory

    @property
    def sent(self) -> list[Any]:
        """The conversation of the last request."""
        request = self.server.requests[-1]
        conversation: list[Any] = request.get("messages") or request["input"]
        return conversation

    @property
    def has_block(self) -> bool:
        """Whether the block is in the last request, just before the user's message."""
        return len(self.sent) > 1 and "a1" in block_keys(self.sent[-2]["content"])


@pytest.fixture
async def host(sync_memory: Memory) -> AsyncIterator[Host]:
    with serve() as server, OpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        async with AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as other:
            yield Host(server, client, other, sync_memory)


@in_both_apis
async def test_recalls_before_a_call_and_stores_after_it(host: Host, api: str) -> None:
    host.server.play(reply(api))
    wrapped = wrap_openai(host.client, host.memory)
    conversation = [{"role": "system", "content": "Be brief."}, user()]
    answer = resource(wrapped, api).create(**options(api, iter(conversation)))
    assert ANSWER in answer.model_dump_json()
    assert isinstance(wrapped, OpenAI)
    assert host.has_block
    assert [host.sent[0], host.sent[-1]] == conversation
    assert stored(host.memory) == [REQUEST, ANSWER]


@in_both_apis
@pytest.mark.parametrize("is_async", [False, True])
async def test_stream_is_passed_on_unchanged(host: Host, api: str, is_async: bool) -> None:
    client: Any = host.async_client if is_async else host.client
    events = []
    for each in (client, wrap_openai(client, host.memory)):
        host.server.play(reply(api, streamed=True))
        parts = resource(each, api).create(**options(api, [user()], stream=True))
        if is_async:
            events.append([part.model_dump() async for part in await parts])
        else:
            assert isinstance(parts, openai.Stream)
            events.append([part.model_dump() for part in parts])
    assert events[0] == events[1]
    assert host.has_block
    assert stored(host.memory) == [REQUEST, ANSWER]


async def test_other_methods_of_the_client(host: Host) -> None:
    wrapped = wrap_openai(host.client, host.memory).with_options(timeout=30)
    host.server.play(reply("chat"), reply("responses"), reply("chat"))
    for api in APIS:
        resource(wrapped, api).parse(**options(api, [user()]))
        assert host.has_block
    wrapped.chat.completions.with_raw_response.create(**options("chat", [user()]))
    assert host.has_block
    host.server.play(reply("chat", streamed=True), reply("chat", streamed=True))
    for recall in (True, False):
        arguments: Any = {} if recall else {"recall": False}
        with wrapped.chat.completions.stream(**options("chat", [user()]), **arguments) as events:
            assert list(events)
        assert host.has_block == recall
    assert stored(host.memory) == [REQUEST, ANSWER, REQUEST, ANSWER, REQUEST, REQUEST, ANSWER]


@in_both_apis
async def test_call_that_is_left_alone_or_fails_stores_nothing(host: Host, api: str) -> None:
    host.server.play(reply(api), refusal(400, "no such model"))
    create = resource(wrap_openai(host.client, host.memory), api).create
    create(**options(api, [user()]), recall=False)
    assert host.sent == [user()]
    with pytest.raises(openai.BadRequestError, match="no such model"):
        create(**options(api, [user()]))
    assert stored(host.memory) == []


@in_both_apis
async def test_cancelled_call_and_unfinished_stream_store_nothing(host: Host, api: str) -> None:
    create = resource(wrap_openai(host.async_client, host.memory), api).create
    host.server.play(Reply(body=reply(api).body, seconds=600))
    running = asyncio.ensure_future(create(**options(api, [user()])))
    await wait_until(lambda: bool(host.server.requests))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    whole = reply(api, streamed=True)
    host.server.play(whole, Reply(chunks=(whole.chunks[0],), is_interrupted=True))
    for _ in range(2):
        parts = await create(**options(api, [user()], stream=True))
        await anext(parts)
    with pytest.raises((openai.APIError, httpx.HTTPError)):  # older clients raise the latter
        await anext(parts)
    await parts.close()
    assert stored(host.memory) == []


async def test_calls_of_a_turn_share_one_recall_and_store_it_once(host: Host) -> None:
    host.server.play(tool_call("weather", "{}"), text(ANSWER))
    create: Any = wrap_openai(host.client, host.memory).chat.completions.create
    message = create(**options("chat", [user()], tools=[WEATHER])).choices[0].message
    assert stored(host.memory) == [REQUEST]
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    create(**options("chat", [user(), message, result], tools=[WEATHER]))
    before, after = (request["messages"] for request in host.server.requests)
    assert before == after[:2]
    assert [message["role"] for message in after[2:]] == ["assistant", "tool"]
    assert host.server.requests[0]["tools"] == [WEATHER]
    assert stored(host.memory) == [REQUEST, ANSWER]


async def test_outputs_of_the_responses_api(host: Host) -> None:
    host.server.play(reply("responses"))
    call = {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"}
    items = [user(), call, {"type": "function_call_output", "call_id": "1", "output": "sunny"}]
    resource(wrap_openai(host.client, host.memory), "responses").create(**options("r", items))
    assert "a1" in block_keys(host.sent[0]["content"])
    assert host.sent[1:] == items
    assert stored(host.memory) == [ANSWER]


PORTS = {"ann": "5433", "lin": "7788"}


def quote_the_user(request: dict[str, Any]) -> Reply:
    """Answer with the user and the last message of a request."""
    conversation = request.get("messages") or request["input"]
    content = f"Noted for {request['user']}: {conversation[-1]['content']}"
    return reply("chat" if "messages" in request else "responses", content=content)


@pytest.mark.parametrize("is_async", [False, True])
async def test_concurrent_requests_of_two_users(host: Host, tmp_path: Path, is_async: bool) -> None:
    host.server.answer = quote_the_user
    client: Any = host.async_client if is_async else host.client
    said = [(f"{REQUEST}, part {n}", list(PORTS)[n % 2], APIS[n // 2 % 2]) for n in range(20)]
    with Memory(settings=make_settings(str(tmp_path / "all.db"))) as everyone:
        for name, port in PORTS.items():
            everyone.add(f"My database config has the port {port}.", name, infer=False)
        wrapped = wrap_openai(client, lambda name: everyone.bind(user_id=name))

        def ask(content: str, name: str, api: str) -> Any:
            return resource(wrapped, api).create(**options(api, [user(content)], user=name))

        if is_async:
            await asyncio.gather(*(ask(*each) for each in said))
        else:
            with ThreadPoolExecutor(20) as pool:
                list(pool.map(lambda each: ask(*each), said))
        for request in host.server.requests:
            block = (request.get("messages") or request["input"])[0]["content"]
            assert {port for port in PORTS.values() if port in block} == {PORTS[request["user"]]}
        for name, port in PORTS.items():
            own = [content for content, speaker, _ in said if speaker == name]
            answers = [f"Noted for {name}: {content}" for content in own]
            first = f"My database config has the port {port}."
            assert sorted(stored(everyone.bind(user_id=name))) == sorted([first, *own, *answers])
    assert len(host.server.requests) == 20


@pytest.mark.parametrize(("name", "reported"), [(None, False), ("", True), ("eve", True)])
async def test_requests_without_a_memory(
    host: Host, name: str | None, reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    unbound = AsyncMemory(db=":memory:")  # sync code cannot use it, and it has no user
    memories: dict[str | None, Any] = {None: None, "": unbound}
    host.server.play(text(ANSWER))
    create: Any = wrap_openai(host.client, lambda user: memories[user]).chat.completions.create
    create(**options("chat", [user()]), **({} if name is None else {"user": name}))
    assert ("do not conclude" in str(host.sent[0])) == reported
    assert ("recall failed" in caplog.text) == reported
    assert "5433" not in str(host.server.requests)


async def test_memory_never_fails_the_call(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    bad = {"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}}
    create: Any = wrap_openai(host.client, host.memory).chat.completions.create
    host.server.play(text(ANSWER), text(""), Reply(body='{"id": "1", "choices": null}'))
    for content in ([bad], "\0", REQUEST):
        assert create(**options("chat", [user(content)]))
    host.memory.close()
    host.server.play(text(ANSWER), stream([{"content": ANSWER}]))
    assert create(**options("chat", [user()])).choices[0].message.content == ANSWER
    assert list(create(**options("chat", [user()], stream=True)))
    assert caplog.text.count("storing a turn failed") == 4


async def test_async_memory_of_an_async_client(host: Host, library: Library) -> None:
    memory = AsyncMemory(library=library, user_id="lin")
    host.server.play(text(ANSWER), text(ANSWER))
    wrapped = wrap_openai(host.async_client, memory, remember=False)
    for content, count in ((REQUEST_ZH, 2), ("你好", 1)):
        await wrapped.chat.completions.create(**options("chat", [user(content)]))
        assert len(host.sent) == count
    assert "l1" in block_keys(host.server.requests[0]["messages"][0]["content"])
    page = await memory.get_all(kinds="messages")
    assert ANSWER not in [item["memory"] for item in page["results"]]


async def test_wrong_arguments(host: Host) -> None:
    cases: list[tuple[Any, Any, str]] = [
        (host.client, AsyncMemory(user_id="ann"), "sync code cannot wait"),
        (host.client, "ann", "'ann' is not a memory"),
        (host.client, None, "None is not a memory"),
        (host.client, Memory, "memory.sync.Memory'> is not a memory"),
        (wrap_openai(host.client, host.memory).copy(), host.memory, "is wrapped already"),
        (object(), host.memory, "a object is not a client"),
    ]
    for client, memory, problem in cases:
        with pytest.raises(InvalidArgument, match=problem):
            wrap_openai(client, memory)


def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("openai_client.py", monkeypatch, capsys)
    assert lines == [f"lin: You said: “{SEAT}”", "eve: Hello! What can I do for you?"]
