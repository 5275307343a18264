"""Reading of messages: pages from the latest to the earliest, and neighbours."""

import asyncio
import string
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store import MessageFilter, Store, Timeline, seal_cursor
from memrecall.types import Role

from .samples import ANN, BEN, MORNING, at, ids, new_message, numbered_messages, read_pages

# Sorted by bytes: capitals before small letters, and an emoji after a full-width letter.
MIXED_IDS = ["10", "9", "A", "Zoë", "a", "b", "zoe", "乙", "甲", "Ａ", "😀", "𠀀"]


@pytest.fixture
def computer_in_shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        yield
    time.tzset()


async def write_ties(timeline: Timeline) -> list[str]:
    """Write seventeen messages in groups of equal times; return their ids in page order."""
    batch = [new_message(f"m{n:02}", ts=at(n % 5)) for n in range(17)]
    await timeline.add(batch[::-1])
    return [f"m{n:02}" for minute in (4, 3, 2, 1, 0) for n in range(17) if n % 5 == minute]


class TestPages:
    async def test_every_page_size_gives_the_same_list_with_ties_by_id(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        expected = await write_ties(timeline)
        earliest_first = sorted(expected, key=lambda name: (int(name[1:]) % 5, name))

        for size in (*range(1, 8), 16, 17, 18, 200):
            messages = await read_pages(timeline, page_size=size)
            assert [m.message_id for m in messages] == expected, f"page size {size}"
            messages = await read_pages(timeline, page_size=size, order="asc")
            assert [m.message_id for m in messages] == earliest_first, f"page size {size}"
        with pytest.raises(InvalidArgument, match="order"):
            await timeline.page(order="up")  # type: ignore[arg-type]
        # Independently of an index:
        await store.database.transact(lambda c: c.exec_driver_sql("DROP INDEX ix_messages_ts"))
        assert await ids(timeline) == expected
        assert [m.message_id for m in await read_pages(timeline, page_size=2)] == expected

    async def test_page_has_fifty_rows_and_the_last_full_one_no_cursor(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add(numbered_messages("a", 100))

        first = await timeline.page()
        second = await timeline.page(cursor=first.next_cursor)

        assert first.next_cursor is not None
        assert (len(first.items), len(second.items)) == (50, 50)
        assert second.next_cursor is None

    async def test_cursor_survives_erasure_of_its_message(self, store: Store) -> None:
        await store.timeline(ANN.with_session("gone")).add([new_message("m1", ts=at(9))])
        await store.timeline(ANN).add(numbered_messages("a", 3))
        first = await store.timeline(ANN).page(page_size=1)
        await store.owners.erase_session("ann", "gone")

        second = await store.timeline(ANN).page(cursor=first.next_cursor)

        assert [m.message_id for m in second.items] == ["a2", "a1", "a0"]

    async def test_unknown_user_has_an_empty_page(self, store: Store) -> None:
        page = await store.timeline(Scope("nobody")).page()

        assert (page.items, page.next_cursor) == ((), None)

    async def test_ids_sort_alike_on_every_engine(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add([new_message(message_id) for message_id in reversed(MIXED_IDS)])

        messages = [m.message_id for m in await read_pages(timeline, page_size=1)]

        assert messages == sorted(MIXED_IDS, key=str.encode) == MIXED_IDS


class TestCursors:
    async def test_cursor_of_another_list_is_refused(self, store: Store) -> None:
        for scope in (ANN, BEN, Scope("ann", agent_id="default")):
            await store.timeline(scope).add(
                numbered_messages(f"{scope.user_id}{scope.agent_id}", 4)
            )
        cursor = (await store.timeline(ANN).page(page_size=1)).next_cursor
        filtered = MessageFilter(session_id="default")
        others = [
            (store.timeline(BEN), MessageFilter()),
            (store.timeline(Scope("ann", agent_id="default")), MessageFilter()),
            (store.timeline(ANN), filtered),
            (store.timeline(ANN), MessageFilter(role=Role.USER)),
            (store.timeline(ANN), MessageFilter(since=at(0))),
            (store.timeline(ANN), MessageFilter(until=at(0))),
        ]

        for timeline, condition in others:
            with pytest.raises(InvalidArgument, match="cursor"):
                await timeline.page(condition, cursor=cursor)
        with pytest.raises(InvalidArgument, match="cursor"):
            await store.timeline(ANN).page(order="asc", cursor=cursor)

    async def test_cursor_distinguishes_since_from_until(self, store: Store) -> None:
        await store.timeline(ANN).add(numbered_messages("a", 4))
        page = await store.timeline(ANN).page(MessageFilter(since=at(1)), page_size=1)

        with pytest.raises(InvalidArgument, match="cursor"):
            await store.timeline(ANN).page(MessageFilter(until=at(1)), cursor=page.next_cursor)

    async def test_changed_or_forged_cursor_is_refused(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add(numbered_messages("a", 4))
        cursor = (await timeline.page(page_size=1)).next_cursor
        assert cursor is not None

        alphabet = string.ascii_letters + string.digits + "-_+/="
        changes = [
            cursor[:position] + changed + cursor[position + 1 :]
            for position in range(len(cursor))
            for changed in alphabet
            if changed != cursor[position]
        ]
        forged = ["", "x", "!!", "é", "AAAA", "A" * 500, "=", "a\0b", f"{cursor}=", f"{cursor}AAAA"]
        for changed in (*changes, *forged):
            with pytest.raises(InvalidArgument, match="cursor"):
                await timeline.page(cursor=changed)

    async def test_cursor_of_another_database_is_refused(self, store: Store) -> None:
        binding = ["messages", "ann", None, *MessageFilter().fingerprint()]
        other_cursor = seal_cursor(b"another secret", binding, [MORNING.isoformat(), "m"])

        with pytest.raises(InvalidArgument):
            await store.timeline(ANN).page(cursor=other_cursor)


class TestFilters:
    async def test_since_is_inclusive_and_until_exclusive(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add(numbered_messages("a", 5))

        assert await ids(timeline, MessageFilter(since=at(3))) == ["a4", "a3"]
        assert await ids(timeline, MessageFilter(until=at(1))) == ["a0"]
        assert await ids(timeline, MessageFilter(since=at(1), until=at(3))) == ["a2", "a1"]
        assert await ids(timeline, MessageFilter(since=at(3), until=at(3))) == []

    @pytest.mark.usefixtures("computer_in_shanghai")
    async def test_bounds_may_be_in_any_zone_and_without_one_are_utc(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add(numbered_messages("a", 5))
        shanghai = timezone(timedelta(hours=8))
        since, until = at(1).astimezone(shanghai), at(3).astimezone(shanghai)

        assert await ids(timeline, MessageFilter(since, until)) == ["a2", "a1"]
        plain = MessageFilter(since=datetime(2026, 1, 26, 10, 3))  # noqa: DTZ001
        assert await ids(timeline, plain) == ["a4", "a3"]

    async def test_filter_by_role(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add([new_message(role.value, role=role) for role in Role])

        for role in Role:
            assert await ids(timeline, MessageFilter(role=role)) == [role.value]

    async def test_filter_by_session_and_agent(self, store: Store) -> None:
        scopes = [
            Scope("ann", agent_id=agent, session_id=session)
            for agent in ("a1", "a2")
            for session in ("s1", "s2")
        ]
        for scope in scopes:
            await store.timeline(scope).add([new_message(f"{scope.agent_id}{scope.session_id}")])

        first_session = MessageFilter(session_id="s1")
        assert await ids(store.timeline(ANN), first_session) == ["a1s1", "a2s1"]
        assert await ids(store.timeline(Scope("ann", agent_id="a1"))) == ["a1s1", "a1s2"]
        assert await ids(store.timeline(scopes[0]), first_session) == ["a1s1"]

    async def test_bound_session_does_not_filter(self, store: Store) -> None:
        await store.timeline(ANN.with_session("s1")).add([new_message("m1")])
        await store.timeline(ANN.with_session("s2")).add([new_message("m2")])

        assert await ids(store.timeline(ANN.with_session("s1"))) == ["m1", "m2"]

    async def test_combined_filters_page_by_page(self, store: Store) -> None:
        timeline = store.timeline(ANN.with_session("tea"))
        roles = [Role.USER, Role.ASSISTANT]
        await timeline.add([new_message(f"m{n}", ts=at(n), role=roles[n % 2]) for n in range(10)])
        await store.timeline(ANN).add([new_message("else", ts=at(4))])
        condition = MessageFilter(since=at(2), until=at(8), role=Role.USER, session_id="tea")

        messages = [m.message_id for m in await read_pages(timeline, condition, page_size=2)]

        assert messages == ["m6", "m4", "m2"]


class TestNeighbors:
    async def test_neighbors_default_to_twenty_before_and_none_after(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add([new_message(f"m{n:02}", ts=at(n)) for n in range(30)])

        page = await timeline.neighbors("m25")

        assert [m.message_id for m in page.items] == [f"m{n:02}" for n in range(5, 26)]
        assert page.next_cursor is None

    async def test_neighbors_are_oldest_first_with_ties_by_id(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add([new_message(name) for name in "edcba"])
        await timeline.add([new_message("before", ts=at(-1)), new_message("later", ts=at(1))])
        order = ["before", *"abcde", "later"]

        for at_, anchor in enumerate(order):
            for before in range(4):
                for after in range(4):
                    page = await timeline.neighbors(anchor, before=before, after=after)
                    expected = order[max(0, at_ - before) : at_ + after + 1]
                    assert [m.message_id for m in page.items] == expected

    async def test_neighbors_are_of_the_scope_only(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("mine", ts=at(1))])
        await store.timeline(BEN).add([new_message("yours", ts=at(0))])
        await store.timeline(Scope("ann", agent_id="other")).add([new_message("theirs", ts=at(0))])

        through_agent = store.timeline(Scope("ann", agent_id="default"))
        assert [m.message_id for m in (await through_agent.neighbors("mine")).items] == ["mine"]
        assert len((await store.timeline(ANN).neighbors("mine")).items) == 2


class TestNotFound:
    async def test_message_of_another_user_or_agent_is_not_found(self, store: Store) -> None:
        await store.timeline(BEN).add([new_message("theirs", "secret")])
        await store.timeline(ANN).add([new_message("mine")])
        timeline = store.timeline(ANN)

        with pytest.raises(NotFound) as other_error:
            await timeline.get("theirs")
        with pytest.raises(NotFound) as unknown_error:
            await timeline.get("nothing")
        with pytest.raises(NotFound):
            await timeline.neighbors("theirs")
        with pytest.raises(NotFound):
            await store.timeline(Scope("ann", agent_id="other")).get("mine")

        # The error is the same for another user's id and for one that does not exist.
        assert str(other_error.value).replace("theirs", "nothing") == str(unknown_error.value)
        assert await timeline.get_many(["theirs", "mine"]) == [await timeline.get("mine")]

    async def test_get_many_accepts_many_ids(self, store: Store) -> None:
        await store.timeline(ANN).add(numbered_messages("a", 3))
        condition = [f"a{n}" for n in range(40_000)]

        # Gathered, because a driver's error would contain all forty thousand ids.
        (items,) = await asyncio.gather(
            store.timeline(ANN).get_many(condition), return_exceptions=True
        )

        assert not isinstance(items, BaseException), str(items)
        assert sorted(m.message_id for m in items) == ["a0", "a1", "a2"]
