"""`add`: messages are stored first, then their facts, each once and none lost."""

import asyncio
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory
from tests.cases import check_each_async

from .conftest import get_item, make_settings
from .word_extractor import WordExtractor


async def list_memories(memory: AsyncMemory, user: str = "ann", **options: Any) -> list[str]:
    page = await memory.get_all(user, **options)
    return sorted(item["memory"] for item in page["results"])


async def list_messages(memory: AsyncMemory, user: str = "ann") -> list[str]:
    page = await memory.get_all(user, kinds="messages")
    return [item["memory"] for item in reversed(page["results"])]


class TestWithoutModel:
    async def test_messages_are_kept_and_found_as_they_were_said(self, location: str) -> None:
        async with AsyncMemory(settings=make_settings(location), user_id="ann") as memory:
            result = await memory.add("I live in Rome.")
            assert (result["results"], result["relations"], result["stored"]) == ([], [], 1)
            assert result["message"].startswith("No model is configured")
            assert "message" not in await memory.add("hello", infer=False)
            (found, *_) = (await memory.search("Who lives in Rome?", kinds="message"))["results"]
            assert (found["id"], found["memory"]) == (result["messages"][0], "I live in Rome.")

    async def test_what_the_user_asks_to_remember_is_a_memory(self, location: str) -> None:
        cases = {
            # Only what a mark sets off is left out: the rest would not be what was said.
            "Remember that the spare key is with Joyce.": (
                "Remember that the spare key is with Joyce."
            ),
            "remember that time in Rome": "remember that time in Rome",
            "note: the spare key is with Joyce.": "the spare key is with Joyce.",
            "记住，备用钥匙在老王那里。": "备用钥匙在老王那里。",
            "Do you remember that the spare key is with Joyce?": None,
            "Remember that?": None,
            "记住的单词都忘了": "记住的单词都忘了",
            "备注一下，房东姓王": "备注一下，房东姓王",
            "记下来了，谢谢": None,
            "记住了。": None,
            "记住了，谢谢": None,
            "記住了，謝謝": None,
            "別忘了：明天開會": "明天開會",
            "Remembering names is hard.": None,
        }
        async with AsyncMemory(settings=make_settings(location)) as memory:

            async def check(said: str) -> None:
                turn = [{"role": role, "content": said} for role in ("user", "assistant")]
                result = await memory.add(turn, said)
                expected = cases[said]
                assert [r["memory"] for r in result["results"]] == [expected] * bool(expected)
                assert await list_memories(memory, said) == [expected] * bool(expected)
                for stored in result["results"]:
                    item = await get_item(memory, stored["id"])
                    sources = result["messages"][:1]
                    assert (item["origin"], item["source_message_ids"]) == ("user", sources)

            await check_each_async(cases, check)

    @pytest.mark.parametrize(
        "of_memories",
        [{"sensitive": True}, {"expires_at": "2030-01-01"}, {"expiration_date": "2030-01-01"}],
    )
    async def test_what_only_memories_have_is_refused(
        self, location: str, of_memories: dict[str, Any]
    ) -> None:
        async with AsyncMemory(settings=make_settings(location)) as plain:
            with pytest.raises(InvalidArgument, match="without a model none is made"):
                await plain.add("My test came back positive.", "ann", **of_memories)
            assert (await plain.get_all("ann", kinds="all"))["results"] == []
            assert (await plain.add("Mine.", "ann", infer=False, **of_memories))["results"]


