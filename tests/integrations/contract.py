"""What every framework must do: each test module supplies a driver for these contracts."""

import asyncio
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memrecall import AsyncMemory, Memory, RecallOptions
from memrecall.memory import Library
from memrecall.model import RecordingClient, ReplayClient
from memrecall.testing import ScriptedClient, say, wait

from ..agent.recall_helpers import NOW, check_clock_and_observer, check_date, hand_off, search
from ..waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
LEFT_OUT = (
    "INTEGRATION TESTS LEFT OUT: `make test-integrations` installs the frameworks and runs them"
)
HISTORY = [
    {
        "id": "a1",
        "role": "user",
        "content": "My database config: PostgreSQL on port 5433, pool of 20",
    },
    {"role": "assistant", "content": "Noted: port 5433 and a pool of 20."},
]
# What the examples quote.
PEANUTS = "我对花生过敏，带花生的菜都不能点。"
SEAT = "On trains I always take a window seat in the quiet coach."
REQUEST = "Set it up like my database config from before"
REQUEST_ZH = "按照我之前的数据库配置来"


def require(package: str) -> None:
    """Skip the calling test module if a framework is not installed."""
    pytest.importorskip(package, reason=LEFT_OUT)


def run_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """Run an example and return the lines that it prints."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return [line for line in capsys.readouterr().out.splitlines() if line]


AT_NOON = RecallOptions(as_of=NOW)  # a replay needs the time of the recording


def record_and_replay(cassette: Path) -> Iterator[Any]:
    """Yield a client that records a recall, then one that replays it."""
    yield RecordingClient(ScriptedClient([search(), hand_off("a1")]), cassette)
    replay = ReplayClient(cassette)
    yield replay
    replay.assert_exhausted()


def block_keys(block: str) -> list[str]:
    """Return the keys of the memories in a recalled block."""
    lines = [json.loads(line) for line in block.splitlines() if line.startswith("{")]
    return [line["memory_key"] for line in lines if "memory_key" in line]


def answer_keys(answer: str) -> list[str]:
    """Return the keys of the memories in the answer of the tool `recall`."""
    memories: list[dict[str, Any]] = json.loads(answer)["memories"]
    return [memory["memory_key"] for memory in memories]


class RecallContract:
    """A recall in a framework: it can be cancelled, replayed and observed."""

    def keys(self, text: str) -> list[str]:
        """Return the keys of the memories in what the model gets."""
        return block_keys(text)

    async def recall(self, memory: Any, request: str = REQUEST, **arguments: Any) -> str:
        """Return what the model gets of a recall; `user` is put into the framework's context."""
        raise NotImplementedError

    def user_of(self, context: Any) -> str:
        """Return the user in the framework's context of a request."""
        raise NotImplementedError

    async def test_recall(self, memory: AsyncMemory) -> None:
        assert "a1" in self.keys(await self.recall(memory))

    @pytest.mark.concurrent
    async def test_function_finds_the_memory_of_each_request(self, library: Library) -> None:
        everyone = AsyncMemory(library=library)

        def find(context: Any) -> AsyncMemory | None:
            user = self.user_of(context)
            return None if user == "eve" else everyone.bind(user_id=user)

        requests = {"ann": REQUEST, "lin": REQUEST_ZH, "eve": REQUEST}
        calls = [self.recall(find, text, user=user) for user, text in requests.items()]
        ann, lin, eve = [self.keys(text) for text in await asyncio.gather(*calls)]
        assert ("a1" in ann, "l1" in lin, eve) == (True, True, [])
        assert not set(ann) & set(lin)

    @pytest.mark.concurrent
    async def test_sync_memory_serves_async_code(self, sync_memory: Memory) -> None:
        assert self.keys(await self.recall(sync_memory))

    @pytest.mark.concurrent
    async def test_cancelled_run_ends_the_recall(self, library: Library) -> None:
        slow = ScriptedClient([wait(600, then=say("too late"))])
        memory = AsyncMemory(library=library, user_id="ann", model_client=slow)
        running = asyncio.ensure_future(self.recall(memory))
        await wait_until(lambda: bool(slow.requests))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def test_recall_can_be_replayed(self, library: Library, tmp_path: Path) -> None:
        texts = []
        for client in record_and_replay(tmp_path / "cassette.jsonl"):
            memory = AsyncMemory(library=library, user_id="ann", model_client=client)
            texts.append(await self.recall(memory, options=AT_NOON))
        assert texts[0] == texts[1]
        assert self.keys(texts[0]) == ["a1"]

    async def test_times_and_observer(self, library: Library) -> None:
        async def run(model_client: ScriptedClient, **arguments: Any) -> object:
            memory = AsyncMemory(library=library, user_id="ann", model_client=model_client)
            return await self.recall(memory, **arguments)

        await check_clock_and_observer(run)
        await check_date(run)


