"""Spaces over MCP: tools read the bound spaces, and write to those bound with write."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from memrecall.errors import Forbidden, InvalidArgument, NotFound
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope, parse_spaces
from memrecall.server.mcp import http
from memrecall.server.mcp.server import make_context

from ..libraries import open_library
from .mcp_clients import call_failing_tool, call_tool, over_stdio
from .test_remember import call


async def make_team(library: Library) -> AsyncMemory:
    """Store a space of Ann (admin), Ben (contributor) and Cleo (reader) with a fact of Ben."""
    memory = AsyncMemory(library=library)
    ann = memory.bind(user_id="ann")
    await ann.create_space("team-x", name="Team X")
    for member, role in (("ben", "contributor"), ("cleo", "reader")):
        await ann.space("team-x").set_member(member, role, name=member.title())
    await memory.bind(user_id="ben").space("team-x").add("The offsite is in Lisbon.")
    await library.vectors.settle()
    return memory


def bind(library: Library, user: str, *spaces: str) -> Any:
    names, writable = parse_spaces(spaces)
    return make_context(library, Scope(user, spaces=names), write_spaces=writable)


async def test_results_say_where_they_are_from(library: Library) -> None:
    await make_team(library)
    context = bind(library, "ann", "team-x")
    (hit,) = (await call(context, "search_messages", query="where is the offsite"))["messages"]
    assert hit["space"].startswith("space: team-x, by Ben, 20")
    read = await call(context, "read_memory", memory_key=hit["message_id"])
    assert (read["content"], read["space"]) == ("The offsite is in Lisbon.", hit["space"])
    recalled = await call(context, "recall", query="Where is the offsite?")
    assert recalled["memories"][0]["space"] == hit["space"]
    alone = await call(bind(library, "ann"), "recall", query="Where is the offsite?")
    assert alone["memories"] == []


async def test_remember_writes_to_spaces_bound_with_write(library: Library) -> None:
    memory = await make_team(library)
    ann = bind(library, "ann", "team-x:write")
    stored = await call(ann, "remember", content="The gate code is 4711", space="team-x")
    again = await call(ann, "remember", content="The gate code is 4711", space="team-x")
    assert stored["memory_key"] == again["memory_key"]
    assert stored["memory_key"].startswith("space:team-x/")
    (item,) = (await call(ann, "list_memories", space="team-x"))["memories"]
    assert (item["memory_key"], item["by"]) == (stored["memory_key"], "ann")
    assert (await call(ann, "list_memories"))["memories"] == []
    key = stored["memory_key"]
    corrected = await call(ann, "correct", memory_key=key, text="The gate code is 0815")
    assert corrected["memory_key"].startswith("space:team-x/")
    assert (await call(ann, "forget", memory_key=corrected["memory_key"]))["done"]
    own = await call(ann, "remember", content="I like green tea")
    assert "/" not in own["memory_key"]
    assert len((await memory.bind(user_id="ann").get_all())["results"]) == 1


async def test_other_writes_are_refused(library: Library) -> None:
    await make_team(library)
    fact = {"content": "Ben likes tea", "space": "team-x"}
    stored = await call(bind(library, "ben", "team-x:write"), "remember", **fact)
    for user, space, error in (
        ("ben", "team-x", InvalidArgument),
        ("ben", "other:write", InvalidArgument),
        ("cleo", "team-x:write", Forbidden),
        ("dora", "team-x:write", NotFound),
    ):
        with pytest.raises(error):
            await call(bind(library, user, space), "remember", content="tea", space="team-x")
    context, key = bind(library, "ben", "team-x"), stored["memory_key"]
    for tool, arguments in (("forget", {}), ("correct", {"text": "Ben likes coffee"})):
        with pytest.raises(InvalidArgument, match="cannot write"):
            await call(context, tool, memory_key=key, **arguments)
    (item,) = (await call(context, "list_memories", space="team-x"))["memories"]
    assert (item["memory_key"], item["content"]) == (key, "Ben likes tea")


async def test_lost_membership_counts_from_the_next_call_on(library: Library) -> None:
    memory = await make_team(library)
    context = bind(library, "ben", "team-x:write")
    assert (await call(context, "search_messages", query="offsite"))["messages"]
    await memory.bind(user_id="ann").space("team-x").remove_member("ben")
    for tool, arguments in (
        ("search_messages", {"query": "offsite"}),
        ("recall", {"query": "Where is the offsite?"}),
        ("list_memories", {"space": "team-x"}),
        ("remember", {"content": "tea", "space": "team-x"}),
    ):
        with pytest.raises(NotFound, match="no such space"):
            await call(context, tool, **arguments)


async def test_http_binds_the_spaces_of_the_header(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = Scope("ann", spaces=("team-x:write", "team-y"))
    principal = SimpleNamespace(read_only=False)
    monkeypatch.setattr(http, "_bind", lambda request: (principal, scope))
    service: Any = SimpleNamespace(library=library, model_client=None)
    request: Any = SimpleNamespace(request=Request({"type": "http"}))
    context = await http.McpEndpoint(service, frozenset())._context_of(request)
    assert context.bound_spaces(writes=False) == ["team-x", "team-y"]
    assert context.bound_spaces(writes=True) == ["team-x"]


@pytest.mark.concurrent
async def test_command_offers_the_bound_spaces(tmp_path: Path) -> None:
    async with open_library(db=str(tmp_path / "x.db")) as library:
        await make_team(library)
    flags = ("--user", "ben", "--space", "team-x:write")
    async with over_stdio(tmp_path, *flags) as client:
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert schemas["remember"]["properties"]["space"]["enum"] == ["team-x"]
        stored = await call_tool(client, "remember", content="The code is 4711", space="team-x")
        assert stored["memory_key"].startswith("space:team-x/")
        refused = await call_failing_tool(client, "remember", content="tea", space="other")
        assert "cannot write to space 'other'" in refused
    async with over_stdio(tmp_path, "--user", "ben") as client:
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert not any("space" in schema["properties"] for schema in schemas.values())
