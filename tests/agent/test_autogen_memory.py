"""RecallMemory: AutoGen's Memory protocol."""

import json
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MemoryQueryEvent
from autogen_core import Image
from autogen_core.memory import Memory, MemoryContent, MemoryMimeType
from autogen_core.model_context import BufferedChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, LLMMessage, SystemMessage, UserMessage
from PIL import Image as Picture

from memrecall.agent import RecallMemory
from memrecall.errors import InvalidArgument, MemrecallError
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.testing import ScriptedClient, say

from ..cases import check_each_async
from ..model.openai_server import autogen_client, serve, text
from .clients import hand_off_search_results, recalled_blocks, user_message
from .recall_helpers import ANN, LIN, REQUEST, REQUEST_ZH, hand_off, on_both_engines, search


def make_memory(library: Library, *steps: Any) -> RecallMemory:
    return RecallMemory(library, ANN, model_client=ScriptedClient(steps))


async def make_context(*messages: LLMMessage) -> UnboundedChatCompletionContext:
    return UnboundedChatCompletionContext(list(messages))


def test_recall_memory_implements_the_protocol() -> None:
    assert issubclass(RecallMemory, Memory)
    assert not RecallMemory.__abstractmethods__


# Query


async def test_query_returns_recalled_memories(library: Library) -> None:
    memory = make_memory(library, search("port 5433, pool of 20"), hand_off("a1", "a2"))
    first, second = (await memory.query(REQUEST)).results
    assert first.content == "My database config: PostgreSQL on port 5433, pool of 20 connections"
    assert first.mime_type == MemoryMimeType.TEXT
    assert first.metadata is not None
    assert first.metadata["memory_key"] == "a1"
    assert first.metadata["speaker"] == "user"
    assert first.metadata["said_at"] == "2026-01-29T12:00:00Z"
    assert 0 < first.metadata["score"] <= 1
    assert second.metadata is not None
    assert second.metadata["speaker"] == "assistant"
    await memory.close()


@pytest.mark.parametrize("mime_type", [MemoryMimeType.TEXT, "text/plain", "text/markdown"])
async def test_query_accepts_memory_content(
    library: Library, mime_type: MemoryMimeType | str
) -> None:
    content = MemoryContent(content=REQUEST_ZH, mime_type=mime_type)
    client = ScriptedClient([search("数据库配置"), hand_off("l1")])
    (result,) = (await RecallMemory(library, LIN, model_client=client).query(content)).results
    assert "端口 5433" in str(result.content)


async def test_arguments_cannot_name_another_user(library: Library) -> None:
    memory = RecallMemory(library, Scope("nobody"))
    assert (await memory.query(REQUEST, user_id="ann", scope=ANN)).results == []


# Adding and clearing


@on_both_engines
async def test_added_memory_is_found(library: Library) -> None:
    memory = make_memory(library, search("jasmine tea", limit=1), hand_off_search_results)
    about = {"source": "form", "page": 3}
    await memory.add(
        MemoryContent(content="Ann likes jasmine tea", mime_type="text/plain", metadata=about)
    )
    (results,) = (await memory.query("Which tea did I say I like?")).results
    assert results.content == "Ann likes jasmine tea"
    assert results.metadata is not None
    assert results.metadata["kind"] == "memory"
    (record,) = await library.store.memories(ANN).get_many([results.metadata["memory_key"]])
    assert record.metadata == about
    assert record.provenance.actor == "autogen"


@pytest.mark.parametrize("content", [{"茶": "茉莉花"}, '{"茶": "茉莉花"}'])
async def test_json_content_is_stored_as_text(library: Library, content: Any) -> None:
    memory = RecallMemory(library, LIN)
    await memory.add(MemoryContent(content=content, mime_type=MemoryMimeType.JSON))
    page = await library.search(LIN, SearchRequest("茉莉花", kind="memory"))
    assert [hit.content for hit in page.results] == ['{"茶": "茉莉花"}']


