"""Forgetting: what hides, what is erased, and what comes back."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.extraction.protocol import Fact
from memrecall.memory import AsyncMemory
from memrecall.memory.results import Kinds
from memrecall.scope import Scope
from memrecall.types import NewMemory, Origin
from tests.cases import check_each_async
from tests.counting import recorded_statements

from ..library.documented_graphs import documented_graphs
from ..store.samples import read_tables
from .conftest import get_item, make_settings
from .fixed_extractor import FixedExtractor, Known

SAID = "I live in Lisbon and I am allergic to peanuts."
HOME = "User lives in Lisbon."
ALLERGY = "User is allergic to peanuts."


def facts_of(home: str, where: str) -> Known:
    """Return a home and an allergy, with the relations that say the same."""
    return Known(
        (
            Fact(home, memory_type="user_profile", field="home"),
            Fact(ALLERGY, memory_type="user_profile", field="allergy"),
        ),
        (("user", "lives_in", where), ("user", "allergic_to", "peanuts")),
    )


@pytest.fixture
async def memory(location: str) -> AsyncIterator[AsyncMemory]:
    """Memory that knows the facts of what is said here."""
    extractor = FixedExtractor({SAID: facts_of(HOME, "Lisbon")})
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as created:
        yield created


async def add_facts(memory: AsyncMemory, user: str = "ann") -> tuple[str, str, str]:
    """Add a message with two facts; return its id, and the memories of home and allergy."""
    added = await memory.add(SAID, user, session_id="s")
    home, allergy = (item["id"] for item in added["results"])
    return added["messages"][0], home, allergy


async def texts(memory: AsyncMemory, query: str, user: str = "ann") -> list[str]:
    """Return the texts that contain a word, of memories and of messages."""
    shown: list[str] = []
    for item in (await memory.search(query, user))["results"]:
        shown += [item["memory"], *([item["source"]["text"]] if item["source"] else [])]
    return list(dict.fromkeys(text for text in shown if query in text))


class TestSources:
    async def test_forget_hides_the_sources_until_undo(self, memory: AsyncMemory) -> None:
        message, home, _ = await add_facts(memory)
        assert (await memory.forget(home))["messages"] == [message]
        assert await texts(memory, "Lisbon") == []
        assert await memory.get(message, user_id="ann") is None
        await memory.undo(home)
        assert sorted(await texts(memory, "Lisbon")) == [SAID, HOME]

    async def test_forget_keeps_the_sources_if_asked(self, memory: AsyncMemory) -> None:
        message, home, _ = await add_facts(memory)
        assert (await memory.forget(home, sources=False))["messages"] == []
        assert await texts(memory, "Lisbon") == [SAID]
        purged = await memory.purge(home, sources=False)
        assert (purged["purged"], purged["messages"]) == (1, [])
        assert await memory.get(message, user_id="ann") is not None

    async def test_other_memories_of_a_hidden_message_stay(self, memory: AsyncMemory) -> None:
        _, home, allergy = await add_facts(memory)
        await memory.forget(home)
        assert (await get_item(memory, allergy))["memory"] == ALLERGY
        (hit,) = (await memory.search("peanuts", "ann"))["results"]
        assert (hit["id"], hit["source"]) == (allergy, None)
        assert len((await memory.graph("peanuts", "ann"))["relations"]) == 1
        assert (await memory.graph("Lisbon", "ann"))["relations"] == []

    async def test_message_stays_hidden_while_another_deletion_hides_it(
        self, memory: AsyncMemory
    ) -> None:
        message, home, allergy = await add_facts(memory)
        await memory.forget(home)
        await memory.forget(allergy)
        await memory.undo(home)
        assert await memory.get(message, user_id="ann") is None
        await memory.undo(allergy)
        assert await memory.get(message, user_id="ann") is not None

    async def test_hidden_message_that_is_sent_again_stays_hidden(
        self, memory: AsyncMemory
    ) -> None:
        sent = {"id": "m1", "role": "user", "content": SAID}
        added = await memory.add(sent, "ann")
        await memory.forget(added["results"][0]["id"])
        short_term = await memory.short_term("ann")
        for infer in (False, True):
            again = await memory.add(sent, "ann", infer=infer)
            assert (again["stored"], again["results"]) == (0, [])
            assert await memory.get("m1", user_id="ann") is None
        assert await texts(memory, "Lisbon") == []
        assert (await memory.graph("Lisbon", "ann"))["relations"] == []
        assert "Lisbon" not in str(short_term.items)
        await memory.undo(added["results"][0]["id"])
        assert sorted(await texts(memory, "Lisbon")) == [SAID, HOME]

    async def test_other_memories_of_an_erased_message_stay(self, memory: AsyncMemory) -> None:
        _, home, allergy = await add_facts(memory)
        await memory.purge(home)
        assert (await get_item(memory, allergy))["source_message_ids"] == []
        (relation,) = (await memory.graph("peanuts", "ann"))["relations"]
        assert relation["source_message_ids"] == []
        await memory.forget(allergy)
        assert (await memory.graph("peanuts", "ann"))["relations"] == []


async def test_summary_made_after_a_deletion_leaves_the_message_out(memory: AsyncMemory) -> None:
    _, home, _ = await add_facts(memory)
    await memory.add("The weather is fine today.", "ann", session_id="s")
    for verb in (memory.forget, memory.purge):
        await verb(home)
        summary = str(await memory.summarize("ann", session_id="s"))
        assert "Lisbon" not in summary
        assert "weather" in summary


class TestMessages:
    async def test_delete_hides_what_comes_from_it_alone_until_undo(
        self, memory: AsyncMemory
    ) -> None:
        message, home, allergy = await add_facts(memory)
        deleted = await memory.delete(message, user_id="ann")
        assert (deleted["message"], deleted["messages"]) == ("deleted", [])
        assert sorted(deleted["memories"]) == sorted([home, allergy])
        assert await texts(memory, "Lisbon") == []
        assert (await memory.graph("Lisbon", "ann"))["relations"] == []
        hidden: list[tuple[Kinds, set[str]]] = [
            ("memories", {home, allergy}),
            ("messages", {message}),
        ]
        for kinds, keys in hidden:
            listed = await memory.get_all("ann", deleted=True, kinds=kinds)
            assert {item["id"] for item in listed["results"]} == keys
        assert (await memory.undo(message, user_id="ann"))["event"] == "UNDO"
        assert sorted(await texts(memory, "Lisbon")) == [SAID, HOME]
        assert len((await memory.graph("Lisbon", "ann"))["relations"]) == 1
        with pytest.raises(Conflict, match="is not deleted"):
            await memory.undo(message, user_id="ann")

    async def test_message_of_a_deleted_memory_is_restored_with_it(
        self, memory: AsyncMemory
    ) -> None:
        message, home, _ = await add_facts(memory)
        await memory.delete(home)
        with pytest.raises(Conflict, match="hidden with a memory"):
            await memory.undo(message, user_id="ann")
        with pytest.raises(NotFound):
            await memory.delete(message, user_id="ann")
        await memory.undo(home)
        await memory.delete(message, user_id="ann")
        await memory.undo(home)  # the message itself stays deleted
        assert await memory.get(message, user_id="ann") is None
        await memory.undo(message, user_id="ann")
        assert await memory.get(message, user_id="ann") is not None

    async def test_purge_erases_what_comes_from_it_alone(self, memory: AsyncMemory) -> None:
        message, home, allergy = await add_facts(memory)
        await memory.delete(message, user_id="ann")
        purged = await memory.purge(message, user_id="ann")
        assert (purged["purged"], sorted(purged["memories"])) == (1, sorted([home, allergy]))
        assert await texts(memory, "Lisbon") == []
        assert (await memory.get_all("ann", deleted=True))["results"] == []

    async def test_written_memories_lose_the_source_only(self, memory: AsyncMemory) -> None:
        message, *_ = await add_facts(memory)
        library = (await memory._open()).library
        written = NewMemory(memory_key="own", content="my note", source_message_ids=(message,))
        await library.add_memories(Scope("ann"), [written], origin=Origin.USER, actor="ann")
        await memory.delete_message(message, user_id="ann")
        kept = await get_item(memory, "own", user_id="ann")
        assert kept["source_message_ids"] == [message]
        await memory.purge(message, user_id="ann")
        assert (await get_item(memory, "own", user_id="ann"))["source_message_ids"] == []

    async def test_relation_without_a_memory_follows_its_message(self, memory: AsyncMemory) -> None:
        extractor = (await memory._open()).extractor
        assert isinstance(extractor, FixedExtractor)
        both = Known((), (("Ann", "knows", "Ben"), ("Ann", "knew", "Eve")))
        extractor.texts = {"Ann knows Ben.": both, "Ann knew Eve.": both}
        first, second = [(await memory.add(text, "ann"))["messages"][0] for text in extractor.texts]

        async def names() -> list[str]:
            relations = (await memory.graph("Ann", "ann"))["relations"]
            return sorted(relation["destination"] for relation in relations)

        await memory.delete(first, user_id="ann")
        assert await names() == ["Ben", "Eve"]  # the other message says so too
        await memory.delete(second, user_id="ann")
        assert await names() == []
        assert (await memory.graph(None, "ann"))["entities"] == []
        await memory.undo(second, user_id="ann")
        assert await names() == ["Ben", "Eve"]

    async def test_it_is_idempotent_and_sending_again_stores_nothing(
        self, memory: AsyncMemory
    ) -> None:
        sent = {"id": "m1", "role": "user", "content": SAID}
        await memory.add(sent, "ann", infer=False)
        for verb, name in ((memory.delete_message, "deleted"), (memory.purge, "purged")):
            assert (await verb("m1", user_id="ann"))[name] == 1
            assert (await verb("m1", user_id="ann"))[name] == 0
        short_term = await memory.short_term("ann", session_id="s")
        for infer in (False, True):
            batch = [sent, {"id": f"m2{infer}", "role": "user", "content": "I own a boat."}]
            report = await memory.add(batch, "ann", session_id="s", infer=infer)
            assert (report["stored"], report["statuses"]) == (1, ["erased", "new"])
            assert report["problems"] == []
        # Nothing was derived from it either.
        assert await texts(memory, "Lisbon") == []
        assert (await memory.graph("Lisbon", "ann"))["relations"] == []
        assert "Lisbon" not in str(short_term.items)

    async def test_messages_of_others_are_not_found(self, memory: AsyncMemory) -> None:
        message, *_ = await add_facts(memory)
        await memory.add("Hello.", "ben")
        for verb in (memory.delete_message, memory.delete, memory.undo, memory.purge):
            for user in ("ben", "nobody"):
                if verb != memory.purge:  # of memories too, it may be repeated
                    with pytest.raises(NotFound):
                        await verb(message, user_id=user)
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
            await library.vectors.settle()
            await memory.search("tea", user)
            slot = library.cache._slots[user]
            assert slot.columns is not None
            rows, columns = slot.columns.rows, slot.columns
            with recorded_statements() as statements:
                await memory.delete_message(message, user_id=user)
                await memory.purge(message, user_id=user)
                assert await texts(memory, "Lisbon", user) == []
            counts.append(len(statements))
            assert slot.columns is columns, "the index was built again"
            assert slot.columns.rows - rows <= 5
        assert counts[0] == counts[1]


class TestExpiry:
    async def test_expiry_hides_the_messages_until_it_is_removed(self, memory: AsyncMemory) -> None:
        message, home, allergy = await add_facts(memory)
        await memory.update(home, expires_at="2020-01-01T00:00:00Z")
        assert await texts(memory, "Lisbon") == []
        assert await memory.get(message, user_id="ann") is None
        assert (await get_item(memory, allergy))["memory"] == ALLERGY
        shown = (await memory.search("Lisbon", "ann", show_expired=True))["results"]
        assert [(hit["id"], hit["source"]) for hit in shown if hit["id"] == home] == [(home, None)]
        await memory.update(home, expires_at="2999-01-01T00:00:00Z")
        assert sorted(await texts(memory, "Lisbon")) == [SAID, HOME]

    async def test_expiry_passes_without_a_write(self, memory: AsyncMemory) -> None:
        """Also for a summary, a relation and the caches that were filled before it."""
        message, home, _ = await add_facts(memory)

        async def read() -> list[str]:
            await memory.summarize("ann", session_id="s")
            state = await memory.state(500, "ann", session_id="s")
            relations = (await memory.graph("Lisbon", "ann"))["relations"]
            recalled = await memory.recall("Where do I live?", "ann")
            return [str(answer) for answer in (state, relations, recalled)]

        for seconds in (2, 20, 60):  # a busy machine reads slowly
            at = datetime.now(UTC) + timedelta(seconds=seconds)
            await memory.update(home, expires_at=at)
            answers = await read()
            if datetime.now(UTC) < at:
                break
            await memory.undo(home)
        assert all("Lisbon" in answer for answer in answers)
        await asyncio.sleep(max((at - datetime.now(UTC)).total_seconds(), 0) + 0.1)
        assert await texts(memory, "Lisbon") == []
        assert "Lisbon" not in str(await memory.state(500, "ann", session_id="s"))
        assert (await memory.graph("Lisbon", "ann"))["relations"] == []
        assert (await memory.graph(None, "ann"))["entities"]
        assert "Lisbon" not in str(await memory.graph(None, "ann"))
        assert "Lisbon" not in str(await memory.recall("Where do I live?", "ann"))
        assert await memory.get(message, user_id="ann") is None
        await memory.undo(home)
        assert sorted(await texts(memory, "Lisbon")) == [SAID, HOME]
        assert (await memory.graph("Lisbon", "ann"))["relations"]

    async def test_sweep_of_an_expired_memory_takes_its_messages(self, memory: AsyncMemory) -> None:
        message, home, _ = await add_facts(memory)
        await memory.update(home, expires_at="2020-01-01T00:00:00Z")
        await memory.sweep(user_id="ann", dry_run=False)
        hidden = await memory.get_all("ann", deleted=True, kinds="all")
        assert [item["id"] for item in hidden["results"]] == [home, message]
        await memory.undo(home)
        assert sorted(await texts(memory, "Lisbon")) == [SAID, HOME]

    async def test_memory_added_with_an_expiry_in_the_past(self, memory: AsyncMemory) -> None:
        await memory.add(SAID, "ann", expires_at="2020-01-01T00:00:00Z")
        assert await texts(memory, "Lisbon") == []
        exported = [line async for line in memory.export("ann")]
        await memory.erase("ann")
        await memory.import_(exported, "ben")
        assert await texts(memory, "Lisbon", "ben") == []


class TestKinds:
    async def test_delete_all_counts_memories_and_messages(self, memory: AsyncMemory) -> None:
        message, home, _ = await add_facts(memory)
        await memory.add("The weather is fine.", "ann", session_id="s")
        preview = await memory.delete_all("ann", dry_run=True)
        assert (preview["memories"], preview["messages"], preview["deleted"]) == (2, 2, 0)
        deleted = await memory.delete_all("ann")
        assert (deleted["memories"], deleted["messages"], deleted["deleted"]) == (2, 2, 4)
        assert deleted["message"] == "2 memories and 2 messages deleted"
        assert (await memory.get_all("ann", kinds="all"))["results"] == []
        for key in [item["id"] for item in (await memory.get_all("ann", deleted=True))["results"]]:
            await memory.undo(key)
        assert await memory.get(message, user_id="ann") is not None
        (left,) = (await memory.get_all("ann", deleted=True, kinds="messages"))["results"]
        await memory.undo(left["id"], user_id="ann")
        assert len((await memory.get_all("ann", kinds="all"))["results"]) == 4
        assert (await memory.delete_all("ann", session_id="other"))["found"] == 0
        assert home

    async def test_delete_all_of_one_kind(self, memory: AsyncMemory) -> None:
        message, *_ = await add_facts(memory)
        kept = await memory.delete_all("ann", kinds="memories", sources=False)
        assert (kept["memories"], kept["messages"]) == (2, 0)
        assert await memory.get(message, user_id="ann") is not None
        rest = await memory.delete_all("ann", kinds="messages")
        assert (rest["memories"], rest["messages"]) == (0, 1)

    async def test_get_and_delete_of_one_kind(self, memory: AsyncMemory) -> None:
        message, home, _ = await add_facts(memory)
        assert await memory.get(message, user_id="ann", kinds="memories") is None
        assert await memory.get(home, user_id="ann", kinds="messages") is None
        with pytest.raises(NotFound):
            await memory.delete(message, user_id="ann", kinds="memories")
        with pytest.raises(NotFound):
            await memory.delete(home, user_id="ann", kinds="messages")
        with pytest.raises(InvalidArgument, match="memories, messages or all"):
            await memory.get(home, kinds="dreams")  # type: ignore[arg-type]

    async def test_list_of_all_goes_from_memories_to_messages(self, memory: AsyncMemory) -> None:
        message, home, allergy = await add_facts(memory)
        keys: list[str] = []
        cursor = None
        while True:
            page = await memory.get_all("ann", kinds="all", limit=1, cursor=cursor)
            keys += [item["id"] for item in page["results"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert (keys[-1], sorted(keys[:-1])) == (message, sorted([home, allergy]))

    async def test_list_without_memories_says_how_many_messages_are_kept(
        self, memory: AsyncMemory
    ) -> None:
        assert "message" not in await memory.get_all("ann")
        await memory.add("The weather is fine.", "ann")
        for page in (await memory.get_all("ann"), await memory.get_all(agent_id="default")):
            assert (page["results"], page["kept_messages"]) == ([], 1)
            assert 'list them with kinds="messages"' in page["message"]

    async def test_export_of_one_kind(self, memory: AsyncMemory) -> None:
        await add_facts(memory)
        pairs: list[tuple[Kinds, str]] = [("memories", "messages"), ("messages", "memories")]
        for kinds, left_out in pairs:
            tables = {json.loads(line)["table"] async for line in memory.export("ann", kinds=kinds)}
            assert kinds in tables
            assert left_out not in tables


WORD = "Zanzibarq"
STORY = f"I live in {WORD} and I am allergic to peanuts."
PLACES = Path(__file__).parents[2] / "docs" / "forgetting.md"
COLUMNS = (
    *("delete", "delete, `sources=False`", "expiry", "purge", "purge, `sources=False`"),
    *("delete message", "purge message", "erase user"),
)


def read_table() -> dict[str, dict[str, str]]:
    """Return the cells of the documentation's table by place and column."""
    section = PLACES.read_text("utf-8").partition("## What each verb removes")[2]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert tuple(head[1:]) == COLUMNS
    return {row[0]: dict(zip(COLUMNS, row[1:], strict=True)) for row in rows}


