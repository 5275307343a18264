"""`remember` and `forget` over MCP: duplicates, contradictions, and keys of every kind."""

from typing import Any

import pytest

from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.table import Interface, parse_arguments
from memrecall.errors import InvalidArgument, NotFound
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.server.mcp.server import make_context
from memrecall.server.rpc import as_json
from memrecall.server.tools import find_tool
from memrecall.store import NewKnowledge
from memrecall.types import NewMessage, Origin, Role
from tests.cases import check_each_async

from ..libraries import open_library

OTHER = [
    ("I live in Rome", "The user lives in Rome."),
    ("The user lives in Oslo.", "The user lives in Berlin."),
    ("用户住在上海", "用户住在北京"),
    ("The user has a cat called Miso.", "The user has a dog called Rex."),
]
CONTRADICTING = [
    ("User lives in Rome.", "User lives in Berlin."),
    ("I work at Acme", "User works at Globex"),
    ("用户住在上海", "用户住在北京"),
]
BESIDE = [
    ("User likes black tea.", "User likes cats."),
    ("User lives in Rome.", "User works at Acme."),
]

SIMILAR = [
    ("The user is allergic to peanuts.", "The user's favourite colour is green.", False),
    ("The meeting with Bob is on Friday.", "The user's dog is called Rex.", False),
    ("用户对花生过敏。", "用户最喜欢的颜色是绿色。", False),
    ("The gate code of the office is 4711.", "The office gate has the code 0815 at night.", True),
    ("I live in Rome and have a dog.", "I live in Oslo now.", True),
    ("The meeting with Bob is on Friday.", "I had tea. Bob moved the meeting to Monday.", True),
    ("小李的办公室在三楼。", "小李的办公室搬到五楼了。", True),
]


