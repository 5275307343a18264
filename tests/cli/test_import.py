"""`memrecall import`: valid lines are stored, invalid ones reported."""

import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import StorageFull
from memrecall.importers import (
    Fault,
    FileFormat,
    ReadOptions,
    Record,
    Skipped,
    SourceFile,
    message_record,
)
from memrecall.importers.plan import get_format
from memrecall.importers.records import from_iso
from memrecall.store.database.dialects import ErrorCode, SqliteDialect
from memrecall.types import Role
from tests.cases import check_each
from tests.cli.conftest import Shell


def line(number: int, **changes: Any) -> str:
    fields = {
        "user_id": "lin",
        "message_id": f"m{number}",
        "ts": f"2026-03-01T09:00:{number % 60:02}Z",
        "role": "user",
        "content": f"消息 number {number}",
        **changes,
    }
    return json.dumps({k: v for k, v in fields.items() if v is not None}, ensure_ascii=False)


def write(folder: Path, *lines: str) -> Path:
    file = folder / "chat.jsonl"
    file.write_text("\n".join(lines) + "\n", "utf-8", errors="surrogatepass")
    return file


def test_import_of_valid_lines_exits_0(shell: Shell, db: Path, tmp_path: Path) -> None:
    file = write(tmp_path, *map(line, range(2_500)))
    outcome = shell("import", file, "--db", db, "--json")
    assert outcome.code == 0
    assert outcome.json["stored"] == 2_500
    repeated = shell("import", file, "--db", db, "--json")
    assert (repeated.json["stored"], repeated.json["repeated"]) == (0, 2_500)


BAD = [
    ("not json", "not JSON"),
    ("[1]", "not a JSON object"),
    (line(1, message_id=None), "message_id is missing"),
    (line(1, user_id=None), "user_id is missing"),
    (line(1, ts=None), "ts is missing"),
    (line(1, ts="yesterday"), "ts 'yesterday' is not a time"),
    (line(1, ts=5), "5 is not a time"),
    (line(1, role="king"), "'king'"),
    (line(1, content=None), "content is missing"),
    (line(1, content=7), "content 7"),
    (line(1, content="a\0b"), "NUL"),
    (
        '{"user_id":"lin","message_id":"x","ts":"2026-01-01","role":"user","content":"\\ud800"}',
        "surr",
    ),
    (line(1, message_id="x" * 65), "message_id 'xxx"),
    (line(1, user_id="tab\tbed"), "is not an id"),
    (line(1, user_id=5), "user_id 5 is not a string"),
    (line(1, metadata=[1]), "metadata is not a JSON object"),
    (line(1, content_type="x" * 51), "at most 50 characters"),
    (line(1).replace("{", '{"user_id": "maya", ', 1), "user_id is given twice"),
]


def test_import_reports_invalid_line_and_stores_others(
    shell: Shell, db: Path, tmp_path: Path
) -> None:

    numbers = itertools.count(10)

    def check(case: tuple[str, str]) -> None:
        invalid_line, reason = case
        file = write(tmp_path, line(next(numbers)), invalid_line, "", line(next(numbers)))
        outcome = shell("import", file, "--db", db, "--json")
        assert outcome.code == 1
        assert outcome.json["stored"] == 2
        assert [fault["line"] for fault in outcome.json["bad"]] == [2]
        assert reason in outcome.json["bad"][0]["reason"]

    check_each(BAD, check)


def test_import_prints_invalid_lines(shell: Shell, db: Path, tmp_path: Path) -> None:
    outcome = shell("import", write(tmp_path, line(1), "{"), "--db", db)
    assert outcome.code == 1
    assert outcome.out == "1 message of 1 user imported\n"
    assert outcome.err.startswith("line 2: not JSON")


def test_strict_import_stores_nothing_with_invalid_line(
    shell: Shell, db: Path, tmp_path: Path
) -> None:
    file = write(tmp_path, *map(line, range(1_500)), "{")
    outcome = shell("import", file, "--db", db, "--strict", "--json")
    assert outcome.code == 2
    assert outcome.json["refused"]
    assert not db.exists()
    shell("import", write(tmp_path, ""), "--db", db)
    conflicting = write(tmp_path, line(1), line(1, content="other"))
    assert shell("import", conflicting, "--db", db, "--strict", "--json").json["refused"]
    assert shell("stats", "--db", db, "--json").json["messages"] == 0


def test_later_conflicting_line_is_reported(shell: Shell, db: Path, tmp_path: Path) -> None:
    file = write(tmp_path, line(1), line(2), line(1, content="other"), line(1), line(3))
    outcome = shell("import", file, "--db", db, "--json")
    assert [fault["line"] for fault in outcome.json["bad"]] == [3]
    assert (
        "'m1' occurs twice in this batch, with another content" in outcome.json["bad"][0]["reason"]
    )
    assert (outcome.json["stored"], outcome.json["repeated"]) == (3, 1)