@dataclass
class Story:
    """A user's message with two facts, and everything that is derived from it.

    It is read by a second library, which has the index and all caches from before.
    """

    writer: AsyncMemory
    memory: AsyncMemory
    message: str
    home: str
    pet: str
    lesson: str
    trace: str
    folder: Path

    @classmethod
    async def write(cls, memory: AsyncMemory, reader: AsyncMemory, folder: Path) -> "Story":
        memory = memory.bind(user_id="ann", session_id="s")
        reader = reader.bind(user_id="ann", session_id="s")
        short_term = await memory.short_term()
        added = await memory.add(STORY)
        home, pet = (item["id"] for item in added["results"])
        message = added["messages"][0]
        await memory.update(home, f"User lives in {WORD}, by the sea.")
        for number in range(5):
            await memory.add(f"The weather was fine on day {number}.")
        await memory.summarize()
        await short_term.checkpoint()
        await (await reader.short_term()).restore()
        experience = (await memory.long_term()).experience
        lesson = await experience.add(f"{WORD}!", success=True, source_message_ids=(message,))
        result = await memory.recall("Where do I live?")
        await memory.search(WORD)
        store = (await memory._open()).library.store
        evidence = [home, message]
        await store.feedback(Scope("ann")).set(
            result.trace.trace_id, is_right=True, evidence=evidence, in_evaluation=True
        )
        trace = result.trace.trace_id
        return cls(memory, reader, message, home, pet, lesson, trace, folder)

    async def apply(self, column: str) -> None:
        """Do what a column of the table says."""
        memory, sources = self.writer, not column.endswith("`sources=False`")
        if column == "expiry":
            await memory.update(self.home, expires_at="2020-01-01T00:00:00Z")
        elif column.endswith("message"):
            await (memory.delete if column.startswith("delete") else memory.purge)(self.message)
        elif column.startswith("delete"):
            await memory.delete(self.home, sources=sources)
        elif column.startswith("purge"):
            await memory.purge(self.home, sources=sources)
        else:
            await memory.bind().erase()

    async def state(self, place: str) -> str:
        """Return what became of a place: kept, hidden or erased."""
        is_visible, is_stored = await self._probes()[place](self)
        assert is_stored or not is_visible
        return "kept" if is_visible else "hidden" if is_stored else "erased"

    @classmethod
    def _probes(cls) -> dict[str, Callable[["Story"], Awaitable[tuple[bool, bool]]]]:
        probes = (
            *(cls._in_lists, cls._as_vector, cls._in_history, cls._in_profile, cls._in_graph),
            *(cls._in_summaries, cls._in_experience, cls._in_traces, cls._in_feedback),
            *(cls._as_message, cls._in_short_term, cls._as_other_memory, cls._in_files),
        )
        return dict(zip(read_table(), probes, strict=True))

    async def _rows(self, table: str, text: str) -> bool:
        """Return True if a row of a table contains a text."""
        store = (await self.memory._open()).library.store
        rows = (await read_tables(store.database, table))[table]
        return any(text in str(row) for row in rows)

    async def _in_lists(self) -> tuple[bool, bool]:
        listed = [item["id"] for item in (await self.memory.get_all("ann"))["results"]]
        found = [item["id"] for item in (await self.memory.search(WORD))["results"]]
        assert (self.home in listed) == (self.home in found)
        return self.home in listed, await self._rows("memories", self.home)

    async def _as_vector(self) -> tuple[bool, bool]:
        hits = (await self.memory.search(f"User lives in {WORD}, by the sea."))["results"]
        return self.home in [h["id"] for h in hits], await self._rows("vectors", self.home)

    async def _in_history(self) -> tuple[bool, bool]:
        try:
            entries = await self.memory.history(self.home)
        except NotFound:
            entries = []
        return WORD in str(entries), await self._rows("revisions", WORD)

    async def _in_profile(self) -> tuple[bool, bool]:
        profile = await (await self.memory.long_term()).user_info.profile()
        return WORD in str(profile), await self._rows("memories", self.home)

    async def _in_graph(self) -> tuple[bool, bool]:
        entities, near = await self.memory.graph(), await self.memory.graph(WORD)
        assert (WORD in str(entities)) == bool(near["relations"])
        return WORD in str(entities), await self._rows("entities", WORD)

    async def _in_summaries(self) -> tuple[bool, bool]:
        if await self._rows("users", "ann"):
            summaries = await self.memory.summarize()
            assert "day 1" in str(summaries)
            return WORD in str(summaries), await self._rows("summaries", WORD)
        return False, await self._rows("summaries", WORD)

    async def _in_experience(self) -> tuple[bool, bool]:
        experience = await (await self.memory.long_term()).experience.get_all()
        is_visible = self.lesson in [item["id"] for item in experience]
        return is_visible, await self._rows("memories", f"{WORD}!")

    async def _in_traces(self) -> tuple[bool, bool]:
        traces = (await self.memory._open()).library.store.traces(Scope("ann"))
        try:
            shown = await traces.get(self.trace)
        except NotFound:
            return False, await self._rows("traces", WORD)
        return WORD in str(shown.body), await self._rows("traces", WORD)

    async def _in_feedback(self) -> tuple[bool, bool]:
        store = (await self.memory._open()).library.store
        labels = await store.feedback_list.labelled(["ann"])
        return self.trace in str(labels), await self._rows("feedback", self.trace)

    async def _as_message(self) -> tuple[bool, bool]:
        found = [h["id"] for h in (await self.memory.search(WORD, kinds="message"))["results"]]
        is_visible = await self.memory.get(self.message) is not None
        assert is_visible == (self.message in found)
        return is_visible, await self._rows("messages", WORD)

    async def _in_short_term(self) -> tuple[bool, bool]:
        short_term = await self.memory.short_term()
        is_visible = WORD in str(short_term.items)
        await short_term.restore()
        assert is_visible == (WORD in str(short_term.items))
        return is_visible, await self._rows("checkpoints", WORD)

    async def _as_other_memory(self) -> tuple[bool, bool]:
        is_visible = await self.memory.get(self.pet) is not None
        return is_visible, await self._rows("memories", self.pet)

    async def _in_files(self) -> tuple[bool, bool]:
        store = (await self.memory._open()).library.store
        await store.database.compact()
        words = [WORD.encode(), WORD.lower().encode()]
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        is_stored = any(word in file.read_bytes() for file in files for word in words)
        if store.file is None:
            is_stored |= WORD.lower() in str(await read_tables(store.database)).lower()
        return is_stored, is_stored