class TestForms:
    async def test_role_in_the_metadata_is_kept(self, memory: AsyncMemory) -> None:
        result = await memory.add("likes tea", "ann", infer=False, metadata={"role": "cook"})
        item = await get_item(memory, result["results"][0]["id"])
        assert item["metadata"] == {"role": "cook"}
        assert len((await memory.get_all("ann", filters={"role": "cook"}))["results"]) == 1

    async def test_add_accepts_text_dict_and_list(self, memory: AsyncMemory) -> None:
        await memory.add("喜欢喝茶", "ann", infer=False)
        await memory.add({"role": "user", "content": "two"}, "ann", infer=False)
        turn = [{"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]
        result = await memory.add(turn, "ann", infer=False)

        assert [r["event"] for r in result["results"]] == ["ADD", "ADD"]
        assert [r["memory"] for r in result["results"]] == ["three", "four"]
        assert await list_memories(memory) == ["four", "three", "two", "喜欢喝茶"]
        item = await get_item(memory, result["results"][1]["id"])
        assert item["origin"] == "assistant"
        assert item["source_message_ids"] == [result["messages"][1]]

    async def test_add_refuses_invalid_messages_and_stores_nothing(
        self, memory: AsyncMemory
    ) -> None:
        cases: list[Any] = [  # tests/test_messages.py has more of them
            "   ",
            [],
            [{"role": "wizard", "content": "x"}],
            [{"role": "user", "content": "x", "ts": "soon"}],
            [{"role": "user", "content": "x", "id": "  "}],
        ]
        await memory.add("before", "ann", infer=False)

        async def check(invalid: Any) -> None:
            valid = {"role": "user", "content": "good"}
            batch = [valid, *invalid] if isinstance(invalid, list) and invalid else invalid

            with pytest.raises(InvalidArgument):
                await memory.add(batch, "ann")

            assert await list_messages(memory) == ["before"]

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

        (addition,), (update,), (deletion,) = first["results"], second["results"], third["results"]
        assert (addition["event"], addition["memory"]) == ("ADD", "user's home is Paris")
        assert (update["event"], update["previous_id"]) == ("UPDATE", addition["id"])
        assert update["previous_memory"] == "user's home is Paris"
        assert (deletion["event"], deletion["id"]) == ("DELETE", update["id"])
        assert await list_memories(memory) == []
        assert await list_memories(memory, superseded=True) == [
            "user's home is Paris",
            "user's home is Rome",
        ]
        assert await list_messages(memory) == ["home: Paris.", "home: Rome.", "forget home"]

    async def test_superseded_memory_is_visible_only_as_of_then(self, memory: AsyncMemory) -> None:
        old = {"role": "user", "content": "home: Paris.", "ts": "2024-01-01T00:00:00Z"}
        new = {"role": "user", "content": "home: Rome.", "ts": "2025-01-01T00:00:00Z"}
        await memory.add([old], "ann")
        await memory.add([new], "ann")

        async def home(as_of: str | None = None) -> list[str]:
            page = await memory.search("where is home", "ann", as_of=as_of, kinds="memory")
            return [item["memory"] for item in page["results"]]

        assert await home() == ["user's home is Rome"]
        assert await home("2024-06-01T00:00:00Z") == ["user's home is Paris"]
        assert await home("2023-06-01T00:00:00Z") == []
        assert await list_memories(memory, as_of="2024-06-01T00:00:00Z") == ["user's home is Paris"]

    async def test_undo_works_on_both_memories_of_a_supersession(self, memory: AsyncMemory) -> None:
        for id_field in ("id", "previous_id"):
            user = f"user-{id_field}"
            await memory.add("home: Paris.", user)
            (update,) = (await memory.add("home: Rome.", user))["results"]

            await memory.undo(update[id_field])

            assert await list_memories(memory, user) == ["user's home is Paris"]
            page = await memory.search("home", user, kinds="memory")
            assert [item["memory"] for item in page["results"]] == ["user's home is Paris"]

    async def test_repeated_fact_changes_nothing(self, memory: AsyncMemory) -> None:
        await memory.add("home: Paris.", "ann")
        repeated = await memory.add("home: Paris. home: Paris.", "ann")

        assert repeated["results"] == []
        assert await list_memories(memory) == ["user's home is Paris"]

    @pytest.mark.concurrent
    async def test_concurrent_adds_store_one_memory(self, memory: AsyncMemory) -> None:
        await asyncio.gather(*(memory.add("home: Paris.", "ann") for _ in range(8)))
        await asyncio.gather(*(memory.add(f"k{n}: v.", "ann") for n in range(8)))

        expected = ["user's home is Paris", *(f"user's k{n} is v" for n in range(8))]
        assert await list_memories(memory) == sorted(expected)
        assert len(await list_messages(memory)) == 16

    @pytest.mark.concurrent
    async def test_two_processes_do_not_store_the_same_fact_twice(self, location: str) -> None:
        """Two memories on one database do not share in-process locks."""
        settings = make_settings(location)
        async with (
            AsyncMemory(settings=settings, extractor=WordExtractor()) as first,
            AsyncMemory(settings=settings, extractor=WordExtractor()) as second,
        ):
            await asyncio.gather(
                *(memory.add("home: Paris.", "ann") for memory in (first, second) for _ in range(4))
            )

            assert await list_memories(first) == ["user's home is Paris"]

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
        assert len(await list_memories(memory, "group")) == 2

    async def test_earlier_messages_are_context_for_extraction(self, location: str) -> None:
        extractor = WordExtractor()
        async with AsyncMemory(settings=make_settings(location), extractor=extractor) as memory:
            await memory.add(["one", "two"], "ann", session_id="s")
            await memory.add("three", "ann", session_id="s", prompt="be brief")
            await memory.add("elsewhere", "ann", session_id="t")

        assert extractor.contexts == [[], ["one", "two"], []]
        assert extractor.prompts == [None, "be brief", None]


class TestFailure:
    async def test_background_add_reports_failure_in_job(self, memory: AsyncMemory) -> None:
        job = await memory.add("home: Paris. boom_x", "ann", background=True)
        assert await list_messages(memory) == ["home: Paris. boom_x"]

        finished = await memory.job(job["job_id"], wait=True)

        assert finished["state"] == "done"
        assert any("boom" in problem for problem in finished["result"]["problems"])


async def test_add_sets_metadata_layer_and_flags(memory: AsyncMemory) -> None:
    options: dict[str, Any] = {"metadata": {"topic": "home"}, "memory_type": "short"}
    await memory.add("home: Paris.", "ann", **options)
    await memory.add("job: cook.", "ann", memory_type="profile", expires_at="2000-01-01")

    (item,) = (await memory.get_all("ann"))["results"]
    assert (item["layer"], item["memory_type"]) == ("short", "general")
    assert item["metadata"] == {"topic": "home"}
    (superseded,) = (await memory.get_all("ann", superseded=True, filters={"field": "job"}))[
        "results"
    ]
    assert (superseded["layer"], superseded["memory_type"]) == ("long", "profile")
    assert (await memory.search("job cook", "ann", filters={"field": "job"}))["results"] == []
    page = await memory.search("cook", "ann", kinds="memory")
    assert [item["field"] for item in page["results"]] != ["job"]
