"""Sessions: short-term memory, summaries, checkpoints and their end."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import Disabled, InvalidArgument
from memrecall.memory import AsyncMemory
from memrecall.memory.layers import Item, ShortTermMemory
from memrecall.scope import Permission, Scope
from memrecall.store import Store
from memrecall.text_length import estimate_tokens
from tests.cases import check_each_async

from .conftest import make_settings
from .word_extractor import WordExtractor


async def add_messages(memory: AsyncMemory, count: int, first: int = 0, session: str = "s") -> None:
    texts = [f"m{number}" for number in range(first, first + count)]
    await memory.add(texts, "ann", session_id=session)


class TestSummaries:
    async def test_summary_levels_grow_with_the_session(self, memory: AsyncMemory) -> None:
        await add_messages(memory, 5)
        assert (await memory.summarize("ann", session_id="s", whole=False))["results"] == []
        await add_messages(memory, 26, first=5)

        summaries = (await memory.summarize("ann", session_id="s", whole=False))["results"]

        spans = [(s["level"], s["first_sequence_no"], s["last_sequence_no"]) for s in summaries]
        turns = [("turns", n, n + 5) for n in range(1, 30, 6)]
        assert spans == [*turns, ("chunk", 1, 30), ("session", 1, 30)]
        assert summaries[0]["text"] == "sum(m0+m1+m2+m3+m4+m5)"

        await add_messages(memory, 30, first=31)
        later = (await memory.summarize("ann", session_id="s", whole=False))["results"]
        by_level = [s["level"] for s in later]
        assert {level: by_level.count(level) for level in by_level} == {
            "turns": 10,
            "chunk": 2,
            "session": 2,
        }
        assert [s for s in later if s in summaries] == summaries

    async def test_summarize_twice_adds_nothing(self, memory: AsyncMemory) -> None:
        await add_messages(memory, 8)
        assert (await memory.summarize("ann", session_id="s"))["new"] == 2
        assert (await memory.summarize("ann", session_id="s"))["new"] == 0

    async def test_state_fits_tokens_and_ends_with_last_messages(self, memory: AsyncMemory) -> None:
        cases: list[int] = [1, 5, 20, 60, 100_000]
        await add_messages(memory, 40)

        async def check(budget: int) -> None:
            state = await memory.state(budget, "ann", session_id="s")

            assert estimate_tokens(state["text"]) <= state["tokens"] <= budget
            if budget >= 20:
                assert state["text"].endswith("user: m39")
            if budget == 60:
                assert state["summaries"] > 0
            if budget == 100_000:
                assert state["messages"] == 40

        await check_each_async(cases, check)

    async def test_state_has_profile_and_sources(self, memory: AsyncMemory) -> None:
        told = await memory.add("allergy: peanuts.", user_id="ann", session_id="old")
        new = await memory.add("What can I cook?", user_id="ann", session_id="s")
        state = await memory.state(500, "ann", session_id="s")
        small = await memory.state(8, "ann", session_id="s")

        assert state["text"] == "user's allergy is peanuts\nuser: What can I cook?"
        assert state["sources"] == [*told["messages"], *new["messages"]]
        assert (state["profile"], state["messages"], state["covers"]) == (1, 1, [])
        assert (small["text"], small["profile"]) == ("user: What can I cook?", 0)

    async def test_state_fills_its_budget(self, memory: AsyncMemory) -> None:
        await add_messages(memory, 40)
        state = await memory.state(100, "ann", session_id="s")
        assert state["tokens"] > 90
        assert len(state["covers"]) == state["summaries"] > 0

    async def test_state_of_empty_session_is_empty(self, memory: AsyncMemory) -> None:
        assert (await memory.state(50, "ann", session_id="new"))["text"] == ""
        with pytest.raises(InvalidArgument):
            await memory.state(0, "ann")

    async def test_sessions_are_summarized_separately(self, memory: AsyncMemory) -> None:
        await add_messages(memory, 6, session="s")
        await add_messages(memory, 6, first=50, session="t")

        state = await memory.state(1000, "ann", session_id="t")

        assert "m50" in state["text"]
        assert "m0" not in state["text"]


class TestShortTerm:
    async def test_short_term_search_by_words(self, memory: AsyncMemory) -> None:
        short_term = await memory.short_term("ann", session_id="s")
        await short_term.add(["the deploy failed", Item("use the blue cluster", "assistant")])
        await memory.add("喝绿茶", "ann", session_id="s", infer=False)
        await memory.add("elsewhere", "ann", session_id="t", infer=False)

        assert [item.text for item in short_term.search("which cluster")] == [
            "use the blue cluster"
        ]
        assert [item.text for item in short_term.search("绿茶")] == ["喝绿茶"]
        assert len(short_term.items) == 3

    async def test_checkpoints_after_messages_and_seconds(self, store: Store) -> None:
        now = 0.0
        scope = Scope("ann", session_id="s")
        await store.timeline(scope).add([])
        from ..store.samples import new_message

        await store.timeline(scope).add([new_message("m")])
        short_term = ShortTermMemory(
            store, scope, every_messages=3, every_seconds=60.0, clock=lambda: now
        )

        assert await short_term.add(["one", "two"]) is None
        checkpoint = await short_term.add(["three"])
        assert checkpoint is not None
        assert checkpoint.number == 1
        assert await short_term.add(["four"]) is None
        now = 61.0
        checkpoint = await short_term.add(["five"])
        assert checkpoint is not None
        assert [item["text"] for item in checkpoint.state["items"]][-1] == "five"

        short_term.scratch = {"step": 7}
        await short_term.checkpoint()
        other = ShortTermMemory(store, scope)
        assert await other.restore()
        assert (other.items, other.scratch) == (short_term.items, {"step": 7})
        assert not await ShortTermMemory(store, Scope("ann", session_id="t")).restore()
        short_term.scratch = {"bad": object()}
        with pytest.raises(InvalidArgument):
            await short_term.checkpoint()

    async def test_old_checkpoints_are_deleted(self, memory: AsyncMemory) -> None:
        await memory.add("x", "ann", session_id="s")
        for number in range(6):
            assert (await memory.checkpoint("ann", session_id="s"))["number"] == number + 1


class TestEndSession:
    async def test_end_session_stores_experience_and_clears_short_term(
        self, memory: AsyncMemory
    ) -> None:
        short_term = await memory.short_term("ann", session_id="s")
        await add_messages(memory, 7)
        await memory.checkpoint("ann", session_id="s")

        result = await memory.end_session("ann", session_id="s", success=True)

        long = await memory.long_term("ann")
        (experience,) = await long.experience.get_all(success=True)
        assert experience["id"] == result["experience"]
        assert experience["metadata"] == {"success": True}
        assert len(experience["source_message_ids"]) == 7
        assert await long.experience.get_all(success=False) == []
        assert not await memory.restore("ann", session_id="s")
        with pytest.raises(InvalidArgument):
            await short_term.add(["late"])
        with pytest.raises(Disabled):
            await memory.add("late", "ann", session_id="s")


class TestLongTerm:
    async def test_profile_fields_have_evidence(self, memory: AsyncMemory) -> None:
        await memory.add("home: Paris. job: cook.", "ann")
        result = await memory.add("home: Rome.", "ann")

        profile = await (await memory.long_term("ann")).user_info.profile()

        assert {name: [e["value"] for e in entries] for name, entries in profile.items()} == {
            "home": ["user's home is Rome"],
            "job": ["user's job is cook"],
        }
        assert profile["home"][0]["evidence"] == result["messages"]

    async def test_knowledge_is_shared_and_requires_permission(self, location: str) -> None:
        settings = make_settings(location)
        options: dict[str, Any] = {"settings": settings, "extractor": WordExtractor()}
        may = frozenset({Permission.KNOWLEDGE})
        async with (
            AsyncMemory(**options, agent_id="doctor") as plain,
            AsyncMemory(**options, agent_id="doctor", permissions=may) as writing,
            AsyncMemory(**options, agent_id="cook") as other,
        ):
            with pytest.raises(Disabled):
                await (await plain.long_term("ann")).knowledge.add("x")
            entry = await (await writing.long_term("ann")).knowledge.add(
                "ibuprofen thins the blood", key="ibuprofen"
            )
            ben = (await plain.long_term("ben")).knowledge
            assert [e["id"] for e in await ben.search("blood")] == ["ibuprofen"]
            assert await ben.get("ibuprofen") == entry
            assert await (await other.long_term("ann")).knowledge.get_all() == []
            with pytest.raises(Disabled):
                await ben.delete("ibuprofen")
            await (await writing.long_term("ann")).knowledge.delete("ibuprofen")
            assert await ben.get_all() == []


ROOT = Path(__file__).parents[2]
CHILD = """
import asyncio, sys
from memrecall.memory import AsyncMemory
from tests.memory.conftest import make_settings
from tests.memory.word_extractor import WordExtractor

