"""`memrecall doctor` on databases that are damaged, and on whole ones."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.types import NewMessage, Role

from .conftest import Outcome, Shell

MESSAGES = 600  # enough for a snapshot of the index


@pytest.fixture
def chat(shell: Shell, tmp_path: Path) -> Path:
    """A database with an index that was saved."""
    file, lines = tmp_path / "chat.db", tmp_path / "lines.jsonl"
    lines.write_text(
        "".join(
            f'{{"user_id": "ann", "message_id": "m{n}", "role": "user", "content": "tea {n}",'
            f' "ts": "2026-03-01T09:00:{n % 60:02}Z"}}\n'
            for n in range(MESSAGES)
        )
    )
    shell("import", lines, "--db", file)
    shell("search", "tea", "--user", "ann", "--db", file)
    assert os.listdir(f"{file}-index")
    return file


def findings(outcome: Outcome) -> dict[str, Any]:
    return {item["subject"]: item for item in outcome.json["findings"]}


def test_whole_database_is_reported_as_checked(shell: Shell, chat: Path) -> None:
    for options in ((), ("--deep",), ("--read-only", "--deep")):
        outcome = shell("doctor", "--db", chat, "--json", *options)
        found = findings(outcome)
        assert (outcome.code, outcome.json["ok"]) == (0, True)
        for subject in ("integrity", "tables", "references", "indexes"):
            assert found[subject]["ok"]
            assert "all rows and indexes" in found[subject]["message"]
        assert ("permissions" in found) == ("--read-only" not in options)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    os.truncate(file, 4096 * (file.stat().st_size // 8192))


def overwrite(file: Path) -> None:
    file.write_bytes(b"not a database, but long enough to be one" * 100)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (empty, "is empty (0 bytes)"),
        (cut, "malformed|invalid page"),
        (overwrite, "not a database"),
    ],
)
def test_damaged_file_is_reported(
    shell: Shell, chat: Path, damage: Callable[[Path], None], problem: str
) -> None:
    damage(chat)
    size = chat.stat().st_size
    outcome = shell("doctor", "--db", chat, "--json", "--quick")
    said = " ".join(item["message"] for item in outcome.json["findings"] if not item["ok"])
    assert outcome.code == 1
    assert any(part in said for part in problem.split("|"))
    assert chat.stat().st_size == size  # it is not repaired by a new, empty schema


def test_writing_command_does_not_begin_anew_in_an_emptied_file(shell: Shell, chat: Path) -> None:
    empty(chat)
    refused = shell("memories", "add", "tea", "--user", "ann", "--db", chat)
    assert (refused.code, "is empty (0 bytes)" in refused.err) == (2, True)
    assert chat.stat().st_size == 0


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_database_of_another_program_is_named_and_left_alone(
    shell: Shell, tmp_path: Path, journal: str
) -> None:
    file = tmp_path / "browser.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("CREATE TABLE places (url TEXT)")
        connection.commit()
    contents = file.read_bytes()
    outcome = shell("doctor", "--db", file, "--json", "--quick")
    assert (outcome.code, outcome.json["ok"]) == (1, False)
    assert "another program: it has a table 'places'" in findings(outcome)["database"]["message"]
    assert "of another program" in shell("stats", "--db", file).err
    assert file.read_bytes() == contents
    assert list(tmp_path.glob("browser.sqlite*")) == [file]


def test_index_that_differs_from_the_store_is_reported(shell: Shell, chat: Path) -> None:
    with closing(sqlite3.connect(chat)) as connection:
        connection.execute("DELETE FROM vectors WHERE key = 'm5'")
        connection.execute("DELETE FROM messages WHERE message_id = 'm5'")
        connection.commit()
    outcome = shell("doctor", "--db", chat, "--json", "--quick")
    index = findings(outcome)["indexes"]
    assert (outcome.code, index["ok"]) == (1, False)
    assert "the index of 'ann' has 1 rows that are not stored" in index["message"]
    assert "bad" in shell("doctor", "--db", chat, "--quick").out


def test_missing_vectors_are_a_warning(shell: Shell, location: str) -> None:
    async def store_without_vectors() -> None:
        async with await Store.open(location) as store:
            message = NewMessage(content="I like tea.", role=Role.USER)
            await store.timeline(Scope("ann")).add([message])

    asyncio.run(store_without_vectors())
    outcome = shell("doctor", "--db", location, "--quick", "--json")
    vectors = findings(outcome)["vectors"]
    assert (outcome.code, outcome.json["ok"]) == (0, True)
    assert (vectors["ok"], vectors["warning"]) == (True, True)
    assert "1 rows have none yet" in vectors["message"]


def test_server_settings_that_can_lose_writes_are_a_warning(shell: Shell, location: str) -> None:
    """The PostgreSQL server of the tests writes nothing through to the disk."""
    outcome = shell("doctor", "--db", location, "--quick", "--json")
    warnings = [item["message"] for item in outcome.json["findings"] if item["warning"]]
    assert (outcome.code, outcome.json["ok"]) == (0, True)
    if not location.startswith("postgresql"):
        assert warnings == []
        return
    assert [warning.split()[0] for warning in warnings] == ["fsync", "synchronous_commit"]
    assert "warn durability   fsync is off: " in shell("doctor", "--db", location, "--quick").out
