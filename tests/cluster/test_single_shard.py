"""No statement of a user's request touches more than one shard."""

import asyncio

from memrecall.library.knowledge import KnowledgeBase
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Permission, Scope
from memrecall.store.knowledge import NewKnowledge
from memrecall.testing import say
from memrecall.types import NewMessage, Role
from tests.chat.chat_helpers import collect_turn, fill, group_chat, single_chat
from tests.cluster.plans import find_multi_shard, recorded_parameters
from tests.server.record_examples import REQUESTS, send_requests


async def test_statements_of_every_endpoint(library: Library) -> None:
    with recorded_parameters() as statements:
        answers = await send_requests(library)

    assert answers.keys() == REQUESTS.keys()
    assert len(statements) > 100
    assert await find_multi_shard(library.store, statements) == {}


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
            await memory.process("count", session_id="s", messages=True)
            await memory.sweep(dry_run=False)
            lines = [line async for line in memory.export()]
            await memory.purge(key, sources=True)
            await memory.delete_all()
            await memory.end_session(session_id="s")
            await memory.erase()
            await memory.import_(lines)
    assert len(statements) > 80
    assert await find_multi_shard(library.store, statements) == {}


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
    assert await find_multi_shard(library.store, statements) == {}


async def test_statements_of_knowledge(library: Library) -> None:
    scope = Scope("ann", "helper", None, frozenset({Permission.KNOWLEDGE}))
    with recorded_parameters() as statements:
        knowledge = KnowledgeBase(library, scope)
        await knowledge.add(NewKnowledge(content="The office is closed on Mondays."))
        await knowledge.find("When is the office closed?")
        await knowledge.search("office")
    assert await find_multi_shard(library.store, statements) == {}


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
            await library.store.vectors(library.embedder.model).pending(10, scope.user_id)
            await library.store.count(scope.user_id)
            await library.store.owners.list_sessions(scope.user_id)
            await library.store.owners.erase_session(scope.user_id, "s")
    assert await find_multi_shard(library.store, statements) == {}
