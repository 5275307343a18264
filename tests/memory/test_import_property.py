"""An import loses nothing, counts what it does, and leaves an owner who can be used as before.

Owners are users and spaces, on both sides; taking the import back leaves what was there before.
"""

from collections import Counter
from contextlib import suppress
from itertools import count
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memrecall.errors import NotFound
from memrecall.importers.importer import IMPORT_KEY, list_imports, undo_import
from memrecall.library.library import Library
from memrecall.memory import AsyncMemory
from memrecall.memory.spaces import SpaceMemory
from memrecall.scope import Scope, space_of, space_owner
from memrecall.store import MessageFilter
from memrecall.types import EXTRACTION, NewMemory, NewMessage, Origin, Role

from ..store.samples import at, read_pages, read_tables

NUMBERS = count()
LABEL = "imp_1 chat file"
IDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
SESSIONS = st.sampled_from(["default", "tea", "work"])
WORDS = st.sampled_from(["walnut", "almond"])
PROJECTS = st.sampled_from([None, "shop", "site"])
MESSAGES = st.tuples(
    st.just("message"), IDS, SESSIONS, WORDS, PROJECTS, st.integers(0, 3), st.booleans()
)
MEMORIES = st.tuples(
    st.just("memory"), IDS, SESSIONS, WORDS, PROJECTS, st.integers(0, 3), st.booleans()
)
STORES = st.lists(st.one_of(MESSAGES, MESSAGES, MEMORIES), max_size=7, unique_by=lambda row: row[1])
PLACES = st.sampled_from(["another", "the same", "erased", "session erased"])
KINDS = st.sampled_from(["user", "space"])
Row = tuple[str, str, str, str, str | None, int, bool]
# What a later write or search moves on.
MOVING = {"update_time", "last_active_time", "last_sequence_no", "last_create_time"}


def admin_of(space_id: str) -> str:
    return f"{space_id}-admin"


async def make_owner(memory: AsyncMemory, kind: str, name: str) -> str:
    """Return the id of a user, or of the owner of a new space."""
    if kind == "user":
        return name
    await memory.bind(user_id=admin_of(name)).create_space(name)
    return space_owner(name)


def enter(memory: AsyncMemory, owner: str) -> AsyncMemory | SpaceMemory:
    """Return the memory of a user, or of a space for its admin."""
    space_id = space_of(owner)
    if space_id is None:
        return memory.bind(user_id=owner)
    return memory.bind(user_id=admin_of(space_id)).space(space_id)


async def fill(library: Library, user: str, rows: list[Row]) -> None:
    """Store rows; a memory that is `special` was extracted from the message before it."""
    said: tuple[str, ...] = ()
    for kind, key, session, word, project, minute, is_special in rows:
        scope = Scope.of_owner(user, session_id=session, project=project)
        if kind == "message":
            said = (key,)
            label = {IMPORT_KEY: LABEL} if is_special else {}
            ts = at(minute)
            message = NewMessage(
                message_id=key, content=word, role=Role.USER, ts=ts, metadata=label
            )
            await library.store.timeline(scope).add([message])
        else:
            derived = {"source_message_ids": said if is_special else ()}
            memory = NewMemory(memory_key=key, content=word, **derived)
            actor = EXTRACTION if is_special else "user"
            await library.store.memories(scope).add([memory], origin=Origin.USER, actor=actor)


async def prepare(memory: AsyncMemory, place: str, kind: str, source: str, rows: list[Row]) -> str:
    """Return the owner to import into, filled with more rows."""
    library = (await memory._open()).library
    target = source
    if place == "another":
        target = await make_owner(memory, kind, f"target{next(NUMBERS)}")
    elif place == "erased":
        await library.erase_user(source)
        if (space_id := space_of(source)) is not None:
            await make_owner(memory, "space", space_id)
    elif place == "session erased":
        with suppress(NotFound):  # nothing was said in it
            await library.erase_session(source, "tea")
    if place != "the same":
        stored = await read_all(library, target)
        await fill(library, target, [row for row in rows if row[1] not in stored])
    return target


