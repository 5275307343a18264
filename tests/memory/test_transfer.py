"""Export, import and complete erasure of a user's data."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import InvalidArgument, NotFound
from memrecall.importers.importer import list_imports, undo_import
from memrecall.memory import AsyncMemory
from memrecall.scope import Scope
from memrecall.store import WriteStatus

from ..databases import Databases, PostgresqlDatabases, SqliteDatabases
from .conftest import make_settings
from .word_extractor import WordExtractor

CANARY = "zqcanaryzq"


async def fill(memory: AsyncMemory, user: str = "ann", word: str = "Paris") -> None:
    """Store rows in every table."""
    await memory.add(f"home: {word}.", user, session_id="s", metadata={"k": word})
    (update,) = (await memory.add(f"home: {word}2.", user, session_id="s"))["results"]
    await memory.update(update["id"], f"corrected {word}")
    await memory.add(f"{word} works_at {word}ACME", user, session_id="s")
    notes = await memory.add([f"{word} note {n}" for n in range(9)], user, "a2", infer=False)
    await memory.delete(notes["results"][0]["id"])
    await memory.summarize(user, session_id="s")
    short_term = await memory.short_term(user, session_id="s")
    short_term.scratch = {"w": word}
    await memory.checkpoint(user, session_id="s")
    await memory.search(word, user)


async def fill_everything(memory: AsyncMemory) -> None:
    """Store rows in every state that an export has, besides those of `fill`."""
    await fill(memory)
    library = (await memory._open()).library
    await library.store.owners.set_time_zone("ann", "Asia/Shanghai")
    said = datetime(2024, 2, 29, 23, 59, 59, 1, tzinfo=timezone(timedelta(hours=8)))
    odd = {"text": "“引号” \u2028 \\n ü", "number": 1e23, "empty": None, "deep": [{"a": [1.50]}]}
    texts = [
        {"role": "user", "content": "b: 上海。", "ts": said, "message_id": "B", "metadata": odd},
        {"role": "tool", "content": "a: \u00e9\U0001f600", "speaker": "Zoë", "message_id": "a"},
        {"role": "user", "content": "ä Z", "message_id": "ä", "parent_message_id": "a"},
    ]
    await memory.add(texts, "ann", session_id="Sitzung ß")
    expired = await memory.add("gone", "ann", infer=False, expiration_date="2024-01-01")
    await memory.add("secret", "ann", infer=False, sensitive=True, memory_type="short")
    await memory.update(expired["results"][0]["id"], pinned=True, metadata={"k": 0.1})
    for alias in ("Ärger", "Zoll"):
        await library.graph(Scope("ann")).merge("Paris", alias)
    await memory.add("purge me", "ann", infer=False)
    (purged,) = (await memory.get_all("ann", limit=1))["results"]
    await memory.purge(purged["id"], sources=True)
    (hidden,) = (await memory.add("hide me", "ann", infer=False))["results"]
    await memory.delete(hidden["id"], sources=True)
    (undone,) = (await memory.add("undo me", "ann", infer=False))["results"]
    await memory.delete(undone["id"])
    await memory.undo(undone["id"])
    await memory.end_session("ann", session_id="Sitzung ß", success=False)
    recall = await memory.recall("Paris?", "ann")
    feedback = library.store.feedback(Scope("ann"))
    await feedback.set(recall.trace.trace_id, is_right=False, evidence=["ä", "B"])


async def read_export(memory: AsyncMemory, user: str = "ann") -> bytes:
    return b"".join([line.encode() + b"\n" async for line in memory.export(user)])


async def test_export_of_an_import_is_equal_in_every_database(
    tmp_path: Path, sqlite_template: Path, postgresql_server: Any, database_pool: Any
) -> None:
    sqlite = SqliteDatabases(tmp_path, sqlite_template)
    postgresql = PostgresqlDatabases(postgresql_server, database_pool)
    locations = [d.fresh() for d in (sqlite, postgresql, sqlite, postgresql, postgresql)]
    exports: list[bytes] = []
    try:
        for location in locations:
            settings = make_settings(location)
            async with AsyncMemory(settings=settings, extractor=WordExtractor()) as memory:
                await memory.add("another user comes first", "zoe")
                if exports:
                    counts = await memory.import_(exports[-1].splitlines(), "ann")
                    assert all(counts.values()), f"the test fills every table: {counts}"
                else:
                    await fill_everything(memory)
                exports.append(await read_export(memory))
                await memory.search("Paris", "zoe")
                assert await read_export(memory) == exports[-1]
                # What was imported can be used.
                found = (await memory.search("corrected", "ann"))["results"]
                assert found[0]["memory"] == "corrected Paris"
                assert await memory.restore("ann", session_id="s")
                assert (await memory.graph("paris", "ann"))["relations"]
    finally:
        postgresql.close()
    for number, text in enumerate(exports[1:], 1):
        assert text.decode().splitlines() == exports[0].decode().splitlines(), number
    assert len(set(exports)) == 1
    assert b"purge me" not in exports[0]
    for name in (b"change_no", b"version", b"epoch", b"search_text"):
        assert b'"' + name + b'"' not in exports[0]


async def test_import_can_be_repeated(memory: AsyncMemory, databases: Databases) -> None:
    await fill(memory)
    lines = await read_export(memory)
    async with AsyncMemory(
        settings=make_settings(databases.fresh()), extractor=WordExtractor()
    ) as other:
        for _ in range(2):
            await other.import_(lines.splitlines(), "ann")
            assert await read_export(other) == lines
        await other.add("and on", "ann", session_id="s", infer=False)


async def read_rows(memory: AsyncMemory, user: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of an export by table, without what writes and searches move on."""
    moving = {"update_time", "last_active_time", "last_sequence_no", "last_create_time"}
    moving.add("last_recalled_at")
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in (await read_export(memory, user)).splitlines():
        record = json.loads(line)
        values = {name: value for name, value in record["row"].items() if name not in moving}
        rows.setdefault(record["table"], []).append(values)
    del rows["users"]
    return rows


