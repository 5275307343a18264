"""No statement of a user's request touches more than one shard."""

import asyncio
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mcp import Client

from memrecall.agent.tools.table import Interface, tools_for
from memrecall.library.knowledge import KnowledgeBase
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Permission, Scope
from memrecall.server.http.openapi import load_examples
from memrecall.store.database.distribution import REFERENCE_TABLES
from memrecall.store.knowledge import NewKnowledge
from memrecall.testing import say
from memrecall.types import NewMessage, Role
from tests.chat.chat_helpers import collect_turn, fill, group_chat, single_chat
from tests.cluster.plans import find_multi_shard, recorded_parameters
from tests.counting import recorded_statements
from tests.rpc.mcp_clients import call_tool, over_http, tool_names
from tests.rpc.test_http import CALLS, call_method
from tests.server.http_service import serve_in_process, serve_on_socket
from tests.server.record_examples import send_requests

# Memberships are stored with their space: to list a user's spaces, and to erase a user, all shards
# are asked which spaces name them.
OF_A_MEMBER = re.compile(r"user_id > \$\d+|FROM users JOIN memberships")
OPERATOR = frozenset({Permission.OPERATOR, Permission.KNOWLEDGE})
OPERATOR_TOOLS = ("memory_get_status", "memory_dump", "memory_backup")


def of_one_owner(statements: dict[str, Any]) -> dict[str, Any]:
    """Return statements without those that look for a member's spaces."""
    return {key: value for key, value in statements.items() if not OF_A_MEMBER.search(value[0])}


async def test_statements_of_every_endpoint(library: Library) -> None:
    with recorded_parameters() as statements:
        answers = await send_requests(library)

    assert answers.keys() == load_examples().keys()
    assert len(statements) > 100
    assert await find_multi_shard(library.store, of_one_owner(statements)) == {}


async def test_statements_of_the_memory_class(library: Library) -> None:
    with recorded_parameters() as statements:
        async with AsyncMemory(library=library, user_id="ann") as memory:
            first = await memory.add("I live in Rome.", session_id="s")
            await memory.add("I moved to Paris.", session_id="s")
            await memory.write([{"role": "user", "content": "我对花生过敏。"}], session_id="s")
            key = first["results"][0]["id"]
            await memory.get(key)
            await memory.get_all(filters={"topic": "food"})
            await memory.search("where do I live?", threshold=0.0)
            await memory.history(key)
            await memory.delete(key)
            await memory.undo(key)
            await memory.extract("My sister Clara works at Helix Labs.")
            await memory.graph("Clara")
            await memory.recall("What am I allergic to?", session_id="s")
            await memory.checkpoint(session_id="s")
            await memory.restore(session_id="s")
            await memory.summarize(session_id="s")
            await memory.state(200, session_id="s")
            memory.register("count", len)
            await memory.process("count", session_id="s", kinds="messages")
            await memory.sweep(dry_run=False)
            lines = [line async for line in memory.export()]
            await memory.purge(key, sources=True)
            await memory.delete_all()
            await memory.end_session(session_id="s")
            await memory.erase()
            await memory.import_(lines)
    assert len(statements) > 80
    assert await find_multi_shard(library.store, of_one_owner(statements)) == {}


async def test_statements_of_a_space(library: Library) -> None:
    with recorded_parameters() as statements:
        async with AsyncMemory(library=library, user_id="ann") as memory:
            await memory.create_space("team", name="Team")
            team, both = memory.space("team"), memory.bind(spaces=("team",))
            await team.set_member("ben", "contributor", name="Ben")
            await team.add("We meet in Rome.")
            first = await memory.add("I live in Rome.", session_id="s")
            copy = await memory.promote(first["results"][0]["id"], "team")
            await both.search("where do we meet?")
            await both.recall("Where do we meet?", session_id="s")
            await both.who_can_see(copy["id"])
            await both.update(copy["id"], "Ann lives in Oslo")
            await memory.demote(copy["id"], "team")
            await team.remove_member("ben")
            await team.audit()
    assert len(statements) > 40
    assert await find_multi_shard(library.store, of_one_owner(statements)) == {}


async def test_statements_of_chat_turns(library: Library) -> None:
    await fill(library)
    with recorded_parameters() as statements:
        turn = await collect_turn(
            single_chat(library, say("Noted.")).stream("What am I allergic to?")
        )
        assert turn.final.text
        group = group_chat(library, say("Noted."))
        await group.post("ann", "@bot where was I?")
        await collect_turn(group.stream("bot"))
        await library.vectors.settle()
    assert len(statements) > 15
    assert await find_multi_shard(library.store, of_one_owner(statements)) == {}


async def test_statements_of_knowledge(library: Library) -> None:
    scope = Scope("ann", "helper", None, frozenset({Permission.KNOWLEDGE}))
    with recorded_parameters() as statements:
        knowledge = KnowledgeBase(library, scope)
        await knowledge.add(NewKnowledge(content="The office is closed on Mondays."))
        await knowledge.find("When is the office closed?")
        await knowledge.search("office")
    assert await find_multi_shard(library.store, of_one_owner(statements)) == {}


async def test_statements_of_mcp_tools(library: Library) -> None:
    with recorded_parameters() as statements:
        async with serve_on_socket(library) as service:
            key = await service.create_key("ann", permissions=OPERATOR)
            async with over_http(service.url, key) as client:
                assert set(await tool_names(client)) == set(tools_for(Interface.MCP))
                await _use_memories(client)
                await _use_knowledge(client)
                for tool in OPERATOR_TOOLS:
                    await call_tool(client, tool)
                await client.list_resources()
    assert len(statements) > 30
    assert await find_multi_shard(library.store, of_one_owner(statements)) == {}