async def export_rows(library: Library, user: str) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of an owner but its own, by table, in their order."""
    rows: dict[str, list[dict[str, Any]]] = {}
    with suppress(NotFound):
        async for record in library.export_user(user):
            values = {n: value for n, value in record["row"].items() if n not in MOVING}
            rows.setdefault(record["table"], []).append(values)
    rows.pop("users", None)
    return rows


async def read_all(library: Library, user: str) -> dict[str, dict[str, Any]]:
    """Return what is stored, by key, without what a merge may change."""
    scope = Scope.of_owner(user)
    found = await read_pages(library.store.timeline(scope))
    names = {"content", "session_id", "project", "ts"}
    rows = {m.message_id: {"kind": "message", **m.model_dump(include=names)} for m in found}
    numbers = [(m.session_id, m.sequence_no) for m in found]
    assert len(set(numbers)) == len(numbers)
    times = [(m.session_id, m.create_time) for m in found]
    assert len(set(times)) == len(times)
    for record in await library.store.memories(scope).get_many(list("abcdef")):
        fields = record.model_dump(include=names - {"ts"})
        rows[record.memory_key] = {"kind": "memory", **fields}
    return rows


async def check_use(memory: AsyncMemory, user: str) -> None:
    """Write, search and undo, as if nothing had been imported."""
    library = (await memory._open()).library
    inside, before = enter(memory, user), await read_all(library, user)
    for session in ("default", "tea", "work"):
        timeline = library.store.timeline(Scope.of_owner(user, session_id=session))
        numbers = [
            m.sequence_no for m in await read_pages(timeline, MessageFilter(session_id=session))
        ]
        names = [f"new-{next(NUMBERS)}" for n in range(3)]
        await timeline.add(
            [NewMessage(message_id=n, content="pecan", role=Role.USER) for n in names]
        )
        added = await timeline.get_many(names)
        assert min(m.sequence_no for m in added) > max(numbers, default=0)
    memories = await library.store.memories(Scope.of_owner(user)).get_many(list("abcdef"))
    # A search leaves out what a memory says that comes from it.
    sources = {name for memory in memories for name in memory.source_message_ids}
    for word in ("walnut", "almond"):
        found = (await inside.search(word, limit=10, threshold=0))["results"]
        ids = {item["id"] for item in found if item["memory"] == word}
        expected = {key for key, row in before.items() if row["content"] == word}
        assert expected - sources <= ids <= expected
    for key in [key for key, row in before.items() if row["kind"] == "memory"][:1]:
        await inside.delete(key)
        await inside.undo(key)
        assert (await read_all(library, user))[key] == before[key]


async def check_undo_and_erasure(memory: AsyncMemory, user: str) -> None:
    """Take back what other imports labelled, and erase the owner."""
    library = (await memory._open()).library
    labelled = await library.store.timeline(Scope.of_owner(user)).count_metadata(IMPORT_KEY)
    undone = await undo_import(library, user, LABEL.split()[0])
    assert undone["messages"] == sum(number for _, _, number in labelled)
    await library.erase_user(user)
    assert await library.store.feed(user).version() is None


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=STORES, others=STORES, place=PLACES, kinds=st.tuples(KINDS, KINDS))
@example(  # a memory whose message the import brings back
    rows=[
        ("message", "a", "tea", "walnut", None, 0, True),
        ("memory", "d", "default", "walnut", None, 0, True),
    ],
    others=[],
    place="session erased",
    kinds=("space", "user"),
)
async def test_import_into_any_store_loses_nothing(
    memory: AsyncMemory, rows: list[Row], others: list[Row], place: str, kinds: tuple[str, str]
) -> None:
    library = (await memory._open()).library
    source = await make_owner(memory, kinds[0], f"source{next(NUMBERS)}")
    await fill(library, source, rows)
    if not rows:
        return
    records = [record async for record in library.export_user(source)]
    exported = await read_all(library, source)
    target = await prepare(memory, place, kinds[1], source, others)
    before, rows_before = await read_all(library, target), await export_rows(library, target)
    tombstones = (await read_tables(library.store.database, "tombstones"))["tombstones"]
    erased = {row["key"] for row in tombstones if row["user_id"] == target}

    counts = await library.import_user(target, records)

    after = await read_all(library, target)
    expected, statuses, skipped = dict(before), Counter[str](), set()
    for key, row in exported.items():
        if key not in before and key not in erased:
            expected[key] = row
        is_same = all(before.get(key, row)[n] == row[n] for n in ("kind", "content"))
        status = "new" if key not in before else "same" if is_same else "conflict"
        status = "erased" if key in erased else status
        statuses[status] += 1
        skipped |= {key} if status in ("conflict", "erased") else set()
    assert after == expected
    assert counts.statuses == statuses
    named = {key for table in ("messages", "memories") for key in counts.skipped.get(table, ())}
    assert named == skipped
    again = await library.import_user(target, records)
    assert sum(again.statuses.values()) == len(exported)
    assert "new" not in again.statuses
    assert await read_all(library, target) == after

    await undo_import(library, target, counts.import_id)
    assert await export_rows(library, target) == rows_before
    third = await library.import_user(target, records)
    assert third.statuses == counts.statuses
    assert await read_all(library, target) == after
    await check_use(memory, target)
    undone = await undo_import(library, target, third.import_id)
    assert undone["messages"] + undone["memories"] == statuses["new"]
    left = await read_all(library, target)
    assert {key: row for key, row in left.items() if not key.startswith("new-")} == before
    await check_use(memory, target)
    assert {item["id"] for item in await list_imports(library, target)} <= {LABEL.split()[0]}
    await check_undo_and_erasure(memory, target)
