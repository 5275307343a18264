"""Within a session, messages are numbered 1, 2, 3 … and stored at different microseconds."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memrecall.scope import Scope
from memrecall.store import ScopedMessage, Store
from memrecall.store.messages import write_messages
from memrecall.types import Message

from . import process
from .children import run_together
from .samples import ANN, MORNING, ids, new_message, read_pages

WRITERS = 8
SESSION = Scope("ann", session_id="tea")


def assert_numbered(messages: Sequence[Message]) -> None:
    """Check numbers without gaps, and unique create times in the same order."""
    ordered = sorted(messages, key=lambda message: message.sequence_no)
    assert [m.sequence_no for m in ordered] == list(range(1, len(ordered) + 1))
    times = [m.create_time for m in ordered]
    assert times == sorted(set(times))


async def test_each_session_has_its_own_sequence(store: Store) -> None:
    tea, work = store.timeline(SESSION), store.timeline(SESSION.with_session("work"))
    for number in range(3):
        await tea.add([new_message(f"t{number}")])
        await work.add([new_message(f"w{number}a"), new_message(f"w{number}b")])

    assert_numbered(await tea.get_many([f"t{n}" for n in range(3)]))
    assert_numbered(await work.get_many([f"w{n}{part}" for n in range(3) for part in "ab"]))


@pytest.mark.concurrent
async def test_eight_tasks_write_to_one_session(store: Store) -> None:
    timeline = store.timeline(SESSION)

    async def write(name: str) -> None:
        for number in range(6):
            size = 1 + number % 3
            await timeline.add([new_message(f"{name}-{number}-{part}") for part in range(size)])

    await asyncio.gather(*(write(f"task{n}") for n in range(WRITERS)))

    messages = await read_pages(timeline)
    assert len(messages) == WRITERS * 12
    assert_numbered(messages)


@pytest.mark.concurrent
def test_eight_processes_write_to_one_session(location: str) -> None:
    reports = run_together(process.write, [[location, f"p{n}", 6] for n in range(WRITERS)])

    assert reports == [[1, 2, 3, 1, 2, 3]] * WRITERS
    messages = asyncio.run(read_shared(location))
    assert len(messages) == WRITERS * 12
    assert_numbered(messages)


async def read_shared(location: str) -> list[Message]:
    async with await Store.open(location) as store:
        return await read_pages(store.timeline(process.SCOPE))


@pytest.mark.concurrent
async def test_batches_in_opposite_order_do_not_deadlock(store: Store) -> None:
    scopes = [Scope(f"user{n}", agent_id=f"agent{n}") for n in range(4)]

    async def write(name: str, order: list[Scope]) -> None:
        for number in range(5):
            await write_messages(
                store.database,
                [ScopedMessage(scope, new_message(f"{name}{number}")) for scope in order],
            )

    await asyncio.gather(
        *(write(f"forth{n}-", scopes) for n in range(4)),
        *(write(f"back{n}-", scopes[::-1]) for n in range(4)),
    )

    for scope in scopes:
        assert_numbered(await read_pages(store.timeline(scope)))
    assert (await store.count())["messages"] == 4 * 8 * 5


@pytest.mark.concurrent
async def test_concurrent_first_messages_of_a_user(store: Store) -> None:
    await asyncio.gather(
        *(
            store.timeline(Scope("new", session_id=f"s{n % 3}")).add([new_message(f"m{n}")])
            for n in range(9)
        )
    )

    assert sorted(await ids(store.timeline(Scope("new")))) == [f"m{n}" for n in range(9)]
    assert (await store.count("new"))["sessions"] == 3


class Clock:
    """A replacement for `datetime` with a settable time."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self, zone: Any) -> datetime:
        return self.moment.astimezone(zone)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(MORNING)
    monkeypatch.setattr("memrecall.store.database.locks.datetime", clock)
    return clock


async def test_messages_of_one_microsecond_are_both_stored(store: Store, clock: Clock) -> None:
    timeline = store.timeline(ANN)
    await timeline.add([new_message("m1")])
    await timeline.add([new_message("m2"), new_message("m3")])
    await store.timeline(ANN.with_session("other")).add([new_message("m4")])

    create_times = {m.message_id: m.create_time for m in await read_pages(timeline)}

    assert create_times == {
        "m1": MORNING,
        "m2": MORNING + timedelta(microseconds=1),
        "m3": MORNING + timedelta(microseconds=2),
        "m4": MORNING,
    }


async def test_create_times_increase_when_the_clock_is_set_back(store: Store, clock: Clock) -> None:
    timeline = store.timeline(ANN)
    await timeline.add([new_message("m1")])
    clock.moment = datetime(2020, 1, 1, tzinfo=UTC)
    await timeline.add([new_message("m2")])

    assert (await timeline.get("m2")).create_time == MORNING + timedelta(microseconds=1)
