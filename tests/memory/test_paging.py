"""Rows that are deleted between two pages make no list skip or repeat any other row."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Permission, Scope
from memrecall.search import LexicalQuery
from memrecall.store import NewKnowledge, NewRelation, NewTrace, ScopedMessage
from memrecall.types import NewMemory, NewMessage, Origin, Role

Page = tuple[list[str], Any]  # the keys, and the cursor of the next page
ROWS = 7
NOON = datetime(2026, 1, 26, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Listing:
    """A list of rows in pages: how to fill it, to read a page and to delete one row."""

    fill: Callable[[Sequence[str]], Awaitable[object]]
    page: Callable[[int, Any], Awaitable[Page]]
    delete: Callable[[str], Awaitable[object]]


class Listings:
    """The listings of one example, which has users and an agent of its own."""

    def __init__(self, library: Library, example: int) -> None:
        self.library, self.store = library, library.store
        self.prefix = f"e{example}-"
        permissions = frozenset({Permission.KNOWLEDGE})
        self.scope = Scope(f"{self.prefix}user", f"{self.prefix}agent", permissions=permissions)
        self.memory = AsyncMemory(library=library, agent_id=self.scope.agent_id)

    def in_session(self, name: str) -> Scope:
        return Scope(self.scope.user_id, self.scope.agent_id, name)

    async def erase_session(self, name: str) -> None:
        await self.store.owners.erase_session(self.scope.user_id, name)

    async def delete_message(self, key: str) -> None:
        await self.library.purge_message(self.scope, key)

    async def write_messages(self, keys: Sequence[str]) -> None:
        # One session a message; few times and scores, so that many are equal.
        entries = []
        for position, key in enumerate(keys):
            ts, content = NOON + timedelta(minutes=position // 3), "tea " * (position % 2 + 1)
            message = NewMessage(message_id=key, ts=ts, role=Role.USER, content=content)
            entries.append(ScopedMessage(self.in_session(key), message))
        await self.library.add_entries(entries)

    def messages(self) -> Listing:
        async def page(size: int, cursor: Any) -> Page:
            found = await self.store.timeline(self.scope).page(page_size=size, cursor=cursor)
            return [message.message_id for message in found.items], found.next_cursor

        return Listing(self.write_messages, page, self.delete_message)

    def found_messages(self) -> Listing:
        async def page(size: int, cursor: Any) -> Page:
            query = LexicalQuery("tea", page_size=size, cursor=cursor)
            found = await self.library.find_messages(self.scope, query)
            return [hit.message.message_id for hit in found.items], found.next_cursor

        return Listing(self.write_messages, page, self.delete_message)

    def sessions(self) -> Listing:
        async def page(size: int, cursor: Any) -> Page:
            owners = self.store.owners
            found = await owners.list_sessions(self.scope.user_id, cursor or "", size)
            return [str(item["session_id"]) for item in found.items], found.next_after

        return Listing(self.write_messages, page, self.erase_session)

    async def write_memories(self, keys: Sequence[str]) -> None:
        memories = [NewMemory(content=f"note {key}", memory_key=key) for key in keys]
        await self.library.add_memories(self.scope, memories, origin=Origin.USER, actor="test")

    def memories(self) -> Listing:
        memory = self.memory.bind(user_id=self.scope.user_id)

        async def page(size: int, cursor: Any) -> Page:
            found = await memory.get_all(limit=size, cursor=cursor)
            return [item["id"] for item in found["results"]], found["next_cursor"]

        return Listing(self.write_memories, page, memory.purge)

    def memories_of_users(self) -> Listing:
        owners = {}

        async def fill(keys: Sequence[str]) -> None:
            for position, key in enumerate(keys):
                owners[key] = f"{self.prefix}{position // 3}"
                memory = NewMemory(content=f"note {key}", memory_key=key)
                scope = Scope(owners[key], self.scope.agent_id)
                await self.library.add_memories(scope, [memory], origin=Origin.USER, actor="test")

        async def page(size: int, cursor: Any) -> Page:
            found = await self.memory.get_all(limit=size, cursor=cursor)
            return [item["id"] for item in found["results"]], found["next_cursor"]

        async def delete(key: str) -> None:
            is_first = key == next(name for name in owners if owners[name] == owners[key])
            if is_first:
                await self.store.owners.erase_user(owners[key])
            else:
                await self.memory.purge(key, user_id=owners[key])

        return Listing(fill, page, delete)

    def users(self) -> Listing:
        async def fill(keys: Sequence[str]) -> None:
            for key in keys:
                await self.store.ensure_user(Scope(key, self.scope.agent_id))

        async def page(size: int, cursor: Any) -> Page:
            found = await self.store.owners.list_users(self.scope.agent_id, cursor or "", size)
            return [str(item["user_id"]) for item in found.items], found.next_after

        return Listing(fill, page, self.store.owners.erase_user)

    def entities(self) -> Listing:
        async def fill(keys: Sequence[str]) -> None:
            await self.write_messages(keys)
            for key in keys:
                await self.store.graph(self.in_session(key)).add(
                    {}, [NewRelation(key, "knows", key)]
                )

        async def page(size: int, cursor: Any) -> Page:
            memory = self.memory.bind(user_id=self.scope.user_id)
            found = await memory.graph(limit=size, cursor=cursor)
            return [entity["name"] for entity in found["entities"]], found["next_cursor"]

        return Listing(fill, page, self.erase_session)

    def traces(self) -> Listing:
        traces = self.store.traces(self.scope)
        times = {}

        async def fill(keys: Sequence[str]) -> None:
            await self.store.ensure_user(self.scope)
            for position, key in enumerate(keys):
                times[key] = NOON + timedelta(days=position)
                trace = NewTrace(
                    **dict.fromkeys(("iterations", "model_calls", "tool_calls", "seconds"), 0),
                    query=key,
                    stop_reason="handoff",
                    confidence=0.5,
                    abstained=False,
                    body={},
                    trace_id=key,
                    created_at=times[key],
                )
                await traces.add(trace, 36_500)

        async def page(size: int, cursor: Any) -> Page:
            found = await traces.page(size, cursor)
            return [trace.trace_id for trace in found.items], found.next_cursor

        async def delete(key: str) -> None:
            await self.store.owners.purge_traces(times[key] + timedelta(hours=1))

        return Listing(fill, page, delete)

    def knowledge(self) -> Listing:
        knowledge = self.store.knowledge(self.scope)

        async def fill(keys: Sequence[str]) -> None:
            for key in keys:
                await knowledge.add(NewKnowledge(key, key=key))

        async def page(size: int, cursor: Any) -> Page:
            keys = [entry.knowledge_key for entry in await knowledge.page(cursor or "", size)]
            return keys, keys[-1] if keys else None

        return Listing(fill, page, knowledge.delete)


NAMES = (
    *("messages", "found_messages", "sessions", "memories", "memories_of_users"),
    *("users", "entities", "traces", "knowledge"),
)


@pytest.fixture
def examples() -> list[int]:
    """The numbers of the examples so far."""
    return []


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.integers(1, 4),
    deletions=st.lists(st.lists(st.integers(0, ROWS - 1), max_size=3), min_size=1, max_size=4),
)
async def test_deleting_between_pages_skips_and_repeats_no_row(
    name: str, library: Library, examples: list[int], size: int, deletions: list[list[int]]
) -> None:
    examples.append(len(examples))
    listings = Listings(library, len(examples))
    listing: Listing = getattr(listings, name)()
    # The order of the keys differs from that of writing.
    keys = [f"{listings.prefix}k{position * 3 % ROWS}" for position in range(ROWS)]
    await listing.fill(keys)
    present = set(keys)

    pages: list[str] = []
    steps = iter(deletions)
    cursor = None
    while True:
        page, cursor = await listing.page(size, cursor)
        assert len(page) <= size
        assert set(page) <= present  # nothing that is deleted is listed
        pages += page
        if cursor is None:
            break
        doomed = {keys[position] for position in next(steps, ())}
        for key in keys:
            if key in doomed & present:
                await listing.delete(key)
                # It may have deleted others too.
                present = set((await listing.page(100, None))[0])
        assert not present & doomed

    assert len(pages) == len(set(pages))
    assert present <= set(pages) <= set(keys)
