"""The calls of mem0 2: ids in filters, other names of arguments, dates and configurations."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memrecall import Memory
from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory

from ..cases import check_each, check_each_async
from ..model.openai_server import serve, text
from .conftest import get_item, make_settings


async def _texts(work: Any) -> list[str]:
    return sorted(item["memory"] for item in (await work)["results"])


class TestScopeInFilters:
    async def test_search_and_get_all(self, memory: AsyncMemory) -> None:
        """`user_id` in filters was a key of the metadata that no memory had."""
        await memory.add("likes tea", user_id="alice", run_id="r1", infer=False)
        await memory.add("likes tea too", user_id="alice", run_id="r2", infer=False)
        await memory.add("likes tea as well", user_id="bob", infer=False)
        cases: list[tuple[dict[str, Any], list[str]]] = [
            ({"filters": {"user_id": "alice"}}, ["likes tea", "likes tea too"]),
            ({"filters": {"user_id": "alice", "run_id": "r1"}}, ["likes tea"]),
            ({"filters": {"user_id": "alice"}, "run_id": "r2"}, ["likes tea too"]),
            ({"filters": {"user_id": "alice"}, "user_id": "alice", "run_id": "r1"}, ["likes tea"]),
            ({"filters": {"AND": [{"user_id": "bob"}]}}, ["likes tea as well"]),
            ({"filters": {"user_id": "alice", "run_id": ["r1", "r3"]}}, ["likes tea"]),
            ({"filters": {"user_id": "alice", "run_id": "*"}}, ["likes tea", "likes tea too"]),
        ]

        async def check(case: tuple[dict[str, Any], list[str]]) -> None:
            arguments, expected = case
            assert await _texts(memory.get_all(**arguments)) == expected
            assert await _texts(memory.search("tea", top_k=5, **arguments)) == expected

        await check_each_async(cases, check)

    async def test_ids_that_contradict_are_rejected(self, memory: AsyncMemory) -> None:
        await memory.add("likes tea", user_id="alice", infer=False)
        cases: list[dict[str, Any]] = [
            {"user_id": "alice", "filters": {"user_id": "bob"}},
            {"run_id": "r1", "filters": {"user_id": "alice", "session_id": "r2"}},
            {"filters": {"user_id": "alice", "OR": [{"user_id": "bob"}]}},
            {"filters": {"user_id": ["alice", "bob"]}},
            {"filters": {"user_id": "*"}},
            {"user_id": "alice", "limit": 3, "top_k": 4},
        ]

        async def check(arguments: dict[str, Any]) -> None:
            with pytest.raises(InvalidArgument):
                await memory.search("tea", **arguments)
            with pytest.raises(InvalidArgument):
                await memory.get_all(**arguments)

        await check_each_async(cases, check)

    async def test_filters_cannot_leave_a_binding(self, memory: AsyncMemory) -> None:
        await memory.add("likes tea", user_id="bob", infer=False)
        bound = memory.bind(user_id="alice", agent_id="travel")
        await bound.add("likes coffee", infer=False)

        async def check(filters: dict[str, Any]) -> None:
            with pytest.raises(InvalidArgument, match="bound"):
                await bound.search("tea", filters=filters)
            with pytest.raises(InvalidArgument, match="bound"):
                await bound.get_all(filters=filters)
            with pytest.raises(InvalidArgument, match="bound"):
                await bound.delete_all(filters=filters)

        cases: list[dict[str, Any]] = [
            {"user_id": "bob"}, {"AND": [{"user_id": "bob"}]}, {"agent_id": "other"},
        ]  # fmt: skip
        await check_each_async(cases, check)
        assert await _texts(bound.get_all(filters={"user_id": "alice"})) == ["likes coffee"]


class TestReadsWithoutUser:
    async def test_agent_or_run_is_that_of_every_user(self, memory: AsyncMemory) -> None:
        """Such a read returned only what the user `default` had."""
        for user in ("alice", "bob", None):
            await memory.add(f"of {user}", user_id=user, agent_id="travel", run_id="r", infer=False)
        await memory.add("other", user_id="bob", agent_id="cook", run_id="s", infer=False)
        everyone = ["of None", "of alice", "of bob"]

        assert await _texts(memory.get_all(agent_id="travel")) == everyone
        assert await _texts(memory.get_all(filters={"run_id": "r"})) == everyone
        assert await _texts(memory.get_all(run_id="r", kinds="messages")) == everyone
        assert await _texts(memory.bind(agent_id="cook").get_all()) == ["other"]

        texts, cursor = [], None
        for _ in range(4):
            page = await memory.get_all(agent_id="travel", limit=1, cursor=cursor)
            texts += [item["memory"] for item in page["results"]]
            cursor = page["next_cursor"]
        assert (sorted(texts), cursor) == (everyone, None)
        for wrong in ("x", "[]", '["bob"]', '[1, ""]'):
            with pytest.raises(InvalidArgument, match="cursor"):
                await memory.get_all(agent_id="travel", cursor=wrong)

    async def test_search_needs_a_user(self, memory: AsyncMemory) -> None:
        await memory.add("likes tea", agent_id="travel", infer=False)
        with pytest.raises(InvalidArgument, match="default"):
            await memory.search("tea", agent_id="travel")
        assert await _texts(memory.search("tea", user_id="default")) == ["likes tea"]


class TestFilters:
    async def test_wildcard_parts_and_connectives(self, memory: AsyncMemory) -> None:
        """`{"k": "*"}` found nothing, and `contains` was an unknown operator."""
        rows: list[tuple[str, dict[str, Any]]] = [
            ("a", {"topic": "Green Tea 绿茶", "n": 3}),
            ("b", {"topic": "100% coffee_1", "n": 5}),
            ("c", {"topic": None}),
            ("d", {"other": "ÉCLAIR"}),
        ]
        for line, metadata in rows:
            await memory.add(line, user_id="ann", metadata=metadata, infer=False)
        cases: list[tuple[Mapping[str, Any], str]] = [
            ({"topic": "*"}, "ab"),
            ({"metadata.topic": "*"}, "ab"),
            ({"NOT": [{"topic": "*"}]}, "cd"),
            ({"topic": {"contains": "Tea"}}, "a"),
            ({"topic": {"contains": "tea"}}, ""),
            ({"topic": {"icontains": "tEA"}}, "a"),
            ({"topic": {"contains": "绿"}}, "a"),
            ({"topic": {"icontains": "绿茶"}}, "a"),
            ({"topic": {"contains": "0%"}}, "b"),
            ({"topic": {"contains": "_"}}, "b"),
            ({"other": {"icontains": "Éclair"}}, "d"),
            ({"memory": {"contains": "b"}}, "b"),
            ({"speaker": {"contains": "b"}}, ""),
            ({"n": {"contains": "3"}}, ""),
            ({"OR": [{"n": 3}, {"topic": {"icontains": "COFFEE"}}]}, "ab"),
            ({"AND": [{"topic": "*"}, {"NOT": {"n": {"gt": 3}}}]}, "a"),
        ]

        async def check(case: tuple[Mapping[str, Any], str]) -> None:
            assert await _texts(memory.get_all("ann", filters=case[0])) == list(case[1])

        await check_each_async(cases, check)

    async def test_parts_of_what_is_no_text_are_rejected(self, memory: AsyncMemory) -> None:
        async def check(filters: dict[str, Any]) -> None:
            with pytest.raises(InvalidArgument, match="contains"):
                await memory.get_all("ann", filters=filters)

        cases = [
            ("k", 3),
            ("k", None),
            ("k", ""),
            ("k", ["a"]),
            ("created_at", "2026"),
            ("pinned", "t"),
        ]
        await check_each_async([{name: {"contains": value}} for name, value in cases], check)


class TestDates:
    async def test_expiration_date(self, memory: AsyncMemory) -> None:
        today = datetime.now(UTC).date()
        yesterday = today - timedelta(days=1)
        await memory.add("tea today", user_id="ann", expiration_date=today, infer=False)
        added = await memory.add(
            "tea yesterday", user_id="ann", expiration_date=str(yesterday), infer=False
        )
        await memory.add("tea always", user_id="ann", infer=False)
        valid = ["tea always", "tea today"]
        everything = [*valid, "tea yesterday"]

        assert await _texts(memory.get_all("ann")) == valid
        assert await _texts(memory.search("tea", "ann", kinds="memory")) == valid
        assert await _texts(memory.get_all("ann", show_expired=True)) == everything
        assert await _texts(memory.search("tea", "ann", show_expired=True)) == everything
        filters = {"user_id": "ann", "memory": {"contains": "day"}}
        expired = memory.search("tea", filters=filters, show_expired=True, kinds="memory")
        assert await _texts(expired) == ["tea today", "tea yesterday"]
        key = added["results"][0]["id"]
        assert (await get_item(memory, key))["expiration_date"] == str(yesterday)
        await memory.update(key, expiration_date=None)
        assert await _texts(memory.search("tea", "ann")) == everything
        for wrong in ("tomorrow", 5, "2026-13-01"):
            with pytest.raises(InvalidArgument, match="expiration_date"):
                await memory.add("tea", user_id="ann", expiration_date=wrong)  # type: ignore[arg-type]

    async def test_superseded_memories_are_not_expired(self, memory: AsyncMemory) -> None:
        await memory.add("home: Paris.", user_id="ann")
        await memory.add("home: Rome.", user_id="ann")
        (current,) = await _texts(memory.get_all("ann"))
        assert "Rome" in current
        assert await _texts(memory.get_all("ann", show_expired=True)) == [current]
        results = memory.search("home", "ann", show_expired=True, kinds="memory")
        assert await _texts(results) == [current]

    async def test_timestamp_is_when_it_was_said(self, memory: AsyncMemory) -> None:
        said = datetime(2024, 5, 6, 12, tzinfo=UTC)
        earlier = {"role": "user", "content": "with its own time", "ts": "2023-01-01T00:00:00Z"}

        async def check(value: Any) -> None:
            user = f"u{cases.index(value)}"
            await memory.add(["likes tea", earlier], user_id=user, timestamp=value, infer=False)
            listing = await memory.get_all(user, kinds="messages")
            times = {item["memory"]: item["created_at"] for item in listing["results"]}
            assert times["likes tea"] == "2024-05-06T12:00:00Z"
            assert times["with its own time"] == "2023-01-01T00:00:00Z"

        cases = [said.timestamp(), int(said.timestamp()), said, said.isoformat(), "2024-05-06",
                 date(2024, 5, 6)]  # fmt: skip
        await check_each_async(cases, check)
        for wrong in (1715000000000, "then", True):
            with pytest.raises(InvalidArgument, match="timestamp"):
                await memory.add("tea", user_id="ann", timestamp=wrong)

    async def test_reference_date_is_today_of_the_question(self, memory: AsyncMemory) -> None:
        for day in ("2024-05-04", "2024-05-05", "2024-05-06"):
            await memory.add(f"walked by the lake on {day[-1]}", user_id="ann", timestamp=day,
                             infer=False)  # fmt: skip
        for reference, expected in (("2024-05-06", "on 5"), (1714910400, "on 4")):
            page = await memory.search("yesterday lake", "ann", reference_date=reference)
            assert page["results"][0]["memory"].endswith(expected)
            assert len(page["results"]) == 3  # unlike with as_of, later ones are found


class TestResults:
    async def test_hash_author_and_explanation(self, memory: AsyncMemory) -> None:
        message = {"role": "assistant", "name": "Ben", "content": "likes tea"}
        added = await memory.add(message, user_id="ann", infer=False)
        assert added["results"][0].items() >= {"actor_id": "Ben", "role": "assistant"}.items()
        page = await memory.search("tea", "ann", explain=True, threshold=0.1)
        (item,) = page["results"]
        expected = {"hash": "333eb7a1a291340c4a5e076606a7774e", "actor_id": "Ben"}
        assert item.items() >= {**expected, "role": "assistant"}.items()
        details = item["score_details"]
        assert (details["final_score"], details["threshold"]) == (item["score"], 0.1)
        assert details["lexical"] > 0
        assert "score_details" not in (await memory.search("tea", "ann"))["results"][0]

    async def test_update_merges_metadata(self, memory: AsyncMemory) -> None:
        """The new metadata replaced the old."""
        added = await memory.add("tea", user_id="ann", metadata={"a": 1, "b": 2}, infer=False)
        key = added["results"][0]["id"]
        await memory.update(key, "green tea", {"b": 3, "c": None})
        item = await get_item(memory, key)
        assert item["memory"] == "green tea"
        assert item["metadata"] == {"a": 1, "b": 3, "c": None, "role": "user"}
        await memory.undo(key)
        item = await get_item(memory, key)
        assert item["metadata"] == {"a": 1, "b": 2, "role": "user"}

    async def test_procedural_memory_is_one_summary(self, memory: AsyncMemory) -> None:
        steps = ["opened the shop page", "put tea into the basket", "paid by card"]
        added = await memory.add(
            [{"role": "assistant", "content": step} for step in steps],
            user_id="ann",
            agent_id="shopper",
            memory_type="procedural_memory",
        )
        (result,) = added["results"]
        item = await get_item(memory, result["id"])
        assert item["memory_type"] == "procedural_memory"
        assert len(item["source_message_ids"]) == 3
        assert item["memory"] == "sum(opened the s+put tea into+paid by card)"

    async def test_procedure_tells_what_the_assistant_did(self, location: str) -> None:
        turns = [
            {"role": "user", "content": "Open the site."},
            {"role": "assistant", "content": "Clicked login, filled in the form."},
        ]
        async with AsyncMemory(settings=make_settings(location), user_id="ann") as memory:
            added = await memory.add(turns, memory_type="procedural_memory", session_id="s1")
            assert added["results"][0]["memory"].endswith("login, filled in the form.")
            key = (await memory.end_session(session_id="s1"))["experience"]
            assert "Clicked login" in (await get_item(memory, key))["memory"]


async def test_reset_erases_all_users(memory: AsyncMemory) -> None:
    await memory.add("tea", user_id="ann", infer=False)
    await memory.add("tea", agent_id="travel", infer=False)
    with pytest.raises(InvalidArgument, match="bound"):
        await memory.bind(agent_id="travel").reset()
    await memory.reset()
    assert await _texts(memory.get_all("ann", show_expired=True, superseded=True)) == []
    assert await _texts(memory.get_all(agent_id="travel")) == []


class TestFromConfig:
    @pytest.mark.concurrent
    @pytest.mark.parametrize("make", [Memory.from_config, lambda config: Memory(config=config)])
    def test_stores_where_mem0_would(
        self, tmp_path: Path, make: Callable[[dict[str, Any]], Memory]
    ) -> None:
        config = {
            "version": "v1.1",
            "vector_store": {"provider": "qdrant", "config": {"path": str(tmp_path / "q")}},
            "embedder": {"provider": "openai", "config": {"model": "e", "api_key": "k"}},
            "history_db_path": str(tmp_path / "history.db"),
            "custom_instructions": "only drinks",
        }
        with make(config) as memory:
            shared = memory._inner._shared
            assert shared.prompt == "only drinks"
            assert shared.settings.db == str(tmp_path / "q" / "memrecall.db")
            assert shared.components.embedder is not None
            assert shared.components.embedder.model == "openai:e"

    @pytest.mark.concurrent
    def test_model_of_the_configuration_summarises(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MEMRECALL_EMBEDDER", "hash")
        with serve() as server:
            summary = {"summary": "先打开商店，再付款。"}
            server.play(text(json.dumps(summary)), *[text("{}")] * 9)
            values = {"model": "m", "openai_base_url": server.url, "api_key": "sk-1"}
            config = {
                "llm": {"provider": "openai", "config": values},
                "vector_store": {"provider": "faiss", "config": {"path": str(tmp_path)}},
            }
            with Memory.from_config(config) as memory:
                steps = [{"role": "assistant", "content": step} for step in ("打开商店", "付款")]
                added = memory.add(steps, user_id="ann", memory_type="procedural_memory")
                listing = memory.get_all(
                    filters={"memory_type": "procedural_memory"}, user_id="ann"
                )
        assert [item["memory"] for item in added["results"]] == ["先打开商店，再付款。"]
        assert [item["memory"] for item in listing["results"]] == ["先打开商店，再付款。"]
        assert "付款" in str(server.requests[0])

    def test_models_and_databases(self) -> None:
        llm = {"provider": "ollama", "config": {"model": "q", "ollama_base_url": "http://h:1"}}
        login = {"user": "a", "password": "p/", "host": "db", "port": 1, "dbname": "m"}
        store = {"provider": "pgvector", "config": login}
        config = {"llm": llm, "vector_store": store}
        settings = AsyncMemory.from_config(config)._shared.settings
        assert (settings.model, settings.base_url) == ("q", "http://h:1/v1")
        assert settings.db == "postgresql://a:p%2F@db:1/m"

    def test_what_has_no_counterpart_is_rejected(self) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"graph_store": {"provider": "neo4j"}}, "graph_store"),
            ({"vector_store": {"provider": "pinecone"}}, "pinecone"),
            ({"vector_store": {"provider": "qdrant", "config": {"host": "h"}}}, "qdrant"),
            ({"llm": {"provider": "gemini", "config": {"model": "g"}}}, "gemini"),
            ({"llm": {"provider": "openai"}}, "no model"),
            ({"reranker": {"provider": "cohere"}}, "has 'reranker', which memrecall does not know"),
            ({"embedder": "openai"}, "embedder"),
        ]

        def check(case: tuple[dict[str, Any], str]) -> None:
            with pytest.raises(InvalidArgument, match=case[1]):
                AsyncMemory.from_config(case[0])

        check_each(cases, check)

    def test_configuration_names_the_only_database(self) -> None:
        with pytest.raises(InvalidArgument, match="config excludes db"):
            AsyncMemory(config={}, db="other.db")