async def _use_memories(client: Client) -> None:
    """Store what two languages say, find it by every tool of a user, and forget one of it."""
    await call_tool(client, "remember", content="Ann is allergic to peanuts")
    await call_tool(client, "remember", content="安住在杭州")
    recalled = await call_tool(client, "recall", query="What is Ann allergic to?")
    assert "peanuts" in json.dumps(recalled)
    recalled = await call_tool(client, "recall", query="安住在哪里？")
    assert "杭州" in json.dumps(recalled, ensure_ascii=False)
    key = recalled["memories"][0]["memory_key"]
    assert "杭州" in json.dumps(
        await call_tool(client, "read_memory", memory_key=key), ensure_ascii=False
    )
    await call_tool(client, "search_messages", query="peanuts")
    await call_tool(client, "forget", memory_key=key)


async def _use_knowledge(client: Client) -> None:
    """Add, find, change and delete an entry of the knowledge base."""
    entry = await call_tool(client, "add_knowledge", content="Closed on Mondays", summary="hours")
    results = (await call_tool(client, "query_knowledge", query="Mondays"))["results"]
    assert [result["id"] for result in results] == [entry["id"]]
    await call_tool(client, "search_knowledge_and_files", query="Mondays")
    await call_tool(client, "update_knowledge", kb_id=entry["id"], content="Closed on Sundays")
    await call_tool(client, "read_knowledge", kb_id=entry["id"])
    await call_tool(client, "delete_knowledge", kb_id=entry["id"])


async def test_statements_of_json_rpc(library: Library) -> None:
    with recorded_parameters() as statements:
        async with serve_in_process(library) as service:
            client = await service.client_with_key(permissions=OPERATOR)
            entry = (await call_method(client, "memory_add", ["周一休息", "营业时间"]))["result"]
            (hit,) = (await call_method(client, "memory_query", ["周一"]))["result"]["results"]
            assert hit["id"] == entry["id"]
            backup = (await call_method(client, "memory_backup", []))["result"]
            for method, params in CALLS.items():
                await call_method(client, method, params)
            name = Path(backup["backup_path"]).name
            assert "result" in await call_method(client, "memory_restore", [name])
            assert "result" in await call_method(client, "memory_read", [entry["id"]])
    assert len(statements) > 15
    assert await find_multi_shard(library.store, of_one_owner(statements)) == {}


async def test_requests_write_no_table_that_has_a_copy_on_every_node(library: Library) -> None:
    """A write to such a table is a transaction on all nodes: only what is new may cause one."""
    shared = {table.name for table in REFERENCE_TABLES}

    async def send(number: int) -> None:
        path = f"/v1/users/{user}/"
        requests: list[tuple[str, dict[str, Any]]] = [
            (f"{path}messages", {"messages": [{"role": "user", "content": f"tea {number}"}]}),
            ("/v1/messages/lexical_search", {"user_id": user, "query_text": "tea"}),
            ("/v1/memories", {"user_id": user, "messages": f"I have {number} cats."}),
            ("/v1/memories/search", {"user_id": user, "query": "cats"}),
            (f"{path}recall", {"query": "How many cats do I have?"}),
            (f"{path}chat", {"message": "How many cats do I have?", "session_id": "s"}),
        ]
        for target, body in requests:
            assert (await client.post(target, json=body)).status_code == 200, target

    async with serve_in_process(library) as service:
        client = await service.client_with_key()
        user = "ann"
        with recorded_statements() as first:
            await send(1)
        # The new agent, and the model of the first vector of the database.
        assert _written_tables(first) & shared == {"agents", "memrecall_meta"}
        with recorded_statements() as later:
            await send(2)
            user = "ben"  # a new user of a known agent
            await send(3)
            await library.vectors.settle()
    assert _written_tables(later) >= {"users", "sessions", "messages", "memories", "traces"}
    assert _written_tables(later) & shared == set()


def _written_tables(statements: Iterable[str]) -> set[str]:
    """Return the tables that statements change, or whose rows they lock."""
    written = re.compile(
        r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)|FROM (\w+).* FOR [A-Z ]+$", re.S
    )
    found = (written.search(statement.strip()) for statement in statements)
    return {match[1] or match[2] for match in found if match}


async def test_statements_of_messages_and_traces(library: Library) -> None:
    scopes = [Scope(f"user{number}", session_id="s") for number in range(8)]
    said = [
        NewMessage(role=Role.USER, content=f"tea {number}", message_id=f"m{number}")
        for number in range(12)
    ]
    assert library.embedder is not None
    with recorded_parameters() as statements:
        await asyncio.gather(*(library.add_messages(scope, said) for scope in scopes))
        await library.vectors.settle()
        for scope in scopes[:2]:
            timeline = library.store.timeline(scope)
            page = await timeline.page(page_size=5)
            await timeline.page(page_size=5, cursor=page.next_cursor)
            await timeline.neighbors("m5", before=2, after=2)
            await timeline.thread("m5", session_id="s", limit=5)
            await library.store.vectors(library.embedder.model).pending(scope.user_id, 10)
            await library.store.count(scope.user_id)
            await library.store.owners.list_sessions(scope.user_id)
            await library.store.owners.erase_session(scope.user_id, "s")
    assert await find_multi_shard(library.store, of_one_owner(statements)) == {}
