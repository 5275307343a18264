"""Forgetting: what hides, what is erased, and what comes back."""

from collections.abc import AsyncIterator

import pytest

from memrecall.errors import InvalidArgument, NotFound
from memrecall.memory import AsyncMemory
from tests.counting import recorded_statements

from .conftest import make_settings

SAID = "I live in Lisbon and I am allergic to peanuts."


@pytest.fixture
async def memory(location: str) -> AsyncIterator[AsyncMemory]:
    """Memory with the rules of the offline client."""
    async with AsyncMemory(settings=make_settings(location)) as created:
        yield created


async def add_facts(memory: AsyncMemory, user: str = "ann") -> tuple[str, str, str]:
    """Add a message with two facts; return its id, and the memories of home and allergy."""
    added = await memory.add(SAID, user, session_id="s")
    home, allergy = (item["id"] for item in added["results"])
    return added["messages"][0], home, allergy


async def texts(memory: AsyncMemory, query: str, user: str = "ann") -> list[str]:
    results = (await memory.search(query, user, kinds="all"))["results"]
    return [item["memory"] for item in results if query in item["memory"]]


class TestSources:
    async def test_forget_hides_the_sources_until_undo(self, memory: AsyncMemory) -> None:
        message, home, _ = await add_facts(memory)
        assert (await memory.forget(home, sources=True))["messages"] == [message]
        assert await texts(memory, "Lisbon") == []
        assert await memory.get(message, user_id="ann") is None
        await memory.undo(home)
        assert sorted(await texts(memory, "Lisbon")) == [SAID, "User lives in Lisbon."]

    async def test_message_stays_hidden_while_another_deletion_hides_it(
        self, memory: AsyncMemory
    ) -> None:
        message, home, allergy = await add_facts(memory)
        await memory.forget(home, sources=True)
        await memory.forget(allergy, sources=True)
        await memory.undo(home)
        assert await memory.get(message, user_id="ann") is None
        await memory.undo(allergy)
        assert await memory.get(message, user_id="ann") is not None

    async def test_hidden_message_that_is_sent_again_stays_hidden(
        self, memory: AsyncMemory
    ) -> None:
        sent = {"id": "m1", "role": "user", "content": SAID}
        home = (await memory.add(sent, "ann"))["results"][0]["id"]
        await memory.forget(home, sources=True)
        await memory.add(sent, "ann", infer=False)
        assert await memory.get("m1", user_id="ann") is None

    async def test_other_memories_of_an_erased_message_stay(self, memory: AsyncMemory) -> None:
        _, home, allergy = await add_facts(memory)
        await memory.purge(home, sources=True)
        kept = await memory.get(allergy)
        assert kept is not None
        assert kept["source_message_ids"] == []
        (relation,) = (await memory.graph("peanuts", "ann"))["relations"]
        assert relation["source_message_ids"] == []
        await memory.forget(allergy)
        assert (await memory.graph("peanuts", "ann"))["relations"] == []


class TestDeleteMessage:
    async def test_memories_derived_from_it_alone_are_erased(self, memory: AsyncMemory) -> None:
        message, home, allergy = await add_facts(memory)
        deleted = await memory.delete_message(message, user_id="ann")
        assert (deleted["deleted"], sorted(deleted["memories"])) == (1, sorted([home, allergy]))
        assert await texts(memory, "Lisbon") == []
        assert (await memory.get_all("ann", deleted=True))["results"] == []

    async def test_written_memories_lose_the_source_only(self, memory: AsyncMemory) -> None:
        message, *_ = await add_facts(memory)
        library = (await memory._open()).library
        from memrecall.scope import Scope
        from memrecall.types import NewMemory, Origin

        written = NewMemory(memory_key="own", content="my note", source_message_ids=(message,))
        await library.add_memories(Scope("ann"), [written], origin=Origin.USER, actor="ann")
        await memory.delete_message(message, user_id="ann")
        kept = await memory.get("own", user_id="ann")
        assert kept is not None
        assert kept["source_message_ids"] == []

    async def test_it_is_idempotent_and_sending_again_stores_nothing(
        self, memory: AsyncMemory
    ) -> None:
        sent = {"id": "m1", "role": "user", "content": SAID}
        await memory.add(sent, "ann", infer=False)
        assert (await memory.delete_message("m1", user_id="ann"))["deleted"] == 1
        assert (await memory.delete_message("m1", user_id="ann"))["deleted"] == 0
        assert (await memory.add(sent, "ann", infer=False))["stored"] == 0
        assert await texts(memory, "Lisbon") == []

    async def test_messages_of_others_are_not_found(self, memory: AsyncMemory) -> None:
        message, *_ = await add_facts(memory)
        await memory.add("Hello.", "ben")
        for attempt in ({"user_id": "ben"}, {"user_id": "nobody"}):
            with pytest.raises(NotFound):
                await memory.delete_message(message, **attempt)
        with pytest.raises(NotFound):
            await memory.bind(user_id="ann", agent_id="other").delete_message(message)
        with pytest.raises(InvalidArgument, match="user_id"):
            await memory.delete_message(message)
        assert await memory.get(message, user_id="ann") is not None

    async def test_its_cost_does_not_grow_with_other_messages(self, memory: AsyncMemory) -> None:
        """No statement per message, and the index reads only the change."""
        counts = []
        library = (await memory._open()).library
        for size in (10, 400):
            user = f"user {size}"
            message, *_ = await add_facts(memory, user)
            lines = [f"Line {number} about tea." for number in range(size)]
            await memory.add(lines, user, infer=False)
            await memory.search("tea", user)
            slot = library.cache._slots[user]
            assert slot.columns is not None
            rows, columns = slot.columns.rows, slot.columns
            with recorded_statements() as statements:
                await memory.delete_message(message, user_id=user)
                assert await texts(memory, "Lisbon", user) == []
            counts.append(len(statements))
            assert slot.columns is columns, "the index was built again"
            assert slot.columns.rows - rows <= 2
        assert counts[0] == counts[1]