NOT_TEXT = (
    MemoryContent(content=b"\x00\x01", mime_type=MemoryMimeType.BINARY),
    MemoryContent(content=b"text", mime_type=MemoryMimeType.TEXT),
    MemoryContent(content=b"{}", mime_type=MemoryMimeType.JSON),
    MemoryContent(content={"a": 1}, mime_type=MemoryMimeType.TEXT),
    MemoryContent(content="<svg/>", mime_type="image/svg+xml"),
    MemoryContent(content=Image(Picture.new("RGB", (1, 1))), mime_type=MemoryMimeType.IMAGE),
)


async def test_binary_content_is_refused(library: Library) -> None:
    memory = RecallMemory(library, ANN)

    async def check(content: MemoryContent) -> None:
        for attempt in (memory.add, memory.query):
            with pytest.raises(InvalidArgument, match="is not text"):
                await attempt(content)
        assert (await library.stats("ann"))["memories"] == 2

    await check_each_async(NOT_TEXT, check)


async def test_unstorable_text_is_refused(library: Library) -> None:
    async def check(text: str) -> None:
        content = MemoryContent(content=text, mime_type="text/plain")
        with pytest.raises((MemrecallError, ValueError)):
            await RecallMemory(library, ANN).add(content)

    await check_each_async(["", " ", "a\0b", "\ud800"], check)


@on_both_engines
async def test_clear_hides_the_memories_and_keeps_the_messages(library: Library) -> None:
    step = search("jasmine tea, dark mode, database config", limit=10)
    memory = make_memory(library, step, hand_off_search_results, step, hand_off_search_results)
    await memory.add(MemoryContent(content="Ann likes jasmine tea", mime_type="text/plain"))
    for event_kinds in ({"memory", "message"}, {"message"}):
        results = (await memory.query("Which tea did I say I like?")).results
        assert {result.metadata["kind"] for result in results if result.metadata} == event_kinds
        await memory.clear()
    assert (await library.stats("ann"))["messages"] == 6
    await RecallMemory(library, Scope("nobody")).clear()  # nothing to clear is no error


# A parent's context


async def test_update_context_adds_one_message(library: Library) -> None:
    memory = make_memory(library, search(), hand_off("a1"))
    context = await make_context(SystemMessage(content="s"), user_message())
    update = await memory.update_context(context)
    messages = await context.get_messages()
    assert len(messages) == 3
    assert isinstance(messages[-1], UserMessage)
    assert recalled_blocks(messages) == [messages[-1].content]
    assert len(update.memories.results) == 1


NOTHING_NEEDED: dict[str, list[LLMMessage]] = {
    "empty": [],
    "hi": [user_message("hi")],
    "谢谢": [user_message("谢谢")],
    "answered": [user_message(), AssistantMessage(content="As you said before", source="p")],
    "recalled": [user_message(), user_message("<recalled_memories>", source="memrecall")],
    "picture": [UserMessage(content=[Image(Picture.new("RGB", (1, 1)))], source="user")],
    "picture after text": [
        user_message(),
        UserMessage(content=[Image(Picture.new("RGB", (1, 1)))], source="user"),
    ],
}


async def test_update_context_adds_nothing_without_need(library: Library) -> None:
    async def check(name: str) -> None:
        context = await make_context(*NOTHING_NEEDED[name])
        assert (await make_memory(library).update_context(context)).memories.results == []
        assert await context.get_messages() == NOTHING_NEEDED[name]

    await check_each_async(NOTHING_NEEDED, check)


async def test_update_context_reports_no_result(library: Library) -> None:
    context = await make_context(user_message())
    memory = make_memory(
        library, search("dinner", min_relevance_score=0.9), hand_off(confidence=0.0)
    )
    assert (await memory.update_context(context)).memories.results == []
    (block,) = recalled_blocks(await context.get_messages())
    assert "Nothing relevant was found" in block