def test_lines_of_disabled_user_are_reported(shell: Shell, db: Path, tmp_path: Path) -> None:
    shell("import", write(tmp_path, line(1, user_id="off")), "--db", db)
    shell("users", "disable", "off", "--db", db)
    file = write(tmp_path, line(2, user_id="off"), line(3), line(4, user_id="off"))
    outcome = shell("import", file, "--db", db, "--json")
    assert [fault["line"] for fault in outcome.json["bad"]] == [1, 3]
    assert outcome.json["stored"] == 1


def test_every_accepted_field_is_stored(shell: Shell, db: Path, tmp_path: Path) -> None:
    fields = {
        "speaker": "林晓",
        "session_id": "s1",
        "agent_id": "a1",
        "content_type": "image",
        "parent_message_id": "m0",
        "metadata": {"tokens": 5, "模型": ["x"]},
        "source": "an unknown field does not matter",
    }
    shell("import", write(tmp_path, line(1, **fields)), "--db", db)
    (item,) = shell("messages", "--user", "lin", "--db", db, "--json").json["items"]
    del fields["source"]
    assert item["metadata"].pop("import").endswith(" jsonl chat.jsonl")
    assert {name: item[name] for name in fields} == fields


def test_import_ignores_byte_order_mark_and_blank_lines(
    shell: Shell, db: Path, tmp_path: Path
) -> None:
    file = tmp_path / "chat.jsonl"
    first, second = line(1, user_id=None).encode(), line(2).encode()
    file.write_bytes(b"\xef\xbb\xbf" + first + b"\r\n\r\n  \n" + second)
    assert shell("import", file, "--db", db, "--user", "maya", "--json").json["stored"] == 2
    assert len(shell("messages", "--user", "maya", "--db", db, "--json").json["items"]) == 1


def test_missing_import_file_creates_no_database(shell: Shell, db: Path, tmp_path: Path) -> None:
    outcome = shell("import", tmp_path / "nowhere.jsonl", "--db", db)
    assert outcome.code == 2
    assert "nowhere.jsonl" in outcome.err
    assert not db.exists()


def test_repeated_import_into_ended_session_succeeds(
    shell: Shell, db: Path, tmp_path: Path
) -> None:
    file = write(tmp_path, line(1, session_id="s"), line(2, session_id="s"))
    shell("import", file, "--db", db)
    shell("sessions", "end", "s", "--user", "lin", "--db", db)
    assert shell("import", file, "--db", db, "--json").json["repeated"] == 2
    second_file = write(tmp_path, line(1, session_id="s"), line(3, session_id="s"), line(4))
    outcome = shell("import", second_file, "--db", db, "--json")
    assert [fault["line"] for fault in outcome.json["bad"]] == [2]
    assert "has ended" in outcome.json["bad"][0]["reason"]


def test_repeated_import_embeds_pending_rows(
    shell: Shell, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, *map(line, range(700)))
    with monkeypatch.context() as without:
        without.setenv("MEMRECALL_EMBEDDER", "none")
        shell("import", file, "--db", db)
    assert shell("stats", "--db", db, "--json").json["not_embedded"] == 700
    assert shell("import", file, "--db", db, "--json").json["stored"] == 0
    assert shell("stats", "--db", db, "--json").json["not_embedded"] == 0


def read_notes(file: SourceFile, options: ReadOptions) -> Iterator[Record | Skipped | Fault]:
    """Read a format of lines `time text`."""
    for number, line in file.lines():
        ts, _, text = (line or "").partition(" ")
        if (moment := from_iso(ts)) is None:
            yield Fault(number, f"{ts} is not a time")
        else:
            yield message_record(
                number, message_id=ts, session_id="notes", role=Role.USER, text=text, ts=moment
            )