class Turn(NamedTuple):
    """A turn of an agent: what its model was shown, and what it answered."""

    texts: list[str]
    answer: str

    def block(self, request: str) -> str:
        """Return the recalled block, the only text besides the request; "" if there is none."""
        (block,) = [text for text in self.texts if text != request] or [""]
        return block


class TurnContract(RecallContract):
    """A recall before each turn of an agent, as one message of data."""

    async def run_turn(
        self, memory: Any, request: str, *, stream: bool = False, **arguments: Any
    ) -> Turn:
        """Run a turn whose model answers "Port 5433."."""
        raise NotImplementedError

    async def recall(self, memory: Any, request: str = REQUEST, **arguments: Any) -> str:
        return (await self.run_turn(memory, request, **arguments)).block(request)

    @pytest.mark.parametrize("stream", [False, True])
    async def test_recalls_before_the_turn(self, memory: AsyncMemory, stream: bool) -> None:
        turn = await self.run_turn(memory, REQUEST, stream=stream)
        assert (turn.answer, REQUEST in turn.texts) == ("Port 5433.", True)
        assert "a1" in block_keys(turn.block(REQUEST))

    async def test_other_users_stay_unseen(self, memory: AsyncMemory) -> None:
        request = f"lin: {REQUEST_ZH}"
        turn = await self.run_turn(memory, request)
        assert not {"l1", "l2"} & set(block_keys(turn.block(request)))

    async def test_small_talk_needs_no_recall(self, memory: AsyncMemory) -> None:
        assert (await self.run_turn(memory, "Hello!")).texts == ["Hello!"]

    async def test_failed_recall_does_not_fail_the_turn(
        self, memory: AsyncMemory, library: Library, caplog: pytest.LogCaptureFixture
    ) -> None:
        await library.store.owners.set_user_enabled("ann", False)
        turn = await self.run_turn(memory, REQUEST)
        assert turn.answer == "Port 5433."
        assert "do not conclude" in turn.block(REQUEST)
        assert "no recall" in caplog.text


class ToolContract(RecallContract):
    """The tools of a memory, called by the model of an agent."""

    def keys(self, text: str) -> list[str]:
        return [] if "this request has no memory" in text else answer_keys(text)

    async def call_tool(
        self, memory: Any, name: str, arguments: dict[str, Any], **settings: Any
    ) -> str:
        """Return what a tool answers in a run; the settings are of the tools."""
        raise NotImplementedError

    async def recall(self, memory: Any, request: str = REQUEST, **arguments: Any) -> str:
        return await self.call_tool(memory, "recall", {"query": request}, **arguments)

    async def test_remember_writes_for_the_bound_user(self, memory: AsyncMemory) -> None:
        answer = await self.call_tool(memory, "remember", {"text": "林晓喝茉莉花茶"}, language="zh")
        item = await memory.get(json.loads(answer)["memory_key"])
        assert item is not None
        assert (item["memory"], item["user_id"]) == ("林晓喝茉莉花茶", "ann")
        assert item["origin"] == "assistant"

    async def test_no_argument_names_another_user(self, memory: AsyncMemory) -> None:
        arguments = {"query": REQUEST_ZH, "user_id": "lin"}
        assert "5433" not in (await self.call_tool(memory, "recall", arguments))

    async def test_failed_recall_is_an_answer(self, memory: AsyncMemory, library: Library) -> None:
        await library.store.owners.set_user_enabled("ann", False)
        assert "does not mean that nothing was found" in await self.recall(memory)
