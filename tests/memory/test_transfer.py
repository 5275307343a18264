"""Export, import and complete erasure of a user's data."""

import json
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import InvalidArgument, NotFound
from memrecall.memory import AsyncMemory

from ..databases import Databases
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


async def export_rows(memory: AsyncMemory, user: str = "ann") -> list[dict[str, Any]]:
    lines = [json.loads(line) async for line in memory.export(user)]
    for line in lines:
        for name in ("change_no", "user_id", "update_time", "create_time", "last_active_time"):
            line["row"].pop(name, None)
    return lines


async def test_export_import_round_trip_between_databases(
    memory: AsyncMemory, databases: Databases
) -> None:
    await fill(memory)
    await fill(memory, "ben", "Rome")
    lines = [line async for line in memory.export("ann")]
    settings = make_settings(databases.fresh())

    async with AsyncMemory(settings=settings, extractor=WordExtractor()) as other:
        counts = await other.import_(lines, "ann")
        assert counts["messages"] == 12
        assert await export_rows(other) == await export_rows(memory)
        page = await other.search("corrected", "ann")
        assert page["results"][0]["memory"] == "corrected Paris"
        assert await other.restore("ann", session_id="s")
        assert (await other.graph("paris", "ann"))["relations"]

        before = await export_rows(other)
        await other.import_(lines, "ann")
        assert await export_rows(other) == before
        await other.add("and on", "ann", session_id="s", infer=False)


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
