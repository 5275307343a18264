"""Imports into a user who has data already: nothing is lost, and writes go on."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update

from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.store.database.engine import Database
from memrecall.store.database.tables import memberships, messages, summaries
from memrecall.store.transfer import ImportCounts, export_user, import_user
from memrecall.types import Message

from .samples import ANN, add_memory, new_message, read_pages
from .test_migrations import make_old
from .test_numbering import assert_numbered

TEA = Scope("ann", session_id="tea")
CY = Scope("cy", session_id="tea")


async def say(store: Store, scope: Scope, *names: str) -> None:
    await store.timeline(scope).add([new_message(name) for name in names])


async def exported(store: Store, user: str) -> list[dict[str, Any]]:
    return [record async for record in export_user(store.database, user)]


async def import_as(store: Store, user: str, records: Sequence[dict[str, Any]]) -> ImportCounts:
    return await import_user(store.database, user, records)


async def in_order(store: Store, scope: Scope = TEA) -> list[Message]:
    found = await read_pages(store.timeline(Scope(scope.user_id)))
    return sorted(found, key=lambda message: message.sequence_no)


async def test_two_machines_with_the_same_session_lose_nothing(store: Store) -> None:
    await say(store, TEA, "a1", "a2", "a3")
    await say(store, CY, *(f"b{n}" for n in range(5)))

    counts = await import_as(store, "ann", await exported(store, "cy"))

    assert counts.statuses == {"new": 5}
    assert (counts.joined, counts.skipped) == (["tea"], {})
    found = await in_order(store)
    assert [m.message_id for m in found] == ["a1", "a2", "a3", "b0", "b1", "b2", "b3", "b4"]
    assert_numbered(found)
    await say(store, TEA, "later")
    assert_numbered(await in_order(store))
    again = await import_as(store, "ann", await exported(store, "cy"))
    assert again.statuses == {"same": 5}
    assert len(await in_order(store)) == 9


async def test_exports_of_two_machines_in_one_file(store: Store) -> None:
    await say(store, TEA, "a1", "a2")
    await say(store, CY, "b1", "b2", "b3")
    both = [*await exported(store, "ann"), *await exported(store, "cy")]

    counts = await import_as(store, "eve", both)

    assert counts.statuses == {"new": 5}
    found = await in_order(store, Scope("eve"))
    assert [m.message_id for m in found] == ["a1", "a2", "b1", "b2", "b3"]  # by time
    assert_numbered(found)


async def test_part_of_a_session_that_was_written_anew_comes_back(store: Store) -> None:
    await say(store, TEA, *(f"a{n}" for n in range(5)))
    records = await exported(store, "ann")
    await store.owners.erase_user("ann")
    await say(store, TEA, "n1", "n2", "n3")

    counts = await import_as(store, "ann", records)

    assert counts.statuses == {"new": 5}
    await say(store, TEA, "later", "and later")
    found = await in_order(store)
    assert len(found) == 10
    assert_numbered(found)


async def test_parts_of_an_export_follow_each_other_in_a_session_that_is_in_use(
    store: Store,
) -> None:
    await say(store, TEA, "a1")
    await say(store, CY, "b1", "b2", "b3")
    for record in await exported(store, "cy"):
        await import_as(store, "ann", [record])
    found = await in_order(store)
    assert [m.message_id for m in found] == ["a1", "b1", "b2", "b3"]
    assert_numbered(found)


async def test_import_names_what_it_does_not_store(store: Store) -> None:
    await say(store, TEA, "a1", "a2", "gone")
    await add_memory(store, "tea")
    records = await exported(store, "ann")
    await store.changes(ANN).purge_message("gone")
    for record in records:
        row = record["row"]
        if row.get("message_id") == "a1" or row.get("memory_key") == "tea":
            row["content"] = "other words"
    # Its id is that of a stored memory, so that one of the two could not be found by it.
    others = [r for r in records if r["row"].get("message_id") == "a2"]
    records.append({**others[0], "row": {**others[0]["row"], "message_id": "tea"}})

    counts = await import_as(store, "ann", records)

    assert counts.statuses == {"same": 1, "conflict": 3, "erased": 1}
    assert counts.skipped["messages"] == ["gone", "a1", "tea"]
    assert counts.skipped["memories"] == ["tea"]
    assert len(await in_order(store)) == 2


async def test_names_of_speakers_in_a_file_are_printable(store: Store) -> None:
    await say(store, TEA, "a1", "a2")
    records = await exported(store, "ann")
    of_messages = [record["row"] for record in records if record["table"] == "messages"]
    for row, speaker in zip(of_messages, ("Ann\u202e  Lee", "\u200b"), strict=True):
        row["speaker"] = speaker

    await import_as(store, "new", records)

    found = await in_order(store, Scope("new"))
    assert [message.speaker for message in found] == ["Ann Lee", None]


async def test_grants_in_a_file_for_a_user_are_named(store: Store) -> None:
    await say(store, TEA, "a1")
    row = {"user_id": "ann", "member": "eve", "role": "admin", "created_at": "2026-01-01T00:00:00Z"}
    grant = {"format": 1, "table": "memberships", "row": row}

    counts = await import_as(store, "new", [*await exported(store, "ann"), grant])

    assert counts["memberships"] == 1
    assert (counts.skipped, counts.joined) == ({"memberships": ["eve"]}, [])
    assert await store.database.fetch(select(memberships)) == []


async def test_summaries_do_not_describe_messages_with_other_numbers(store: Store) -> None:
    await say(store, TEA, "a1", "a2")
    await say(store, CY, "b1", "b2")
    records = await exported(store, "cy")
    row = {"user_id": "cy", "agent_id": "default", "session_id": "tea", "level": 0, "number": 1}
    row |= {"first_sequence_no": 1, "last_sequence_no": 2, "text": "of b", "made_by": "m"}
    row |= {"created_at": "2026-01-01T00:00:00Z"}
    records.append({"format": 1, "table": "summaries", "row": row})

    for _ in range(2):
        counts = await import_as(store, "ann", records)
        assert counts.skipped["summaries"] == ["default/tea/0/1"]
    assert await store.database.fetch(select(summaries)) == []


async def test_two_messages_of_one_moment_are_both_stored(store: Store) -> None:
    await say(store, CY, "b1", "b2")
    records = await exported(store, "cy")
    times = [r["row"]["create_time"] for r in records if r["table"] == "messages"]
    for record in records:
        if record["table"] == "messages":
            record["row"]["create_time"] = times[0]
    assert (await import_as(store, "ann", records)).statuses == {"new": 2}
    assert_numbered(await in_order(store))


async def test_an_ended_session_takes_what_belongs_to_it(store: Store) -> None:
    await say(store, CY, "b1", "b2")
    records = await exported(store, "cy")
    await say(store, TEA, "a1")
    await store.owners.end_session("ann", "tea")
    assert (await import_as(store, "ann", records)).statuses == {"new": 2}
    assert_numbered(await in_order(store))


async def test_counters_that_are_behind_their_rows_are_repaired_when_opened(
    empty_location: str,
) -> None:
    await make_old(empty_location, 13)
    database = Database(empty_location)
    number = messages.c.sequence_no
    ahead = update(messages).where(messages.c.message_id == "m2", messages.c.user_id == "ann")
    try:
        await database.transact(lambda c: c.execute(ahead.values(sequence_no=number + 2)))
    finally:
        await database.close()

    async with await Store.open(empty_location) as store:
        timeline = store.timeline(Scope("ann", session_id="open"))
        for name in ("n1", "n2", "n3"):
            await timeline.add([new_message(name)])
        assert [(await timeline.get(n)).sequence_no for n in ("m2", "n1", "n3")] == [4, 5, 7]
