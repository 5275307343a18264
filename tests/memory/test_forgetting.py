"""Forgetting: what hides, what is erased, and what comes back."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from memrecall.errors import InvalidArgument, NotFound
from memrecall.memory import AsyncMemory
from memrecall.scope import Scope
from memrecall.types import NewMemory, Origin
from tests.cases import check_each_async
from tests.counting import recorded_statements

from ..library.documented_graphs import documented_graphs
from ..store.samples import read_tables
from .conftest import get_item, make_settings

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
    """Return the texts that contain a word, of memories and of messages."""
    shown: list[str] = []
    for item in (await memory.search(query, user))["results"]:
        shown += [item["memory"], *([item["source"]["text"]] if item["source"] else [])]
    return list(dict.fromkeys(text for text in shown if query in text))


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
        written = NewMemory(memory_key="own", content="my note", source_message_ids=(message,))
        await library.add_memories(Scope("ann"), [written], origin=Origin.USER, actor="ann")
        await memory.delete_message(message, user_id="ann")
        assert (await get_item(memory, "own", user_id="ann"))["source_message_ids"] == []

    async def test_it_is_idempotent_and_sending_again_stores_nothing(
        self, memory: AsyncMemory
    ) -> None:
        sent = {"id": "m1", "role": "user", "content": SAID}
        await memory.add(sent, "ann", infer=False)
        assert (await memory.delete_message("m1", user_id="ann"))["deleted"] == 1
        assert (await memory.delete_message("m1", user_id="ann"))["deleted"] == 0
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
            await library.vectors.settle()
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


WORD = "Zanzibarq"
PLACES = Path(__file__).parents[2] / "docs" / "forgetting.md"
COLUMNS = (
    *("forget", "forget with sources", "purge", "purge with sources"),
    *("delete message", "erase user"),
)


def read_table() -> dict[str, dict[str, str]]:
    """Return the cells of the documentation's table by place and column."""
    section = PLACES.read_text("utf-8").partition("## What forget removes")[2]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert tuple(head[1:]) == COLUMNS
    return {row[0]: dict(zip(COLUMNS, row[1:], strict=True)) for row in rows}


@dataclass
class Story:
    """A user's message with two facts, and everything that is derived from it."""

    memory: AsyncMemory
    message: str
    home: str
    pet: str
    lesson: str
    trace: str
    folder: Path

    @classmethod
    async def write(cls, memory: AsyncMemory, folder: Path) -> "Story":
        memory = memory.bind(user_id="ann", session_id="s")
        short_term = await memory.short_term()
        said = f"I live in {WORD} and I am allergic to peanuts."
        added = await memory.add(said)
        home, pet = (item["id"] for item in added["results"])
        message = added["messages"][0]
        await memory.update(home, f"User lives in {WORD}, by the sea.")
        for number in range(5):
            await memory.add(f"The weather was fine on day {number}.")
        await memory.summarize()
        await short_term.checkpoint()
        experience = (await memory.long_term()).experience
        lesson = await experience.add(f"{WORD}!", success=True, source_message_ids=(message,))
        result = await memory.recall("Where do I live?")
        await memory.search(WORD)
        store = (await memory._open()).library.store
        evidence = [home, message]
        await store.feedback(Scope("ann")).set(
            result.trace.trace_id, is_right=True, evidence=evidence, in_evaluation=True
        )
        return cls(memory, message, home, pet, lesson, result.trace.trace_id, folder)

    async def apply(self, column: str) -> None:
        """Do what a column of the table says."""
        memory, sources = self.memory, column.endswith("sources")
        if column.startswith("forget"):
            await memory.forget(self.home, sources=sources)
        elif column.startswith("purge"):
            await memory.purge(self.home, sources=sources)
        elif column == "delete message":
            await memory.delete_message(self.message)
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
        is_visible = await self.memory.get(self.lesson) is not None
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
    async with AsyncMemory(settings=settings) as created:
        yield await Story.write(created, tmp_path)


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
    if column.startswith("forget"):
        await story.memory.undo(story.home)
        await check_each_async(list(table), check_kept)


class TestNames:
    @pytest.fixture(params=["tables", "documented"])
    async def memory(
        self, location: str, request: pytest.FixtureRequest
    ) -> AsyncIterator[AsyncMemory]:
        """Memory with its graph in each kind of database."""
        graphs = documented_graphs() if request.param == "documented" else None
        async with AsyncMemory(settings=make_settings(location), graph_db=graphs) as created:
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