async def main():
    memory = AsyncMemory(settings=make_settings(sys.argv[1]), extractor=WordExtractor())
    mind = await memory.short_term("ann", session_id="s", every_messages=5)
    number = 0
    while True:
        mind.scratch = {"step": number}
        await memory.add(f"step {number}", "ann", session_id="s", infer=False)
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


@pytest.mark.service
@pytest.mark.concurrent
async def test_restore_after_kill_9(tmp_path: Path) -> None:
    location = str(tmp_path / "memrecall.db")
    with subprocess.Popen(  # noqa: ASYNC220 -- nothing else runs in this loop
        [sys.executable, "-c", CHILD, location], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as child:
        assert child.stdout is not None
        last_step = -1
        for line in child.stdout:
            last_step = int(line)
            if last_step >= 22:
                break
        child.send_signal(signal.SIGKILL)

    async with AsyncMemory(settings=make_settings(location), extractor=WordExtractor()) as memory:
        assert await memory.restore("ann", session_id="s")
        short_term = await memory.short_term("ann", session_id="s")
        restored = [item.text for item in short_term.items]
        messages = await memory.get_all("ann", kinds="messages", limit=1000)
        await memory.add("and on", "ann", session_id="s", infer=False)

    assert restored == [f"step {n}" for n in range(len(restored))]
    assert len(restored) >= 20
    assert short_term.scratch["step"] == len(restored) - 1
    assert len(messages["results"]) >= last_step + 1
