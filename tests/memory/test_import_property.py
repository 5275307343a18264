"""An import loses nothing, counts what it does, and leaves a user who can be used as before."""

from collections import Counter
from contextlib import suppress
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.errors import NotFound
from memrecall.importers.importer import IMPORT_KEY, undo_import
from memrecall.library.library import Library
from memrecall.memory import AsyncMemory
from memrecall.scope import Scope, space_of, space_owner
from memrecall.store import MessageFilter
from memrecall.types import NewMemory, NewMessage, Origin, Role

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
PLACES = st.sampled_from(["another user", "the same", "erased", "session erased", "space"])
Row = tuple[str, str, str, str, str | None, int, bool]


async def fill(library: Library, user: str, rows: list[Row]) -> None:
    for kind, key, session, word, project, minute, is_imported in rows:
        scope = Scope.of_owner(user, session_id=session, project=project)
        if kind == "message":
            label = {IMPORT_KEY: LABEL} if is_imported else {}
            said = at(minute)
            message = NewMessage(
                message_id=key, content=word, role=Role.USER, ts=said, metadata=label
            )
            await library.store.timeline(scope).add([message])
        else:
            memory = NewMemory(memory_key=key, content=word)
            await library.store.memories(scope).add([memory], origin=Origin.USER)


async def prepare(memory: AsyncMemory, place: str, source: str, rows: list[Row]) -> str:
    """Return the user, or the owner of a space, to import into, filled with more rows."""
    library = (await memory._open()).library
    target = f"{source}-target"
    if place == "space":
        await memory.bind(user_id=target).create_space(f"{target}-team")
        target = space_owner(f"{target}-team")
    elif place != "another user":
        target = source
        if place == "erased":
            await library.erase_user(source)
        elif place == "session erased":
            with suppress(NotFound):  # nothing was said in it
                await library.erase_session(source, "tea")
    if place != "the same":
        stored = await read_all(library, target)
        await fill(library, target, [row for row in rows if row[1] not in stored])
    return target


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
    """Write, search, undo and erase, as if nothing had been imported."""
    library = (await memory._open()).library
    before = await read_all(library, user)
    for session in ("default", "tea", "work"):
        timeline = library.store.timeline(Scope.of_owner(user, session_id=session))
        numbers = [
            m.sequence_no for m in await read_pages(timeline, MessageFilter(session_id=session))
        ]
        names = [f"new-{session}-{n}" for n in range(3)]
        await timeline.add(
            [NewMessage(message_id=n, content="pecan", role=Role.USER) for n in names]
        )
        added = await timeline.get_many(names)
        assert min(m.sequence_no for m in added) > max(numbers, default=0)
    if space_of(user) is None:
        for word in ("walnut", "almond"):
            found = (await memory.search(word, user, limit=10, threshold=0))["results"]
            expected = {key for key, row in before.items() if row["content"] == word}
            assert {item["id"] for item in found if item["memory"] == word} == expected
        for key in [key for key, row in before.items() if row["kind"] == "memory"][:1]:
            await memory.delete(key, user_id=user)
            await memory.undo(key, user_id=user)
            assert (await read_all(library, user))[key] == before[key]
    labelled = await library.store.timeline(Scope.of_owner(user)).count_metadata(IMPORT_KEY)
    undone = await undo_import(library, user, LABEL.split()[0])
    assert undone["messages"] == sum(number for _, _, number in labelled)
    await library.erase_user(user)
    assert await library.store.feed(user).version() is None


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=STORES, others=STORES, place=PLACES)
async def test_import_into_any_store_loses_nothing(
    memory: AsyncMemory, rows: list[Row], others: list[Row], place: str
) -> None:
    library = (await memory._open()).library
    source = f"user{next(NUMBERS)}"
    await fill(library, source, rows)
    if not rows:
        return
    records = [record async for record in library.export_user(source)]
    exported = await read_all(library, source)
    target = await prepare(memory, place, source, others)
    before = await read_all(library, target)
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
    await check_use(memory, target)