@pytest.fixture
async def story(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Story]:
    monkeypatch.setattr("memrecall.search.index.cache._ROWS_WORTH_SAVING", 1)
    settings = replace(make_settings(location), snapshots=True, cache_dir=str(tmp_path / "cache"))
    extractor = FixedExtractor({STORY: facts_of(f"User lives in {WORD}.", WORD)})
    async with (
        AsyncMemory(settings=settings, extractor=extractor) as writer,
        AsyncMemory(settings=settings, extractor=extractor) as reader,
    ):
        yield await Story.write(writer, reader, tmp_path)


@pytest.mark.parametrize("column", COLUMNS)
async def test_each_place_is_in_the_documented_state(story: Story, column: str) -> None:
    table = read_table()

    async def check_kept(place: str) -> None:
        assert await story.state(place) == "kept"

    async def check(place: str) -> None:
        assert await story.state(place) == table[place][column]

    await check_each_async(list(table), check_kept)
    await story.apply(column)
    await check_each_async(list(table), check)
    if column.startswith("delete") or column == "expiry":
        await story.writer.undo(story.message if column.endswith("message") else story.home)
        await check_each_async(list(table), check_kept)


class TestNames:
    @pytest.fixture(params=["tables", "documented"])
    async def memory(
        self, location: str, request: pytest.FixtureRequest
    ) -> AsyncIterator[AsyncMemory]:
        """Memory with its graph in each kind of database."""
        graphs = documented_graphs() if request.param == "documented" else None
        extractor = FixedExtractor(
            {
                "我叫李明。": Known((Fact("用户的名字是李明", field="name"),), name="李明"),
                "我住在上海。": Known((), (("user", "lives_in", "上海"),)),
            }
        )
        async with AsyncMemory(
            settings=make_settings(location), graph_db=graphs, extractor=extractor
        ) as created:
            yield created

    async def test_hidden_name_finds_nobody_and_purge_removes_it(self, memory: AsyncMemory) -> None:
        (name,) = (await memory.add("我叫李明。", "ann"))["results"]
        await memory.add("我住在上海。", "ann")
        assert (await memory.graph("李明", "ann"))["relations"]
        await memory.forget(name["id"])
        assert (await memory.graph("李明", "ann"))["relations"] == []
        assert (await memory.graph("user", "ann"))["relations"]
        await memory.undo(name["id"])
        assert (await memory.graph("李明", "ann"))["relations"]
        await memory.purge(name["id"])
        assert (await memory.graph("李明", "ann"))["relations"] == []
        (relation,) = (await memory.graph("user", "ann"))["relations"]
        assert (relation["source"], relation["destination"]) == ("user", "上海")
        lines = [line async for line in memory.export("ann")]
        assert [line for line in lines if "李明" in line and '"entity_id"' in line] == []
