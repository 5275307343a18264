"""Messages are read from the latest to the earliest, a page at a time, or around one of them."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import count

import pytest

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store import MessageFilter, Store, Timeline, seal_cursor
from memrecall.types import Role

from ..cases import check_each_async
from .samples import ANN, BEN, MORNING, at, ids, numbered, said, walk

# Bytes decide: capitals before small letters, and an emoji after a full-width letter.
MIXED_IDS = ["10", "9", "A", "Zoë", "a", "b", "zoe", "乙", "甲", "Ａ", "😀", "𠀀"]


@pytest.fixture
def computer_in_shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        yield
    time.tzset()


async def write_ties(timeline: Timeline) -> list[str]:
    """Seventeen messages in groups of the same time; their ids in the order of reading."""
    batch = [said(f"m{n:02}", ts=at(n % 5)) for n in range(17)]
    await timeline.add(batch[::-1])
    return [f"m{n:02}" for minute in (4, 3, 2, 1, 0) for n in range(17) if n % 5 == minute]


class TestPages:
    async def test_latest_first_and_ties_by_id(self, store: Store) -> None:
        expected = await write_ties(store.timeline(ANN))

        assert await ids(store.timeline(ANN)) == expected
        # And not by the grace of an index:
        await store.database.transact(lambda c: c.exec_driver_sql("DROP INDEX ix_messages_ts"))
        assert await ids(store.timeline(ANN)) == expected
        assert [m.message_id for m in await walk(store.timeline(ANN), page_size=2)] == expected

    async def test_every_page_size_gives_the_same_list(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        expected = await write_ties(timeline)

        for size in (*range(1, 8), 16, 17, 18, 200):
            walked = await walk(timeline, page_size=size)
            assert [m.message_id for m in walked] == expected, f"page size {size}"

    async def test_the_last_full_page_has_no_cursor(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add(numbered("a", 4))

        first = await timeline.page(page_size=2)
        second = await timeline.page(page_size=2, cursor=first.next_cursor)

        assert first.next_cursor is not None
        assert len(second.items) == 2
        assert second.next_cursor is None

    async def test_fifty_a_page_unless_told_otherwise(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add(numbered("a", 51))

        assert len((await timeline.page()).items) == 50

    async def test_newer_messages_that_arrive_between_pages_change_nothing(
        self, store: Store
    ) -> None:
        for size in (1, 3):
            timeline = store.timeline(Scope(f"user {size}"))
            expected = await write_ties(timeline)

            seen: list[str] = []
            cursor = None
            for number in count():
                page = await timeline.page(page_size=size, cursor=cursor)
                seen.extend(message.message_id for message in page.items)
                cursor = page.next_cursor
                if cursor is None:
                    break
                await timeline.add([said(f"new{number}", ts=at(60 + number))])

            assert seen == expected

    async def test_a_walk_goes_on_after_the_message_it_stopped_at_is_gone(
        self, store: Store
    ) -> None:
        await store.timeline(ANN.with_session("gone")).add([said("m1", ts=at(9))])
        await store.timeline(ANN).add(numbered("a", 3))
        first = await store.timeline(ANN).page(page_size=1)
        await store.owners.erase_session("ann", "gone")

        rest = await store.timeline(ANN).page(cursor=first.next_cursor)

        assert [m.message_id for m in rest.items] == ["a2", "a1", "a0"]

    async def test_a_page_size_out_of_range_is_refused(self, store: Store) -> None:
        async def refuse(size: int) -> None:
            with pytest.raises(InvalidArgument, match=str(size)):
                await store.timeline(ANN).page(page_size=size)

        await check_each_async([0, -1, 201], refuse)

    async def test_an_unknown_user_has_an_empty_page(self, store: Store) -> None:
        page = await store.timeline(Scope("nobody")).page()

        assert (page.items, page.next_cursor) == ((), None)

    async def test_ids_sort_alike_on_every_engine(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add([said(message_id) for message_id in reversed(MIXED_IDS)])

        walked = [m.message_id for m in await walk(timeline, page_size=1)]

        assert walked == sorted(MIXED_IDS, key=str.encode) == MIXED_IDS


class TestCursors:
    async def test_a_cursor_of_another_list_is_refused(self, store: Store) -> None:
        for scope in (ANN, BEN, Scope("ann", agent_id="default")):
            await store.timeline(scope).add(numbered(f"{scope.user_id}{scope.agent_id}", 4))
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

        for timeline, wanted in others:
            with pytest.raises(InvalidArgument, match="cursor"):
                await timeline.page(wanted, cursor=cursor)

    async def test_the_times_of_a_filter_do_not_stand_for_each_other(self, store: Store) -> None:
        await store.timeline(ANN).add(numbered("a", 4))
        page = await store.timeline(ANN).page(MessageFilter(since=at(1)), page_size=1)

        with pytest.raises(InvalidArgument, match="cursor"):
            await store.timeline(ANN).page(MessageFilter(until=at(1)), cursor=page.next_cursor)

    async def test_a_forged_cursor_is_refused(self, store: Store) -> None:
        async def refuse(forged: str) -> None:
            with pytest.raises(InvalidArgument, match="cursor"):
                await store.timeline(ANN).page(cursor=forged)

        await check_each_async(["", "x", "!!", "é", "AAAA", "A" * 500, "=", "a\0b"], refuse)

    async def test_a_cursor_with_one_character_changed_is_refused(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add(numbered("a", 4))
        cursor = (await timeline.page(page_size=1)).next_cursor
        assert cursor is not None

        for position in range(len(cursor) - 1):  # the last may carry unused bits
            changed = "A" if cursor[position] != "A" else "B"
            with pytest.raises(InvalidArgument):
                await timeline.page(cursor=cursor[:position] + changed + cursor[position + 1 :])

    async def test_a_cursor_of_another_database_is_refused(self, store: Store) -> None:
        binding = ["messages", "ann", None, *MessageFilter().fingerprint()]
        foreign = seal_cursor(b"another secret", binding, [MORNING.isoformat(), "m"])

        with pytest.raises(InvalidArgument):
            await store.timeline(ANN).page(cursor=foreign)


class TestFilters:
    async def test_since_is_included_and_until_is_not(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add(numbered("a", 5))

        assert await ids(timeline, MessageFilter(since=at(3))) == ["a4", "a3"]
        assert await ids(timeline, MessageFilter(until=at(1))) == ["a0"]
        assert await ids(timeline, MessageFilter(since=at(1), until=at(3))) == ["a2", "a1"]
        assert await ids(timeline, MessageFilter(since=at(3), until=at(3))) == []

    async def test_a_bound_may_be_in_any_zone(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add(numbered("a", 5))
        shanghai = timezone(timedelta(hours=8))

        wanted = MessageFilter(since=at(1).astimezone(shanghai), until=at(3).astimezone(shanghai))

        assert await ids(timeline, wanted) == ["a2", "a1"]

    @pytest.mark.usefixtures("computer_in_shanghai")
    async def test_a_bound_without_a_zone_is_utc(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add(numbered("a", 5))

        wanted = MessageFilter(since=datetime(2026, 1, 26, 10, 3))  # noqa: DTZ001

        assert await ids(timeline, wanted) == ["a4", "a3"]

    async def test_by_role(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add([said(role.value, role=role) for role in Role])

        for role in Role:
            assert await ids(timeline, MessageFilter(role=role)) == [role.value]

    async def test_by_session_and_agent(self, store: Store) -> None:
        scopes = [
            Scope("ann", agent_id=agent, session_id=session)
            for agent in ("a1", "a2")
            for session in ("s1", "s2")
        ]
        for scope in scopes:
            await store.timeline(scope).add([said(f"{scope.agent_id}{scope.session_id}")])

        first_session = MessageFilter(session_id="s1")
        assert await ids(store.timeline(ANN), first_session) == ["a1s1", "a2s1"]
        assert await ids(store.timeline(Scope("ann", agent_id="a1"))) == ["a1s1", "a1s2"]
        assert await ids(store.timeline(scopes[0]), first_session) == ["a1s1"]

    async def test_a_bound_session_labels_and_does_not_filter(self, store: Store) -> None:
        await store.timeline(ANN.with_session("s1")).add([said("m1")])
        await store.timeline(ANN.with_session("s2")).add([said("m2")])

        assert await ids(store.timeline(ANN.with_session("s1"))) == ["m1", "m2"]

    async def test_all_filters_at_once_page_by_page(self, store: Store) -> None:
        timeline = store.timeline(ANN.with_session("tea"))
        roles = [Role.USER, Role.ASSISTANT]
        await timeline.add([said(f"m{n}", ts=at(n), role=roles[n % 2]) for n in range(10)])
        await store.timeline(ANN).add([said("else", ts=at(4))])
        wanted = MessageFilter(since=at(2), until=at(8), role=Role.USER, session_id="tea")

        walked = [m.message_id for m in await walk(timeline, wanted, page_size=2)]

        assert walked == ["m6", "m4", "m2"]


class TestNeighbors:
    async def test_the_twenty_before_and_none_after(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add([said(f"m{n:02}", ts=at(n)) for n in range(30)])

        page = await timeline.neighbors("m25")

        assert [m.message_id for m in page.items] == [f"m{n:02}" for n in range(5, 26)]
        assert page.next_cursor is None

    async def test_earliest_first_and_ties_by_id(self, store: Store) -> None:
        timeline = store.timeline(ANN)
        await timeline.add([said(name) for name in "edcba"])
        await timeline.add([said("before", ts=at(-1)), said("later", ts=at(1))])
        order = ["before", *"abcde", "later"]

        for at_, anchor in enumerate(order):
            for before in range(4):
                for after in range(4):
                    page = await timeline.neighbors(anchor, before=before, after=after)
                    expected = order[max(0, at_ - before) : at_ + after + 1]
                    assert [m.message_id for m in page.items] == expected

    async def test_only_the_messages_of_the_scope(self, store: Store) -> None:
        await store.timeline(ANN).add([said("mine", ts=at(1))])
        await store.timeline(BEN).add([said("yours", ts=at(0))])
        await store.timeline(Scope("ann", agent_id="other")).add([said("theirs", ts=at(0))])

        through_agent = store.timeline(Scope("ann", agent_id="default"))
        assert [m.message_id for m in (await through_agent.neighbors("mine")).items] == ["mine"]
        assert len((await store.timeline(ANN).neighbors("mine")).items) == 2

    async def test_counts_out_of_range_are_refused(self, store: Store) -> None:
        async def refuse(counts: tuple[int, int]) -> None:
            before, after = counts
            with pytest.raises(InvalidArgument, match="out of range"):
                await store.timeline(ANN).neighbors("m", before=before, after=after)

        await check_each_async([(-1, 0), (0, -1), (201, 0), (0, 201)], refuse)


class TestNotFound:
    async def test_another_users_message_is_not_there(self, store: Store) -> None:
        await store.timeline(BEN).add([said("theirs", "secret")])
        await store.timeline(ANN).add([said("mine")])
        timeline = store.timeline(ANN)

        with pytest.raises(NotFound) as foreign:
            await timeline.get("theirs")
        with pytest.raises(NotFound) as unknown:
            await timeline.get("nothing")
        with pytest.raises(NotFound):
            await timeline.neighbors("theirs")

        # Nothing tells a foreign id from one that does not exist.
        assert str(foreign.value).replace("theirs", "nothing") == str(unknown.value)
        assert await timeline.get_many(["theirs", "mine"]) == [await timeline.get("mine")]

    async def test_another_agents_message_is_not_there(self, store: Store) -> None:
        await store.timeline(Scope("ann", agent_id="a1")).add([said("m")])

        with pytest.raises(NotFound):
            await store.timeline(Scope("ann", agent_id="a2")).get("m")

    async def test_many_ids_can_be_asked_for_at_once(self, store: Store) -> None:
        await store.timeline(ANN).add(numbered("a", 3))
        wanted = [f"a{n}" for n in range(40_000)]

        # Gathered, because a driver's complaint would carry all forty thousand.
        (found,) = await asyncio.gather(
            store.timeline(ANN).get_many(wanted), return_exceptions=True
        )

        assert not isinstance(found, BaseException), str(found)
        assert sorted(m.message_id for m in found) == ["a0", "a1", "a2"]


def test_the_fingerprint_of_a_filter_tells_every_field() -> None:
    fields: list[MessageFilter] = [
        MessageFilter(),
        MessageFilter(since=datetime(2026, 1, 1, tzinfo=UTC)),
        MessageFilter(until=datetime(2026, 1, 1, tzinfo=UTC)),
        MessageFilter(role=Role.USER),
        MessageFilter(session_id="user"),
    ]

    prints = {str(wanted.fingerprint()) for wanted in fields}

    assert len(prints) == len(fields)


class TestLabelled:
    """Messages found by a text in their metadata, from the end of a session backwards."""

    async def written(self, store: Store) -> Timeline:
        scope = Scope("ann", session_id="s")
        labels: list[dict[str, object]] = [
            {"mentions": ["bot"]},
            {"mentions": ["小深", "a_b"]},
            {},
            {"member_id": "bot"},
            {"mentions": ["axb", "robot"]},
        ]
        batch = [said(f"m{n}", ts=at(n), metadata=label) for n, label in enumerate(labels)]
        await store.timeline(scope).add(batch)
        other = scope.with_session("other")
        await store.timeline(other).add([said("x", metadata={"mentions": ["bot"]})])
        await store.timeline(BEN).add([said("y", metadata={"mentions": ["bot"]})])
        return store.timeline(scope)

    async def test_the_latest_first_and_of_the_session_alone(self, store: Store) -> None:
        timeline = await self.written(store)

        async def look(case: tuple[str, list[str]]) -> None:
            label, found = case
            messages = await timeline.find_labelled(label, session_id="s", depth=100)
            assert [message.message_id for message in messages] == found

        cases = {"bot": ["m3", "m0"], "小深": ["m1"], "a_b": ["m1"], "nobody": [], "%": []}
        await check_each_async(cases.items(), look)

    async def test_only_so_far_back_and_so_many(self, store: Store) -> None:
        timeline = await self.written(store)
        near = await timeline.find_labelled("bot", session_id="s", depth=4)
        assert [message.message_id for message in near] == ["m3"]
        one = await timeline.find_labelled("bot", session_id="s", depth=100, limit=1)
        assert [message.message_id for message in one] == ["m3"]
