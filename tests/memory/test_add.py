"""Adding: messages first, then what they tell; nothing is lost, nothing is made up twice."""

import asyncio
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory
from tests.cases import check_each_async

from .conftest import settings_for
from .word_extractor import WordExtractor


async def texts(memory: AsyncMemory, user: str = "ann", **options: Any) -> list[str]:
    page = await memory.get_all(user, **options)
    return sorted(item["memory"] for item in page["results"])


async def said(memory: AsyncMemory, user: str = "ann") -> list[str]:
    page = await memory.get_all(user, messages=True)
    return [item["memory"] for item in reversed(page["results"])]


class TestForms:
    async def test_add_accepts_text_dict_and_list(self, memory: AsyncMemory) -> None:
        await memory.add("喜欢喝茶", "ann", infer=False)
        await memory.add({"role": "user", "content": "two"}, "ann", infer=False)
        turn = [{"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]
        added = await memory.add(turn, "ann", infer=False)

        assert [r["event"] for r in added["results"]] == ["ADD", "ADD"]
        assert [r["memory"] for r in added["results"]] == ["three", "four"]
        assert await texts(memory) == ["four", "three", "two", "喜欢喝茶"]
        item = await memory.get(added["results"][1]["id"])
        assert item is not None
        assert item["origin"] == "assistant"
        assert item["source_message_ids"] == [added["messages"][1]]

    async def test_add_accepts_parts_tool_messages_and_null(self, memory: AsyncMemory) -> None:
        parts = [
            {"type": "text", "text": "look at"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,xx"}},
        ]
        calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
        turn = [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": parts, "name": "Ann"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ]

        added = await memory.add(turn, "ann", infer=False)

        assert await said(memory) == ["be kind", "look at\n[image]", "42"]
        assert [r["memory"] for r in added["results"]] == ["look at\n[image]", "42"]
        tool = await memory.get(added["results"][1]["id"])
        assert tool is not None
        assert (tool["origin"], tool["metadata"]["tool_call_id"]) == ("tool", "c1")
        image = await memory.get(added["results"][0]["id"])
        assert image is not None
        assert image["speaker"] == "Ann"

    async def test_add_refuses_invalid_messages_and_stores_nothing(
        self, memory: AsyncMemory
    ) -> None:
        cases: list[Any] = [
            "",
            "   ",
            [],
            None,
            5,
            b"bytes",
            [5],
            [None],
            [{"role": "wizard", "content": "x"}],
            [{"role": "user", "content": 5}],
            [{"role": "user", "content": [5]}],
            [{"role": "user", "content": "a\0b"}],
            [{"role": "user", "content": "x", "ts": "soon"}],
            [{"role": "user", "content": "x", "metadata": "m"}],
            [{"role": "user", "content": "x", "id": "  "}],
        ]
        await memory.add("before", "ann", infer=False)

        async def check(wrong: Any) -> None:
            good = {"role": "user", "content": "good"}
            batch = [good, *wrong] if isinstance(wrong, list) and wrong else wrong

            with pytest.raises(InvalidArgument):
                await memory.add(batch, "ann")

            assert await said(memory) == ["before"]

        await check_each_async(cases, check)

    async def test_add_refuses_invalid_arguments(self, memory: AsyncMemory) -> None:
        for options in (
            {"user_id": ""},
            {"user_id": "x" * 65},
            {"user_id": "ann", "metadata": {"a": object()}},
            {"user_id": "ann", "expires_at": "later"},
            {"user_id": "ann", "session_id": "a", "run_id": "b"},
            {},
        ):
            with pytest.raises(InvalidArgument):
                await memory.add("x", **options)


class TestInference:
    async def test_infer_adds_updates_and_ends_facts(self, memory: AsyncMemory) -> None:
        first = await memory.add("home: Paris.", "ann")
        second = await memory.add("home: Rome.", "ann")
        third = await memory.add("forget home", "ann")

        (added,), (updated,), (ended,) = first["results"], second["results"], third["results"]
        assert (added["event"], added["memory"]) == ("ADD", "user's home is Paris")
        assert (updated["event"], updated["previous_id"]) == ("UPDATE", added["id"])
        assert updated["previous_memory"] == "user's home is Paris"
        assert (ended["event"], ended["id"]) == ("DELETE", updated["id"])
        assert await texts(memory) == []
        assert await texts(memory, superseded=True) == [
            "user's home is Paris",
            "user's home is Rome",
        ]
        assert await said(memory) == ["home: Paris.", "home: Rome.", "forget home"]

    async def test_superseded_memory_is_visible_only_as_of_then(self, memory: AsyncMemory) -> None:
        old = {"role": "user", "content": "home: Paris.", "ts": "2024-01-01T00:00:00Z"}
        new = {"role": "user", "content": "home: Rome.", "ts": "2025-01-01T00:00:00Z"}
        await memory.add([old], "ann")
        await memory.add([new], "ann")

        async def home(as_of: str | None = None) -> list[str]:
            found = await memory.search("where is home", "ann", as_of=as_of)
            return [item["memory"] for item in found["results"]]

        assert await home() == ["user's home is Rome"]
        assert await home("2024-06-01T00:00:00Z") == ["user's home is Paris"]
        assert await home("2023-06-01T00:00:00Z") == []
        assert await texts(memory, as_of="2024-06-01T00:00:00Z") == ["user's home is Paris"]

    async def test_undo_works_on_both_memories_of_a_supersession(self, memory: AsyncMemory) -> None:
        for which in ("id", "previous_id"):
            user = f"user-{which}"
            await memory.add("home: Paris.", user)
            (updated,) = (await memory.add("home: Rome.", user))["results"]

            await memory.undo(updated[which])

            assert await texts(memory, user) == ["user's home is Paris"]
            found = await memory.search("home", user)
            assert [item["memory"] for item in found["results"]] == ["user's home is Paris"]

    async def test_repeated_fact_changes_nothing(self, memory: AsyncMemory) -> None:
        await memory.add("home: Paris.", "ann")
        again = await memory.add("home: Paris. home: Paris.", "ann")

        assert again["results"] == []
        assert await texts(memory) == ["user's home is Paris"]

    async def test_concurrent_adds_store_one_memory(self, memory: AsyncMemory) -> None:
        await asyncio.gather(*(memory.add("home: Paris.", "ann") for _ in range(8)))
        await asyncio.gather(*(memory.add(f"k{n}: v.", "ann") for n in range(8)))

        expected = ["user's home is Paris", *(f"user's k{n} is v" for n in range(8))]
        assert await texts(memory) == sorted(expected)
        assert len(await said(memory)) == 16

    async def test_two_processes_do_not_store_the_same_fact_twice(self, location: str) -> None:
        """Two memories on one database know nothing of each other's locks."""
        settings = settings_for(location)
        async with (
            AsyncMemory(settings=settings, extractor=WordExtractor()) as one,
            AsyncMemory(settings=settings, extractor=WordExtractor()) as other,
        ):
            await asyncio.gather(
                *(memory.add("home: Paris.", "ann") for memory in (one, other) for _ in range(4))
            )

            assert await texts(one) == ["user's home is Paris"]

    async def test_facts_have_the_speaker_as_subject(self, memory: AsyncMemory) -> None:
        turn = [
            {"role": "user", "name": "Bob", "content": "home: Oslo."},
            {"role": "user", "name": "Cai", "content": "home: Rome."},
        ]
        await memory.add(turn, "group")

        page = await memory.get_all("group", filters={"speaker": "Bob"})
        assert [(i["subject"], i["memory"]) for i in page["results"]] == [
            ("Bob", "Bob's home is Oslo")
        ]
        assert len(await texts(memory, "group")) == 2

    async def test_earlier_messages_are_context_for_extraction(self, location: str) -> None:
        extractor = WordExtractor()
        async with AsyncMemory(settings=settings_for(location), extractor=extractor) as memory:
            await memory.add(["one", "two"], "ann", session_id="s")
            await memory.add("three", "ann", session_id="s", prompt="be brief")
            await memory.add("elsewhere", "ann", session_id="t")

        assert extractor.contexts == [[], ["one", "two"], []]
        assert extractor.prompts == [None, "be brief", None]


class TestFailure:
    async def test_failed_extraction_is_reported_and_messages_are_stored(
        self, memory: AsyncMemory
    ) -> None:
        added = await memory.add("boom", "ann")

        assert added["results"] == []
        assert any("boom" in problem for problem in added["problems"])
        assert await said(memory) == ["boom"]

    async def test_background_add_reports_failure_in_job(self, memory: AsyncMemory) -> None:
        job = await memory.add("home: Paris. boom_x", "ann", background=True)
        assert await said(memory) == ["home: Paris. boom_x"]

        ended = await memory.job(job["job_id"], wait=True)

        assert ended["state"] == "done"
        assert any("boom" in problem for problem in ended["result"]["problems"])


async def test_add_sets_metadata_layer_and_flags(memory: AsyncMemory) -> None:
    options: dict[str, Any] = {"metadata": {"topic": "home"}, "memory_type": "short"}
    await memory.add("home: Paris.", "ann", **options)
    await memory.add("job: cook.", "ann", memory_type="profile", expires_at="2000-01-01")

    (item,) = (await memory.get_all("ann"))["results"]
    assert (item["layer"], item["memory_type"]) == ("short", "general")
    assert item["metadata"] == {"topic": "home"}
    (gone,) = (await memory.get_all("ann", superseded=True, filters={"field": "job"}))["results"]
    assert (gone["layer"], gone["memory_type"]) == ("long", "profile")
    assert (await memory.search("job cook", "ann", filters={"field": "job"}))["results"] == []
    found = await memory.search("cook", "ann")
    assert [item["field"] for item in found["results"]] != ["job"]


async def test_redact_runs_before_anything_is_stored(location: str) -> None:
    def redact(text: str) -> str:
        return text.replace("hunter2", "***")

    extractor = WordExtractor()
    settings = settings_for(location)
    async with AsyncMemory(settings=settings, extractor=extractor, redact=redact) as memory:
        await memory.add("password: hunter2.", "ann", metadata={"raw": ["hunter2"]})
        (item,) = (await memory.get_all("ann"))["results"]
        await memory.update(item["id"], "now hunter2 again", metadata={"k": "hunter2"})
        lines = [line async for line in memory.export("ann")]

    assert lines
    assert not any("hunter2" in line for line in lines)