async def call(context: ToolContext, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return what an MCP client gets from a tool."""
    found = find_tool(tool, Interface.MCP)
    assert found is not None
    return as_json(await found.run(context, parse_arguments(found, arguments)))


async def current(library: Library, user: str) -> list[str]:
    """Return the memories that hold now, oldest first."""
    page = await AsyncMemory(library=library, user_id=user).get_all()
    return [item["memory"] for item in reversed(page["results"])]


async def test_remember_takes_its_text_like_correct_or_by_its_former_name(
    library: Library,
) -> None:
    context = make_context(library, Scope("ann"))
    tool = find_tool("remember", Interface.MCP)
    assert tool is not None
    assert "text" in tool.arguments.model_json_schema()["properties"]
    await call(context, "remember", text="I live in Rome")
    await call(context, "remember", content="I work at Acme")
    assert await current(library, "ann") == ["I live in Rome", "I work at Acme"]


async def test_remember_without_a_model_tells_only_the_same_text(library: Library) -> None:
    async def check(case: tuple[str, str]) -> None:
        first, second = case
        context = make_context(library, Scope(first))
        old = await call(context, "remember", text=first)
        again = await call(context, "remember", text=f"{first} ")
        assert again["memory_key"] == old["memory_key"]
        assert again["note"] == "This fact is already stored"
        new = await call(context, "remember", text=second)
        assert (new["memory_key"] == old["memory_key"], new["replaced"]) == (False, [])
        assert await current(library, first) == [first, second]

    await check_each_async(OTHER, check)


@pytest.mark.usefixtures("sentence_extractor")
async def test_remember_replaces_what_the_model_says_it_ends(library: Library) -> None:
    async def check(case: tuple[str, str, bool]) -> None:
        first, second, is_replaced = case
        user = f"{first} {second}"
        context = make_context(library, Scope(user))
        old = await call(context, "remember", text=first)
        new = await call(context, "remember", text=second)
        assert new["replaced"] == [old["memory_key"]] * is_replaced
        assert (new["note"] == f"it replaces: {first}") is is_replaced
        assert await current(library, user) == ([second] if is_replaced else [first, second])

    rows = [(*pair, pair in CONTRADICTING) for pair in CONTRADICTING + BESIDE]
    await check_each_async(rows, check)


@pytest.mark.usefixtures("sentence_extractor")
async def test_remember_replaces_all_that_it_contradicts(library: Library) -> None:
    context = make_context(library, Scope("ann"))
    home = await call(context, "remember", text="User lives in Rome.")
    work = await call(context, "remember", text="User works at Acme.")
    both = "User lives in Berlin. User works at Globex."
    moved = await call(context, "remember", text=both)
    assert sorted(moved["replaced"]) == sorted([home["memory_key"], work["memory_key"]])
    assert await current(library, "ann") == [both]


@pytest.mark.usefixtures("sentence_extractor")
async def test_remember_keeps_what_the_user_said(library: Library) -> None:
    memory = AsyncMemory(library=library, user_id="ann")
    await memory.add("I live in Rome")
    own = "User lives in Rome."
    context = make_context(library, Scope("ann"))
    answer = await call(context, "remember", text="User lives in Berlin.")
    assert answer["replaced"] == []
    assert answer["note"] == f"the user said otherwise, which is kept: {own}"
    assert await current(library, "ann") == [own, "User lives in Berlin."]
    record = await library.store.memories(Scope("ann")).get(answer["memory_key"])
    assert record.provenance.origin is Origin.ASSISTANT
    await memory.add("I moved to Lisbon")
    assert own not in await current(library, "ann")


async def test_remember_names_only_similar_memories(library: Library) -> None:
    async def check(case: tuple[str, str, bool]) -> None:
        stored, new, is_similar = case
        context = make_context(library, Scope(new))
        old = await call(context, "remember", text=stored)
        similar = (await call(context, "remember", text=new))["similar"]
        assert [item["memory_key"] for item in similar] == [old["memory_key"]] * is_similar

    await check_each_async(SIMILAR, check)


ONE_TOPIC = [
    "I have two cats.",
    "My mother is allergic to cats.",
    "I work as a nurse.",
    "My birthday is May 4.",
    "My wife works as a teacher.",
    "我不喜欢吃香菜。",
    "I have a dog.",
    "My wedding anniversary is June 9.",
    "我女儿今年上小学。",
]


async def test_similar_memories_share_more_than_a_topic() -> None:
    async with open_library(embedder="local") as library:
        context = make_context(library, Scope("ann"))
        for content in ONE_TOPIC:
            assert (await call(context, "remember", text=content))["similar"] == []
        rent = await call(context, "remember", text="房租每月三千五。")
        (similar,) = (await call(context, "remember", text="房东把房租涨到了四千。"))["similar"]
        assert similar["memory_key"] == rent["memory_key"]


@pytest.mark.usefixtures("sentence_extractor")
async def test_correct_keeps_what_the_user_said(library: Library) -> None:
    await AsyncMemory(library=library, user_id="ann").add("I live in Rome")
    context = make_context(library, Scope("ann"))
    (own,) = (await call(context, "list_memories"))["memories"]
    answer = await call(context, "correct", memory_key=own["memory_key"], text="Ann is in Oslo")
    assert not answer["done"]
    assert "only the user changes" in answer["note"]


async def test_memories_are_listed_in_pages(library: Library) -> None:
    context = make_context(library, Scope("ann"))
    for number in range(3):
        await call(context, "remember", text=f"The code of door {number} is {4711 * number}")
    first = await call(context, "list_memories", limit=2)
    rest = await call(context, "list_memories", limit=2, cursor=first["next_cursor"])
    contents = [m["content"] for m in (*first["memories"], *rest["memories"])]
    assert contents == [f"The code of door {n} is {4711 * n}" for n in (2, 1, 0)]
    assert rest["next_cursor"] is None


async def test_forget_takes_every_key_that_recall_gives(library: Library) -> None:
    scope = Scope("ann")
    batch = [NewMessage(content="My dog is called Rex", role=Role.USER)]
    (message,) = (await library.add_messages(scope, batch)).ids
    operator = ToolContext.for_operator(library)
    entry = await operator.knowledge.add(NewKnowledge("Dogs need a vaccination", "dogs"))
    context = make_context(library, scope)
    memory = (await call(context, "remember", text="The dog likes salmon"))["memory_key"]

    assert (await call(context, "forget", memory_key=memory))["memory_key"] == memory
    with pytest.raises(InvalidArgument, match=r"all users share.*delete_knowledge"):
        await call(context, "forget", memory_key=entry)
    with pytest.raises(NotFound, match="no memory"):
        await call(context, "forget", memory_key="none")
    assert (await call(context, "forget", memory_key=message))["memory_key"] == message
    assert await library.store.timeline(scope).get_many([message]) == []