async def test_update_context_reports_a_disabled_user(library: Library) -> None:
    await library.store.owners.set_user_enabled("ann", False)
    context = await make_context(user_message())
    assert (await make_memory(library).update_context(context)).memories.results == []
    (block,) = recalled_blocks(await context.get_messages())
    assert "do not conclude that there are none" in block


async def test_earlier_blocks_are_not_part_of_the_conversation(library: Library) -> None:
    client = ScriptedClient([search(), hand_off("a1"), search("dinner"), hand_off("a3")])
    memory = RecallMemory(library, ANN, model_client=client)
    context = await make_context(user_message())
    await memory.update_context(context)
    await context.add_message(AssistantMessage(content="5433", source="p"))
    await context.add_message(user_message("And where did we have dinner last time?"))
    await memory.update_context(context)
    briefing = str(client.requests[2].messages[1].content)
    assert "recalled_memories" not in briefing
    assert [json.loads(line).get("n") for line in briefing.split("\n")[2:]] == [1, 2, 3]
    assert len(recalled_blocks(await context.get_messages())) == 2


@pytest.mark.parametrize(("request_text", "place"), [(REQUEST, "above"), (REQUEST_ZH, "上面")])
async def test_block_describes_its_position(
    library: Library, request_text: str, place: str
) -> None:
    context = await make_context(user_message(request_text))
    await make_memory(library, search(), hand_off("a1")).update_context(context)
    request, block = await context.get_messages()
    assert request.content == request_text
    assert place in str(block.content).split("\n")[1]


async def test_withheld_memories_are_reported(library: Library) -> None:
    memory = make_memory(library, *[search("database password"), hand_off()] * 2)
    (note,) = (await memory.query("What was the database password again?")).results
    assert note.metadata == {"kind": "withheld", "withheld": 1}
    assert "withheld" in str(note.content).lower()
    context = await make_context(user_message("What was the database password again?"))
    await memory.update_context(context)
    (block,) = recalled_blocks(await context.get_messages())
    assert "sensitive memories that match (1)" in block
    assert "Nothing relevant" not in block
    assert "hunter2" not in block


async def test_block_size_is_limited(library: Library) -> None:
    client = ScriptedClient([search("jasmine tea", limit=1), hand_off_search_results])
    memory = RecallMemory(library, ANN, model_client=client, block_characters=700)
    await memory.add(MemoryContent(content="jasmine tea " * 500, mime_type="text/plain"))
    context = await make_context(user_message("Which tea did I say I like?"))
    await memory.update_context(context)
    (block,) = recalled_blocks(await context.get_messages())
    assert "jasmine" in block
    assert len(block) <= 700


async def test_parent_agent_with_recall_memory(library: Library) -> None:
    parent = ScriptedClient([say("Port 5433."), say("You are welcome.")])
    memory = make_memory(library, search(), hand_off("a1"))
    agent = AssistantAgent(
        "parent", parent, memory=[memory], model_context=BufferedChatCompletionContext(10)
    )
    first = await agent.run(task=REQUEST)
    (event,) = [message for message in first.messages if isinstance(message, MemoryQueryEvent)]
    assert len(event.content) == 1
    second = await agent.run(task="thanks!")
    assert not [message for message in second.messages if isinstance(message, MemoryQueryEvent)]
    assert len(recalled_blocks(parent.requests[0].messages)) == 1


@pytest.mark.concurrent
async def test_server_that_accepts_one_system_message(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve() as server:
        server.play(text("Port 5433."))
        client = autogen_client(server)
        memory = make_memory(library, search(), hand_off("a1"))
        result = await AssistantAgent("parent", client, memory=[memory]).run(task=REQUEST)
        await client.close()
        (request,) = server.requests
    assert result.messages[-1].to_text() == "Port 5433."
    assert [message["role"] for message in request["messages"]] == ["system", "user", "user"]
    assert "port 5433, pool of 20" in request["messages"][-1]["content"]