async def test_import_of_an_export_can_be_taken_back(memory: AsyncMemory) -> None:
    await fill_everything(memory)
    lines = (await read_export(memory)).splitlines()
    await fill(memory, "ben", "Rome")
    await memory.add("home: Bern.", "ben", session_id="Sitzung ß")
    library = (await memory._open()).library
    before = await read_rows(memory, "ben")
    assert await list_imports(library, "ben") == []

    counts = await memory.import_(lines, "ben")
    await memory.import_(lines, "ben")  # writes nothing new

    (item,) = await list_imports(library, "ben")
    assert (item["id"], item["format"], item["file"]) == (counts.import_id, "memrecall", "-")
    assert item["messages"] == counts["messages"]
    assert item["memories"] == counts["memories"]
    assert (await memory.search("corrected Paris", "ben"))["results"]
    result = await undo_import(library, "ben", counts.import_id)
    assert result["messages"] == counts["messages"]
    assert result["memories"] == counts["memories"]
    assert await read_rows(memory, "ben") == before
    assert await list_imports(library, "ben") == []
    assert "Paris" not in str(await memory.search("Paris", "ben", threshold=0))
    again = await memory.import_(lines, "ben")
    assert again.statuses == counts.statuses
    await memory.erase("ben")


async def test_undo_of_an_export_keeps_what_rests_on_it_and_was_written_later(
    memory: AsyncMemory,
) -> None:
    await fill_everything(memory)
    lines = (await read_export(memory)).splitlines()
    library = (await memory._open()).library
    counts = await memory.import_(lines, "ben")
    await memory.add("Paris works_at ParisACME", "ben", session_id="new")
    await memory.add("home: Oslo.", "ben", session_id="s")

    await undo_import(library, "ben", counts.import_id)

    (relation,) = (await memory.graph("paris", "ben"))["relations"]
    assert relation["relationship"] == "works_at"
    rows = await read_rows(memory, "ben")
    assert {row["session_id"] for row in rows["sessions"]} == {"new", "s"}
    assert {row["content"] for row in rows["messages"]} == {
        "Paris works_at ParisACME",
        "home: Oslo.",
    }


async def test_what_was_erased_after_an_import_stays_erased_when_it_is_taken_back(
    memory: AsyncMemory,
) -> None:
    library = (await memory._open()).library
    for user in ("ann", "ben"):
        said = [{"role": "user", "content": "tea", "message_id": name} for name in ("m1", "m2")]
        await memory.add(said, user, infer=False)
    lines = (await read_export(memory)).splitlines()
    await memory.purge("m1", user_id="ann")
    counts = await memory.import_((await read_export(memory)).splitlines(), "ben")
    await memory.purge("m1", user_id="ben")
    await undo_import(library, "ben", counts.import_id)
    assert (await memory.import_(lines, "ben")).statuses[WriteStatus.ERASED]
    assert await memory.get("m1", user_id="ben") is None


async def test_import_refuses_other_data_completely(memory: AsyncMemory) -> None:
    await fill(memory)
    lines = [line async for line in memory.export("ann")]
    invalid_lines = [
        "no json",
        "[1]",
        "{}",
        '{"format": 1, "table": "api_keys", "row": {}}',
        '{"format": 2, "table": "messages", "row": {}}',
        '{"format": 1, "table": "messages", "row": {"message_id": "m"}}',
        '{"format": 1, "table": "messages", "row": {"surprise": 1}}',
    ]
    for line in invalid_lines:
        with pytest.raises(InvalidArgument):
            await memory.import_([*lines, line], "new")
    with pytest.raises(NotFound):
        assert [line async for line in memory.export("new")]


async def test_erase_leaves_no_bytes_on_disk(tmp_path: Path) -> None:
    file = tmp_path / "memrecall.db"
    settings = make_settings(str(file), index_memory_mb=16)
    async with AsyncMemory(settings=settings, extractor=WordExtractor()) as memory:
        await fill(memory, "ann", CANARY)
        await fill(memory, "ben", "Rome")
        assert files_with_canary(tmp_path)

        counts = await memory.erase("ann")

        assert counts["messages"] == 12
        assert files_with_canary(tmp_path) == []
        assert (await memory.get_all("ben"))["results"]
        assert (await memory.search(CANARY, "ann"))["results"] == []


def files_with_canary(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if CANARY.encode() in path.read_bytes()]
