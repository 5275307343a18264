"""What all integrations share: blocks, tools and turns that never fail the host."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from memrecall import AsyncMemory, Memory
from memrecall.agent import Recaller
from memrecall.errors import CassetteMismatch, InvalidArgument, ScriptExhausted
from memrecall.integrations.agent_memory import AgentMemory, TurnBlocks, bind_tools
from memrecall.memory import Library
from memrecall.settings import Settings
from memrecall.testing import ScriptedClient

from ..model.openai_server import serve, text
from .contract import HISTORY, REQUEST, REQUEST_ZH, answer_keys, block_keys


def ask(request: str) -> list[object]:
    return [{"role": "user", "content": request}]


class TestBlocks:
    @pytest.mark.parametrize(
        ("user", "request_text", "key"), [("ann", REQUEST, "a1"), ("lin", REQUEST_ZH, "l1")]
    )
    async def test_block_has_the_evidence_of_the_bound_user(
        self, library: Library, user: str, request_text: str, key: str
    ) -> None:
        owner = AgentMemory(AsyncMemory(library=library, user_id=user))
        assert key in block_keys(await owner.recall_block(ask(request_text)))

    async def test_messages_without_a_request_need_no_recall(self, memory: AsyncMemory) -> None:
        owner = AgentMemory(memory)
        block = {"role": "user", "content": "<recalled_memories>\n", "name": "memrecall"}
        for messages in ([], [*ask(REQUEST), {"role": "assistant", "content": "Done"}], [block]):
            assert await owner.recall_block(messages) == ""

    async def test_unknown_message_is_a_failure_in_words(
        self, memory: AsyncMemory, caplog: pytest.LogCaptureFixture
    ) -> None:
        block = await AgentMemory(memory).recall_block([object(), *ask(REQUEST)])
        assert "a object is not a message" in block
        assert "recall failed" in caplog.text

    async def test_bug_is_logged_with_its_traceback_and_told_without_its_text(
        self, memory: AsyncMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise KeyError("a secret")

        monkeypatch.setattr(Recaller, "recall", fail)
        block = await AgentMemory(memory).recall_block(ask(REQUEST))
        assert "KeyError" in block
        assert "secret" not in block
        (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert record.exc_info

    @pytest.mark.concurrent
    def test_sync(self, sync_memory: Memory) -> None:
        owner = AgentMemory(sync_memory)
        assert block_keys(owner.recall_block_sync(ask(REQUEST)))
        owner.remember_sync("I drink tea.", "evening")
        assert len(sync_memory.get_all(session_id="evening", kinds="messages")["results"]) == 1
        sync_memory.close()
        assert "this memory is closed" in owner.recall_block_sync(ask(REQUEST))
        owner.remember_sync("I drink coffee.")

    def test_sync_code_needs_a_sync_memory(self, memory: AsyncMemory) -> None:
        owner = AgentMemory(memory)
        (tool, *_) = bind_tools(memory)
        for call in (
            owner.recall_sync,
            owner.recall_block_sync,
            owner.remember_sync,
            tool.call_sync,
        ):
            with pytest.raises(InvalidArgument, match="sync code cannot wait"):
                call(ask(REQUEST))

    @pytest.mark.concurrent
    async def test_model_of_the_settings(self, tmp_path: Path) -> None:
        with serve() as server:
            server.play(*[text("There are no tools here.")] * 9)
            settings = Settings(
                db=str(tmp_path / "m.db"),
                embedder="hash",
                snapshots=False,
                model="test",
                base_url=server.url,
                api_key="key",
            )
            async with AsyncMemory(settings=settings, user_id="ann") as memory:
                await memory.add(HISTORY, infer=False)
                assert block_keys(await AgentMemory(memory).recall_block(ask(REQUEST)))
            assert server.requests

    @pytest.mark.parametrize("error", [CassetteMismatch, ScriptExhausted])
    async def test_error_of_a_recorded_model_is_raised(
        self, library: Library, error: type[Exception]
    ) -> None:
        class Failing(ScriptedClient):
            async def create(self, *_: Any, **__: Any) -> Any:
                raise error("the request differs")

        memory = AsyncMemory(library=library, user_id="ann", model_client=Failing([]))
        owner = AgentMemory(memory)
        (tool,) = [each for each in bind_tools(memory) if "recall" in each.name]
        for call in (
            owner.recall(REQUEST),
            owner.recall_block(ask(REQUEST)),
            tool.call({"query": REQUEST}),
        ):
            with pytest.raises(error):
                await call


class TestTurns:
    async def test_host_session_labels_the_turn_unless_one_is_bound(self, library: Library) -> None:
        memory = AsyncMemory(library=library, user_id="ann")
        await AgentMemory(memory).remember("I drink tea.", "host")
        await AgentMemory(memory.bind(session_id="bound")).remember("I drink coffee.", "host")
        texts = {}
        for session in ("host", "bound"):
            page = await memory.get_all(session_id=session, kinds="messages")
            texts[session] = [item["memory"] for item in page["results"]]
        assert texts == {"host": ["I drink tea."], "bound": ["I drink coffee."]}

    async def test_turn_that_cannot_be_stored_is_logged(
        self, memory: AsyncMemory, caplog: pytest.LogCaptureFixture
    ) -> None:
        await AgentMemory(memory).remember([])
        assert "storing a turn failed" in caplog.text


class TestTools:
    async def test_run_by_the_table(self, memory: AsyncMemory) -> None:
        tools = {tool.name: tool for tool in bind_tools(memory)}
        assert "a1" in answer_keys(await tools["recall"].call(json.dumps({"query": REQUEST})))
        stored = json.loads(await tools["remember"].call({"text": "Ann drinks tea"}))
        key = stored["memory_key"]
        new = json.loads(await tools["correct"].call({"memory_key": key, "text": "Ann eats"}))
        assert json.loads(await tools["forget"].call({"memory_key": new["memory_key"]}))["done"]

    async def test_refused_arguments(self, library: Library) -> None:
        async def refusal(language: Any, **arguments: Any) -> str:
            memory = AsyncMemory(library=library, user_id="ann")
            tools = {tool.name: tool for tool in bind_tools(memory, language=language)}
            answer = json.loads(await tools["recall"].call(arguments))
            assert answer["error"] == "invalid_arguments"
            return str(answer["message"])

        assert "the user is fixed" in await refusal("en", query="x", user_id="lin")
        assert "用户已固定" in await refusal("zh", query="x", user_id="lin")
        assert "query" in await refusal("en")

    async def test_bug_is_an_answer(
        self, memory: AsyncMemory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(AsyncMemory, "tools", None)
        tools = {tool.name: tool for tool in bind_tools(memory, language="zh")}
        answer = json.loads(await tools["recall"].call({"query": "x"}))
        assert (answer["error"], "内部出错" in answer["message"]) == ("internal", True)


def test_blocks_of_turns_keep_no_messages(memory: AsyncMemory) -> None:
    owner, blocks = AgentMemory(memory), TurnBlocks()
    for name in ("a", "b"):
        blocks.put(owner, ask(name * 1_000_000), name)
    assert len(str(vars(blocks))) < 1_000
    assert [blocks.get(owner, ask(name * 1_000_000)) for name in "abc"] == ["a", "b", None]


def test_unbound_memory_is_refused(library: Library) -> None:
    with pytest.raises(InvalidArgument, match="must be bound to a user"):
        AgentMemory(AsyncMemory(library=library))
