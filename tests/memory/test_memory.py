"""Update, delete, undo, list and search, on both engines and with invalid input."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.memory import AsyncMemory
from memrecall.memory.results import StoredItem
from memrecall.scope import Permission
from tests.cases import check_each_async
from tests.extractors import SentenceExtractor

from .conftest import get_item, make_settings
from .word_extractor import WordExtractor


async def add_memory(memory: AsyncMemory, text: str, user: str = "ann", **options: Any) -> str:
    result = await memory.add(text, user, infer=False, **options)
    return str(result["results"][0]["id"])


async def search_texts(
    memory: AsyncMemory, query: str, user: str = "ann", **options: Any
) -> list[str]:
    page = await memory.search(query, user, **options)
    return [item["memory"] for item in page["results"]]


def plain_options(location: str) -> dict[str, Any]:
    return {"settings": make_settings(location), "extractor": WordExtractor()}


def open_reading(location: str, **options: Any) -> AsyncMemory:
    """Return a memory that reads plain sentences."""
    return AsyncMemory(settings=make_settings(location), extractor=SentenceExtractor(), **options)


class TestUpdate:
    async def test_update_keeps_id_and_reindexes_text(self, memory: AsyncMemory) -> None:
        key = await add_memory(memory, "likes coffee")
        assert await search_texts(memory, "coffee") == ["likes coffee"]

        update = await memory.update(key, "likes tea", metadata={"sure": True}, pinned=True)

        assert (update["id"], update["memory"], update["event"]) == (key, "likes tea", "UPDATE")
        item = await get_item(memory, key)
        assert (item["metadata"], item["pinned"]) == ({"role": "user", "sure": True}, True)
        assert (await search_texts(memory, "tea"))[0] == "likes tea"
        page = await memory.search("coffee", "ann", rerank=False, kinds="memory")
        assert all(item["memory"] != "likes coffee" for item in page["results"])

    async def test_update_of_the_text_renews_extracted_keywords(self, location: str) -> None:
        async with open_reading(location, user_id="ann") as memory:
            key = (await memory.add("I like violins."))["results"][0]["id"]
            assert "violins" in cast(StoredItem, await memory.get(key))["keywords"]
            updated = await memory.update(key, "User plays the drums.")
            assert sorted(updated["keywords"]) == ["drums", "plays"]
            await memory.undo(key)
            assert "violins" in cast(StoredItem, await memory.get(key))["keywords"]
            assert (await memory.update(key, "?", keywords=[{"keyword": "x"}]))["keywords"] == ["x"]

    async def test_history_lists_updates_and_undo_reverts_them(self, memory: AsyncMemory) -> None:
        key = await add_memory(memory, "one")
        await memory.update(key, "two")
        await memory.update(key, "three")
        await memory.delete(key)

        for expected in ("three", "two", "one"):
            await memory.undo(key)
            assert (await get_item(memory, key))["memory"] == expected
        with pytest.raises(Conflict):
            await memory.undo(key)

        history = await memory.history(key)
        assert [step["event"] for step in history] == [
            "ADD", "UPDATE", "UPDATE", "DELETE", "UNDO", "UNDO", "UNDO",
        ]  # fmt: skip
        assert [(s["old_memory"], s["new_memory"]) for s in history[:4]] == [
            (None, "one"), ("one", "two"), ("two", "three"), ("three", None),
        ]  # fmt: skip

    async def test_history_tells_what_was_said_and_what_replaced_it(self, location: str) -> None:
        async with open_reading(location, actor="editor") as memory:
            said = ("I live in Rome.", "I moved to Paris.")
            for text in said:
                message = {"role": "user", "content": text, "name": "Ann"}
                key = (await memory.add([message], "ann"))["results"][0]["id"]
            await memory.update(key, "Ann lives in Paris.")

            first, second, third = await memory.history(key)

            assert [(s["event"], s["old_memory"], s["new_memory"]) for s in (first, second)] == [
                ("ADD", None, "Ann lives in Rome."),
                ("UPDATE", "Ann lives in Rome.", "Ann moved to Paris."),
            ]
            assert [s["said"][0]["text"] for s in (first, second)] == [*said]
            assert {s["said"][0]["speaker"] for s in (first, second)} == {"Ann"}
            assert second["reason"] == "it replaces: Ann lives in Rome."
            assert (second["actor_id"], second["other_id"]) == ("extraction", key)
            assert (third["old_memory"], third["new_memory"]) == (
                "Ann moved to Paris.", "Ann lives in Paris.",
            )  # fmt: skip
            assert (third["actor_id"], third["said"], third["is_deleted"]) == ("editor", [], False)
            await memory.undo(key)
            await memory.undo(key)
            story = await memory.history(key)
            events = [(step["event"], step["undone"], step["is_deleted"]) for step in story]
            assert events == [
                ("ADD", False, False),
                ("UPDATE", True, False),
                ("UPDATE", True, False),
                ("UNDO", False, False),
                ("UNDO", False, False),
                ("UNDO", False, True),
            ]
            assert [(s["old_memory"], s["new_memory"], s["reason"]) for s in story[3:]] == [
                ("Ann lives in Paris.", "Ann moved to Paris.", "undo of UPDATE"),
                ("Ann moved to Paris.", "Ann lives in Rome.", "undo of UPDATE"),
                ("Ann moved to Paris.", None, f"undo of {first['memory_id']}"),
            ]

    async def test_history_hides_a_sensitive_successor(self, location: str) -> None:
        async with open_reading(location) as memory:
            old = (await memory.add("I live in Rome.", "ann"))["results"][0]["id"]
            await memory.add("I moved to Paris.", "ann", sensitive=True)
            assert "Paris" not in str(await memory.history(old, user_id="ann"))

    async def test_invalid_update_changes_nothing(self, memory: AsyncMemory) -> None:
        cases: list[dict[str, Any]] = [
            {},
            {"data": ""},
            {"data": "a\0"},
            {"data": 5},
            {"created_at": "2026-01-01"},
            {"user": "x"},
            {"metadata": [1]},
            {"layer": "middle"},
            {"pinned": "perhaps"},
            {"expires_at": "soon"},
        ]
        key = await add_memory(memory, "likes tea")
        before = await memory.get(key)

        async def check(fields: dict[str, Any]) -> None:
            with pytest.raises(InvalidArgument):
                await memory.update(key, **fields)

            assert await memory.get(key) == before

        await check_each_async(cases, check)

    async def test_unknown_ids(self, memory: AsyncMemory) -> None:
        await add_memory(memory, "x")
        assert await memory.get("nothing") is None
        assert await memory.get("nothing", user_id="ann") is None
        for verb in (memory.delete, memory.history, memory.undo):
            with pytest.raises(NotFound):
                await verb("nothing")
        with pytest.raises(NotFound):
            await memory.update("nothing", "x", user_id="ann")


class TestDelete:
    async def test_delete_hides_at_once_and_undo_restores(self, memory: AsyncMemory) -> None:
        key = await add_memory(memory, "likes tea")
        other = await add_memory(memory, "likes tea too")
        assert len(await search_texts(memory, "tea")) == 2

        await memory.delete(key)

        assert await memory.get(key) is None
        assert await search_texts(memory, "tea", kinds="memory") == ["likes tea too"]
        (hidden,) = (await memory.get_all("ann", deleted=True))["results"]
        assert hidden["id"] == key
        with pytest.raises(NotFound):
            await memory.delete(key)
        await memory.undo(key)
        assert sorted(await search_texts(memory, "tea")) == ["likes tea", "likes tea too"]
        assert await memory.get(other) is not None

    async def test_delete_all_dry_run_and_required_scope(self, memory: AsyncMemory) -> None:
        for number in range(3):
            await add_memory(memory, f"n{number}", metadata={"n": number}, session_id="s")
        await add_memory(memory, "elsewhere", session_id="t")
        await add_memory(memory, "theirs", "ben")

        with pytest.raises(InvalidArgument):
            await memory.delete_all()
        filters = {"n": {"gte": 1}}
        result = await memory.delete_all("ann", filters=filters, dry_run=True)
        assert (result["memories"], result["messages"], result["deleted"]) == (2, 2, 0)
        assert (await memory.delete_all("ann", filters=filters))["memories"] == 2
        kept = await memory.delete_all("ann", session_id="s", kinds="memories", sources=False)
        assert (kept["memories"], kept["messages"]) == (1, 0)
        rest = await memory.delete_all("ann")
        assert (rest["memories"], rest["messages"], rest["deleted"]) == (1, 2, 3)
        assert (await memory.delete_all("ann"))["deleted"] == 0
        assert len((await memory.get_all("ben", kinds="all"))["results"]) == 2


class TestSearch:
    async def test_filters_threshold_session_and_kinds(self, memory: AsyncMemory) -> None:
        await add_memory(memory, "green tea", metadata={"year": 2020}, session_id="s")
        await add_memory(memory, "black tea", metadata={"year": 2024}, session_id="t")

        assert await search_texts(memory, "tea", filters={"year": {"gt": 2021}}) == ["black tea"]
        assert await search_texts(memory, "tea", session_id="s") == ["green tea"]
        assert await search_texts(memory, "tea", run_id="s") == ["green tea"]
        page = await memory.search("tea", "ann", threshold=1.0)
        assert (page["total_found"], page["below_threshold"]) == (0, 2)
        assert page["message"].startswith("2 below the threshold of 1; the best scores 0.")
        assert all(item["below_threshold"] for item in page["results"])
        assert len(await search_texts(memory, "tea", kinds="message")) == 2
        assert len(await search_texts(memory, "tea", limit=1)) == 1
        for rerank in (True, False):
            page = await memory.search("black tea", "ann", rerank=rerank)
            scores = [item["score"] for item in page["results"]]
            assert page["results"][0]["memory"] == "black tea"
            assert scores == sorted(scores, reverse=True)
            assert all(0.0 <= score <= 1.0 for score in scores)

    async def test_search_and_get_all_refuse_invalid_arguments(self, memory: AsyncMemory) -> None:
        searches: list[dict[str, Any]] = [
            {"query": ""},
            {"user_id": None},
            {"limit": 0},
            {"limit": 201},
            {"threshold": 2.0},
            {"filters": {"a": {"near": 1}}},
            {"kinds": "dreams"},
        ]
        lists: list[dict[str, Any]] = [
            {"user_id": None},
            {"limit": 0},
            {"limit": 1001},
            {"cursor": "forged"},
            {"filters": {"a": {"like": 1}}},
            {"filters": {"a": 1}, "kinds": "messages"},
            {"as_of": "then"},
        ]
        for options in searches:
            with pytest.raises(InvalidArgument):
                await memory.search(**{"query": "x", "user_id": "ann", **options})
        for options in lists:
            with pytest.raises(InvalidArgument):
                await memory.get_all(**{"user_id": "ann", **options})


class TestBinding:
    async def test_bound_memory_refuses_other_users(self, location: str) -> None:
        options = plain_options(location)
        async with (
            AsyncMemory(**options) as unbound,
            AsyncMemory(**options, user_id="ann", agent_id="helper") as bound,
        ):
            other_key = await add_memory(unbound, "ben's tea", "ben")
            result = await bound.add("ann's tea", infer=False)
            key = result["results"][0]["id"]

            assert await bound.get(other_key) is None
            for verb in (bound.delete, bound.history, bound.undo):
                with pytest.raises(NotFound):
                    await verb(other_key)
            with pytest.raises(InvalidArgument, match="bound"):
                await bound.search("tea", "ben")
            with pytest.raises(InvalidArgument, match="bound"):
                await bound.get_all(agent_id="other")
            item = await get_item(unbound, key)
            assert (item["user_id"], item["agent_id"]) == ("ann", "helper")

    async def test_sensitive_memories_require_permission(self, location: str) -> None:
        options = plain_options(location)
        trusted = frozenset({Permission.SENSITIVE})
        async with (
            AsyncMemory(**options) as plain,
            AsyncMemory(**options, permissions=trusted) as permitted,
        ):
            key = await add_memory(plain, "door code 4711", sensitive=True)

            assert await plain.get(key) is None
            assert await search_texts(plain, "door code") == []
            for rerank in (True, False):
                found = await plain.search("door code", "ann", rerank=rerank)
                assert "1 sensitive memories withheld" in found["message"]
            assert await search_texts(permitted, "door code") == ["door code 4711"]
            assert (await plain.delete_all("ann"))["deleted"] == 0
            assert (await permitted.delete_all("ann"))["memories"] == 1

    async def test_ambiguous_id_requires_user(self, memory: AsyncMemory) -> None:
        from memrecall.scope import Scope
        from memrecall.types import NewMemory, Origin

        library = (await memory._open()).library
        for user in ("ann", "ben"):
            new = NewMemory(content=user, memory_key="same")
            await library.add_memories(Scope(user), [new], origin=Origin.USER, actor="t")

        with pytest.raises(Conflict, match="user_id"):
            await memory.delete("same")
        assert (await get_item(memory, "same", user_id="ben"))["memory"] == "ben"


class TestProcess:
    @pytest.mark.concurrent
    async def test_processes_run_on_add_or_demand_and_report_errors(
        self, memory: AsyncMemory
    ) -> None:
        async def slow(_: list[dict[str, Any]]) -> None:
            await asyncio.Event().wait()

        def fails(_: list[dict[str, Any]]) -> None:
            raise ValueError("no")

        memory.register("count", len)
        memory.register("fails", fails, when="add")
        memory.register("slow", slow, when="add", timeout=0.05)
        memory.register("words", lambda items: [item["memory"] for item in items], when="add")

        result = await memory.add("likes tea", "ann", infer=False)

        processes = {process["name"]: process for process in result["processes"]}
        assert processes["words"]["result"] == ["likes tea"]
        assert processes["fails"] == {"name": "fails", "ok": False, "error": "ValueError: no"}
        assert "0.05" in processes["slow"]["error"]
        assert (await memory.process("count", "ann"))["result"] == 1
        with pytest.raises(NotFound):
            await memory.process("unknown", "ann")
        for options in ({"name": "count"}, {"name": ""}, {"name": "n", "timeout": 0}):
            with pytest.raises(InvalidArgument):
                memory.register(**{"function": len, **options})  # type: ignore[arg-type]


@pytest.mark.concurrent
async def test_undo_embeds_row_while_another_job_runs(location: str) -> None:
    async with AsyncMemory(settings=make_settings(location)) as memory:
        key = await add_memory(memory, "black tea from Assam")
        other = await add_memory(memory, "plays the oboe")
        library = (await memory._open()).library
        assert library.embedder is not None
        started, released = asyncio.Event(), asyncio.Event()
        embed = library.embedder.embed

        async def blocking_embed(texts: Sequence[str]) -> Any:
            started.set()
            await released.wait()
            return await embed(texts)

        await memory.update(key, "coffee from Kenya")
        await library.vectors.settle()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(library.embedder, "embed", blocking_embed)
            await memory.update(other, "plays the cello")
            await started.wait()
            await memory.undo(key)
            released.set()
            await library.vectors.settle()

        assert await library.store.vectors(library.embedder.model).count_pending() == 0


async def test_incremental_index_matches_rebuilt_index(location: str) -> None:
    """Updates, deletions and undos reach an index that was built before them."""
    options = plain_options(location)
    async with AsyncMemory(**options) as memory:
        keys = [await add_memory(memory, f"{name} tea from {name}") for name in "abcdefgh"]
        await search_texts(memory, "tea")
        await memory.add("home: Paris.", "ann")
        await search_texts(memory, "tea")
        await memory.add("home: Rome.", "ann")
        await memory.update(keys[0], "black coffee from Kenya")
        await memory.update(keys[1], metadata={"n": 1})
        await memory.delete(keys[2])
        await search_texts(memory, "tea")
        await memory.delete(keys[3])
        await memory.undo(keys[3])
        await memory.undo(keys[0])
        incremental = {
            q: (await memory.search(q, "ann"))["results"] for q in ("tea", "Rome", "coffee")
        }

        async with AsyncMemory(**options) as other:
            rebuilt = {q: (await other.search(q, "ann"))["results"] for q in incremental}

    for query, results in incremental.items():
        assert [(r["id"], round(r["score"], 5)) for r in results] == [
            (r["id"], round(r["score"], 5)) for r in rebuilt[query]
        ]
    assert len(incremental["tea"]) >= 7


async def test_arguments_of_the_wrong_type_are_typed_errors(memory: AsyncMemory) -> None:
    wrong: Any = "x"
    number: Any = 5
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "policy": lambda: memory.sweep(wrong, user_id="ann"),
        "now": lambda: memory.sweep(user_id="ann", now=wrong),
        "policy of a schedule": lambda: memory.schedule_sweeps(60, wrong, user_id="ann"),
        "interval": lambda: memory.schedule_sweeps(wrong, user_id="ann"),
        "entity": lambda: memory.graph(number, "ann"),
        "cursor of entities": lambda: memory.graph(None, "ann", cursor=number),
        "cursor": lambda: memory.get_all("ann", cursor=number),
        "text as metadata": lambda: memory.add("I like tea.", "ann", metadata=wrong),
        "number as metadata": lambda: memory.add("I like tea.", "ann", metadata=number),
    }

    async def check(name: str) -> None:
        with pytest.raises(InvalidArgument):
            await calls[name]()

    await check_each_async(calls, check)
    assert (await memory.get_all("ann", kinds="messages"))["results"] == []
