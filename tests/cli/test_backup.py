"""`memrecall backup`, `memrecall restore`, and commands on a backup with `--read-only`."""

import os
from pathlib import Path

import pytest

from .conftest import Shell

TEXT = "My dentist appointment is on Friday"


@pytest.fixture
def chat(shell: Shell, tmp_path: Path) -> Path:
    """A database with a few memories."""
    file = tmp_path / "chat.db"
    for number, text in enumerate((TEXT, "Remember that I moved to Rome", "记住我不吃辣")):
        shell("memories", "add", text, "--user", "ann", "--db", file, "--session", f"s{number}")
    return file


def test_backup_is_searched_and_restored(shell: Shell, chat: Path, tmp_path: Path) -> None:
    backup, restored = tmp_path / "backup.db", tmp_path / "restored.db"
    saved = shell("backup", backup, "--db", chat, "--json")
    assert saved.code == 0
    assert (saved.json["file"], saved.json["verified"]) == (str(backup), True)
    assert saved.json["bytes"] == backup.stat().st_size
    assert saved.json["rows"]["messages"] == 3
    assert "verified" in shell("backup", tmp_path / "other.db", "--db", chat).out

    back = shell("restore", backup, "--db", restored, "--json")
    assert (back.code, back.json["rows"]) == (0, saved.json["rows"])
    commands = (
        ("search", "dentist", "--user", "ann", "--mode", "keyword"),
        ("memories", "list", "--user", "ann"),
    )
    for command in commands:
        results = [
            [hit["content" if command[0] == "search" else "id"] for hit in found["results"]]
            for found in (shell(*command, "--db", db, "--json").json for db in (chat, restored))
        ]
        assert results[0]
        assert results[0] == results[1]


def test_restore_refuses_to_overwrite(shell: Shell, chat: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    shell("backup", backup, "--db", chat)
    again = shell("backup", backup, "--db", chat)
    assert (again.code, "exists already" in again.err) == (2, True)
    refused = shell("restore", backup, "--db", chat)
    assert (refused.code, "CONFLICT" in refused.err, "--overwrite" in refused.err) == (
        2,
        True,
        True,
    )
    shell("memories", "add", "later", "--user", "bob", "--db", chat)
    assert shell("restore", backup, "--db", chat, "--overwrite").code == 0
    assert shell("messages", "--user", "bob", "--db", chat, "--json").json["items"] == []
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(backup.read_bytes()[:-20_000])
    assert shell("restore", damaged, "--db", tmp_path / "new.db").code == 2
    assert not (tmp_path / "new.db").exists()
    missing = shell("restore", tmp_path / "none.db", "--db", tmp_path / "new.db")
    assert (missing.code, (tmp_path / "new.db").exists()) == (2, False)


def test_read_only_commands_create_nothing(shell: Shell, chat: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    backup = folder / "backup.db"
    shell("backup", backup, "--db", chat)
    before = backup.read_bytes()
    place = ("--user", "ann", "--db", backup, "--read-only", "--json")
    folder.chmod(0o500)
    for command in (
        ("search", "dentist"),
        ("messages",),
        ("recall", "When is my dentist appointment?"),
        ("memories", "list"),
        ("memories", "search", "dentist"),
        ("graph",),
        ("trace", "list"),
        ("stats",),
    ):
        outcome = shell(*command, *place)
        assert (command, outcome.code, outcome.err) == (command, 0, "")
        assert os.listdir(folder) == ["backup.db"]
    assert TEXT in shell("search", "dentist", *place).out
    assert backup.read_bytes() == before
    folder.chmod(0o700)


def test_read_only_setting_refuses_writes(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRECALL_READ_ONLY", "true")
    refused = shell("memories", "add", "later", "--user", "ann", "--db", chat)
    assert (refused.code, "open read-only" in refused.err) == (2, True)
    assert shell("memories", "list", "--user", "ann", "--db", chat).code == 0
