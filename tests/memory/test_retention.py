"""Retention policies: previews, sweeps, schedules and pinned memories."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memrecall.errors import InvalidArgument, StorageBusy
from memrecall.memory import AsyncMemory, Policy
from memrecall.memory.retention import SweepSchedule
from memrecall.settings import Settings

from .conftest import make_settings
from .word_extractor import WordExtractor

NOTHING = {"expired": False, "duplicates": False}


async def add_memory(memory: AsyncMemory, text: str, **options: Any) -> str:
    result = await memory.add(text, "ann", infer=False, **options)
    return str(result["results"][0]["id"])


async def preview_sweep(memory: AsyncMemory, days: float = 0, **policy: Any) -> dict[str, str]:
    now = datetime.now(UTC) + timedelta(days=days)
    full_policy = Policy(**{**NOTHING, **policy})
    result = await memory.sweep(full_policy, user_id="ann", now=now)
    assert result["removed"] == 0
    return {item["id"]: item["reason"] for item in result["results"]}


async def test_each_policy_rule_selects_its_memories(memory: AsyncMemory) -> None:
    plain = await add_memory(memory, "plain")
    duplicate = await add_memory(memory, "Plain ")
    expired = await add_memory(memory, "expired", expires_at="2020-01-01T00:00:00Z")
    (old,) = (await memory.add("home: Paris.", "ann"))["results"]
    (new,) = (await memory.add("home: Rome.", "ann"))["results"]
    pinned = await add_memory(memory, "plain")
    await memory.update(pinned, pinned=True)

    assert await preview_sweep(memory) == {}
    assert await preview_sweep(memory, expired=True) == {expired: "expired"}
    assert await preview_sweep(memory, duplicates=True) == {
        plain: "duplicate",
        duplicate: "duplicate",
    }
    assert await preview_sweep(memory, superseded_days=0) == {old["id"]: "superseded"}
    assert await preview_sweep(memory, superseded_days=1) == {}
    others = {plain, duplicate, expired, old["id"], new["id"]}
    assert set(await preview_sweep(memory, days=31, older_than_days=30)) == others
    assert set(await preview_sweep(memory, days=29, older_than_days=30)) == set()
    assert set(await preview_sweep(memory, days=31, older_than_days=1e84)) == set()


async def test_recalled_memory_is_kept(memory: AsyncMemory) -> None:
    tea = await add_memory(memory, "likes green tea")
    dog = await add_memory(memory, "has a dog called Rex")
    assert (await memory.search("Rex", "ann", limit=1))["results"][0]["id"] == dog

    later = datetime.now(UTC) + timedelta(days=10)
    assert set(await preview_sweep(memory, days=10.0, not_recalled_days=9)) == {tea, dog}
    result = await memory.sweep(Policy(most_memories=1, **NOTHING), user_id="ann", now=later)
    assert [item["id"] for item in result["results"]] == [tea]


async def test_budget_keeps_pinned_and_latest(memory: AsyncMemory) -> None:
    keys = [await add_memory(memory, f"n{n}") for n in range(5)]
    await memory.update(keys[0], pinned=True)

    assert set(await preview_sweep(memory, most_memories=2)) == {keys[1], keys[2], keys[3]}
    assert set(await preview_sweep(memory, most_memories=0)) == set(keys[1:])


@pytest.mark.parametrize("purge", [True, False])
async def test_sweep_removes_what_the_dry_run_reported(memory: AsyncMemory, purge: bool) -> None:
    keys = [await add_memory(memory, "same") for _ in range(3)]

    result = await memory.sweep(user_id="ann", dry_run=False, purge=purge)

    assert (result["found"], result["removed"]) == (2, 2)
    assert [item["id"] for item in (await memory.get_all("ann"))["results"]] == keys[:1]
    hidden = (await memory.get_all("ann", deleted=True))["results"]
    assert len(hidden) == (0 if purge else 2)
    assert len((await memory.search("same", "ann", kinds="memory"))["results"]) == 1


class TestAllUsers:
    async def test_sweep_of_all_users_returns_counts(self, memory: AsyncMemory) -> None:
        for user in ("ann", "ben"):
            for _ in range(2):
                await memory.add("the same", user, infer=False)
        preview = await memory.sweep(all_users=True)
        assert preview == {**preview, "dry_run": True, "users": 2, "found": 2, "removed": 0}
        result = await memory.sweep(all_users=True, dry_run=False)
        assert result["reasons"] == {"duplicate": 2}
        assert len((await memory.get_all("ben"))["results"]) == 1
        for scoped_memory in (memory, memory.bind(user_id="ann")):
            with pytest.raises(InvalidArgument):
                await scoped_memory.sweep(all_users=True, user_id="ann")
        with pytest.raises(InvalidArgument):
            await memory.bind(user_id="ann").sweep(all_users=True)


class TestScheduled:
    async def test_schedule_repeats_until_stopped(self, memory: AsyncMemory) -> None:
        reports: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        schedule = await memory.schedule_sweeps(0.01, report=reports.put_nowait)
        for _ in range(2):
            await add_memory(memory, "the same")
        while not (await asyncio.wait_for(reports.get(), 20))["removed"]:
            pass
        assert len((await memory.get_all("ann"))["results"]) == 1
        await asyncio.wait_for(reports.get(), 20)  # the schedule repeats
        await schedule.stop()
        assert not schedule.running

    async def test_dry_run_schedule_only_reports(self, memory: AsyncMemory) -> None:
        reports: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for _ in range(2):
            await add_memory(memory, "the same")
        await memory.bind(user_id="ann").schedule_sweeps(
            0.01, dry_run=True, report=reports.put_nowait
        )
        assert (await asyncio.wait_for(reports.get(), 20))["found"] == 1
        assert len((await memory.get_all("ann"))["results"]) == 2

    async def test_failed_sweep_is_retried(
        self, memory: AsyncMemory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tries = asyncio.Queue[int]()

        async def fail(*_: object, **__: object) -> None:
            tries.put_nowait(1)
            raise StorageBusy("locked")

        monkeypatch.setattr(memory, "_sweep_all_users", fail)
        schedule = await memory.schedule_sweeps(0.01)
        for _ in range(3):
            await asyncio.wait_for(tries.get(), 20)
        assert schedule.running
        with pytest.raises(InvalidArgument):
            await memory.schedule_sweeps(0)

    async def test_close_stops_schedule(self, location: str) -> None:
        memory = AsyncMemory(settings=make_settings(location), extractor=WordExtractor())
        schedule = await memory.schedule_sweeps(3600)
        assert schedule.running
        await memory.close()
        assert not schedule.running


async def test_policy_refuses_negative_values(memory: AsyncMemory) -> None:
    with pytest.raises(InvalidArgument, match="older_than_days"):
        Policy(older_than_days=-1)
    for text in ("daily", '{"hours": 0}', '{"hours": 1, "days": 2}', '{"hours": "x"}'):
        with pytest.raises(InvalidArgument, match="sweep"):
            SweepSchedule.of(Settings(sweep=text))
    with pytest.raises(InvalidArgument):
        await memory.sweep()


async def test_searches_without_hits_leave_nothing_pending(memory: AsyncMemory) -> None:
    await add_memory(memory, "I drink tea.")
    times = (await memory._open()).recall_times
    for number in range(20):
        await memory.search("tea", f"stranger-{number}")
    assert times._pending == {}
    (hit,) = (await memory.search("tea", "ann"))["results"]
    assert times._pending == {"ann": {hit["id"]}}