NOTES = FileFormat("notes", lambda file: file.suffix == ".notes", read_notes)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file with an invalid line, of a format that another package adds by entry point."""
    points = EntryPoints(
        [EntryPoint("notes", "tests.cli.test_import:NOTES", "memrecall.importers")]
    )
    monkeypatch.setattr("memrecall.plugins.entry_points", points.select)
    file = tmp_path / "my.notes"
    file.write_text("2026-03-01T09:00:00Z tea\nnever x\n2026-03-01T09:00:01Z soup\n", "utf-8")
    return file


def test_format_of_another_package_is_imported(shell: Shell, db: Path, notes: Path) -> None:
    assert get_format("notes") is NOTES
    other = write(notes.parent, line(1, user_id="maya"))
    assert shell("import", other, "--db", db, "--json").json["stored"] == 1  # as JSON lines
    refused = shell("import", notes, "--db", db, "--user", "lin", "--strict", "--json")
    assert refused.json["refused"]
    outcome = shell("import", notes, "--db", db, "--user", "lin", "--json")
    assert outcome.code == 1
    assert [bad["line"] for bad in outcome.json["bad"]] == [2]
    items = shell("messages", "--user", "lin", "--db", db, "--json").json["items"]
    assert [item["content"] for item in items] == ["soup", "tea"]
    assert shell("import", notes, "--db", db, "--user", "lin", "--json").json["repeated"] == 2


def test_interrupted_import_prints_how_to_continue(
    shell: Shell, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memrecall.memory import Library

    add = Library.add_entries
    batches = 0

    async def interrupted(self: Library, entries: Any) -> Any:
        nonlocal batches
        batches += 1
        if batches == 2:
            raise KeyboardInterrupt
        return await add(self, entries)

    monkeypatch.setattr(Library, "add_entries", interrupted)
    file = write(tmp_path, *map(line, range(2_500)))
    outcome = shell("import", file, "--db", db)
    stored, hint = outcome.err.splitlines()
    assert (outcome.code, stored, hint) == (
        130,
        "1,000 messages stored so far",
        "stopped; run it again to continue",
    )
    monkeypatch.setattr(Library, "add_entries", add)
    repeated = shell("import", file, "--db", db, "--json").json
    assert (repeated["stored"], repeated["repeated"]) == (1_500, 1_000)
    assert shell("stats", "--db", db, "--json").json["not_embedded"] == 0


def test_import_that_stops_half_way_is_partial(shell: Shell, db: Path, tmp_path: Path) -> None:
    shell("import", write(tmp_path, line(0)), "--db", db)
    with closing(sqlite3.connect(db)) as connection:  # as if the disk were full at the 1,500th
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON messages WHEN new.message_id = 'm1500'"
            " BEGIN SELECT RAISE(ABORT, 'no space'); END"
        )
    with pytest.MonkeyPatch.context() as patch:
        code = ErrorCode("SQLITE_CONSTRAINT_TRIGGER", StorageFull, "Free some space")
        patch.setattr(SqliteDialect, "error_codes", (code, *SqliteDialect.error_codes))
        file = write(tmp_path, *map(line, range(2_500)))
        outcome = shell("import", file, "--db", db, "--json")
        assert outcome.code == 1
        assert (outcome.json["stored"], outcome.json["repeated"]) == (999, 1)
        assert "no space" in outcome.json["stopped"]
        again = shell("import", file, "--db", db)
        assert (again.code, "stopped half way" in again.err) == (1, True)
        assert "0 messages of 1 user imported, 1000 already stored" in again.out
        first = write(tmp_path, *map(line, range(1_500, 1_600)))
        assert shell("import", first, "--db", db).code == 2  # nothing is stored
    assert shell("stats", "--db", db, "--json").json["messages"] == 1_000


def test_import_without_a_usable_line_exits_2(shell: Shell, db: Path, tmp_path: Path) -> None:
    for lines in (['"ts"', "[1]"], [""]):
        file = write(tmp_path, *lines)
        outcome = shell("import", file, "--db", db)
        assert (outcome.code, "no usable line" in outcome.err) == (2, True)
        assert shell("import", file, "--db", db, "--json").code == 2
        other = shell("import", file.rename(tmp_path / "chat.txt"), "--db", db)
        assert (other.code, other.err.count("\n")) == (2, 1)
        assert "chat.txt: format not recognised. Known are chatgpt" in other.err
        assert "whatsapp" in other.err


def test_export_that_stops_half_way_is_partial(shell: Shell, db: Path, tmp_path: Path) -> None:
    for user in ("ann", "bob"):
        shell("import", write(tmp_path, line(1)), "--db", db, "--user", user)
        shell("memories", "add", "tea", "--user", user, "--db", db, "--as-is")
    exports = [shell("export", "--user", user, "--db", db).out for user in ("ann", "bob")]
    file, new = tmp_path / "both.jsonl", tmp_path / "new.db"
    file.write_text("".join(exports))
    shell("memories", "add", "tea", "--user", "bob", "--db", new, "--as-is")
    shell("users", "disable", "bob", "--db", new)
    outcome = shell("import", file, "--db", new, "--json")
    assert (outcome.code, outcome.json["users"]) == (1, 1)
    assert "disabled" in outcome.json["stopped"]
    assert shell("stats", "--user", "ann", "--db", new, "--json").json["memories"] == 1


def test_import_of_an_export_says_what_became_of_sessions_and_grants(
    shell: Shell, db: Path, tmp_path: Path
) -> None:
    export = tmp_path / "lin.jsonl"
    shell("import", write(tmp_path, line(1)), "--db", tmp_path / "phone.db")
    shell("export", "--user", "lin", "--db", tmp_path / "phone.db", "--out", export)
    row = {"user_id": "lin", "member": "eve", "role": "admin", "created_at": "2026-01-01T00:00:00Z"}
    grant = json.dumps({"format": 1, "table": "memberships", "row": row})
    export.write_text(f"{export.read_text()}{grant}\n")
    shell("import", write(tmp_path, line(2)), "--db", db)
    said = shell("import", export, "--db", db).out
    assert "imported: 1 session, 1 message, 1 membership;" in said
    assert "; 1 session joined: default; 1 membership not stored: eve" in " ".join(said.split())
