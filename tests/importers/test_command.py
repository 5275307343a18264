"""`memrecall import` of chat exports: preview, who the user is, standard input, importing again."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from memrecall.importers.records import ReadOptions
from memrecall.memory import Importer, Library, make_plan, open_source
from memrecall.scope import Scope
from memrecall.store import MessageFilter
from tests.cli.conftest import Shell, db, shell
from tests.importers.reading import FIXTURES

__all__ = ["db", "shell"]
LAKE = FIXTURES / "whatsapp" / "WhatsApp Chat with Lake.txt"


async def import_fixture(library: Library, name: str, **options: Any) -> tuple[int, int, int]:
    with open_source(FIXTURES / name) as source:
        plan = make_plan(source, ReadOptions(user="lin", **options))
        report = await Importer(library).run(plan)
    return report.stored, report.repeated, len(report.bad)


ME = {
    "chat": "老王",
    "whatsapp": "Tom",
    "slack": "maya",
    "discord": "lin",
    "mbox": "maya@example.org",
}


async def test_every_fixture_is_stored_once(library: Library) -> None:
    counts = {}
    for folder in sorted(FIXTURES.iterdir()):
        stored, repeated, bad = await import_fixture(library, folder.name, me=ME.get(folder.name))
        assert (repeated, bad) == (0, 0)
        counts[folder.name] = stored
        again = await import_fixture(library, folder.name, me=ME.get(folder.name))
        assert again == (0, stored, 0)
    assert counts == {
        "chat": 8,
        "chatgpt": 5,
        "claude": 5,
        "claude-code": 8,
        "codex": 8,
        "csv": 3,
        "discord": 2,
        "gemini": 4,
        "gemini-cli": 5,
        "markdown": 4,
        "mbox": 3,
        "mem0": 2,
        "openai": 11,
        "slack": 4,
        "telegram": 3,
        "wechat": 6,
        "whatsapp": 11,
    }
    memories = await library.store.memories(Scope("lin")).page()
    assert {record.provenance.origin for record in memories.items} == {"import"}


async def test_messages_are_stored_in_sessions_in_their_order(library: Library) -> None:
    await import_fixture(library, "chatgpt")
    timeline = library.store.timeline(Scope("lin"))
    session = "chatgpt-6f1c0c58-0000-4000-8000-000000000001"
    page = await timeline.page(MessageFilter(session_id=session))
    assert [message.message_id for message in page.items] == [
        "chatgpt-q2",
        "chatgpt-a1",
        "chatgpt-q1",
    ]


async def test_edited_memory_of_mem0_is_reported(library: Library, tmp_path: Path) -> None:
    await import_fixture(library, "mem0")
    text = (FIXTURES / "mem0" / "memories.json").read_text("utf-8")
    file = tmp_path / "memories.json"
    file.write_text(text.replace("shellfish", "peanuts"), "utf-8")
    report = await Importer(library).run(file)
    assert [(bad.line, "another content" in bad.reason) for bad in report.bad] == [(1, True)]
    assert (report.stored, report.repeated) == (0, 1)


async def test_progress_counts_messages_after_each_batch(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.importers.importer.IMPORT_BATCH", 4)
    lines = (FIXTURES / "openai" / "messages.jsonl").read_text("utf-8") + "[1]\n"
    file = tmp_path / "messages.jsonl"
    file.write_text(lines, "utf-8")
    steps: list[int] = []
    await Importer(library, ReadOptions(user="lin")).run(file, progress=steps.append)
    assert steps == [1, 4, 1] or steps == [4, 1, 1]
    assert sum(steps) == 6


def test_import_asks_who_the_user_is(shell: Shell, db: Path) -> None:
    outcome = shell("import", LAKE, "--user", "tom", "--db", db)
    assert outcome.code == 2
    assert "The speakers are Tom, Maya Lopez" in outcome.err
    assert '--me "Tom"' in outcome.err
    assert not db.exists()
    wrong = shell("import", LAKE, "--user", "tom", "--me", "Maya Lopes", "--db", db)
    assert (wrong.code, 'Did you mean --me "Maya Lopez"?' in wrong.err) == (2, True)
    nobody = shell("import", LAKE, "--me", "Tom", "--db", db)
    assert (nobody.code, "--user" in nobody.err) == (2, True)
    assert not db.exists()


def test_import_prints_what_it_skipped(shell: Shell, db: Path) -> None:
    outcome = shell("import", LAKE, "--user", "tom", "--me", "Tom", "--db", db)
    assert outcome.code == 0
    assert outcome.out == (
        "5 messages of 1 user imported\n"
        "skipped        notices (2), media without text (1), deleted messages (1)\n"
    )
    hits = shell("search", "nuts allergy", "--user", "tom", "--db", db, "--json").json
    assert "Jo is allergic to nuts" in json.dumps(hits)


def test_dry_run_previews_and_stores_nothing(shell: Shell, db: Path) -> None:
    outcome = shell("import", LAKE, "--dry-run", "--db", db)
    assert outcome.code == 0
    assert outcome.out.splitlines()[:9] == [
        "format         whatsapp",
        "conversations  1",
        "messages       5",
        "speakers       Tom (3), Maya Lopez (2)",
        "time           2023-12-31 21:41 to 2024-01-06 08:10 UTC",
        "sample         Maya Lopez: Happy new year! 🎉 See you at the lake on the 6th?",
        "sample         Tom: ok",
        "sample         Tom: ok",
        "skipped        notices (2), media without text (1), deleted messages (1)",
    ]
    assert outcome.out.count("still needed") == 2
    preview = shell("import", LAKE, "--dry-run", "--json", "--me", "Tom", "--user", "tom").json
    assert preview["speakers"] == {"Tom": 3, "Maya Lopez": 2}
    assert preview["skipped"]["notices"] == 2
    assert [item["speaker"] for item in preview["samples"]] == ["Maya Lopez", "Tom", "Tom"]
    assert (preview["needs"], preview["bad"], preview["messages"]) == ([], [], 5)
    assert (preview["first"], preview["formats"]) == ("2023-12-31T21:41:00Z", {"whatsapp": 1})
    assert not db.exists()


def test_dry_run_counts_roles_where_nobody_is_named(shell: Shell, db: Path) -> None:
    file = FIXTURES / "chatgpt" / "conversations.json"
    outcome = shell("import", file, "--dry-run", "--db", db)
    assert "speakers       user (3), assistant (2)" in outcome.out.splitlines()
    preview = shell("import", file, "--dry-run", "--json", "--user", "me").json
    assert preview["speakers"] == {"user": 3, "assistant": 2}


def test_dry_run_of_an_export_counts_its_rows(shell: Shell, db: Path, tmp_path: Path) -> None:
    shell("import", FIXTURES / "chatgpt", "--user", "lin", "--db", db)
    file = tmp_path / "lin.jsonl"
    shell("export", "--user", "lin", "--db", db, "--out", file)
    new = tmp_path / "new.db"
    outcome = shell("import", file, "--db", new, "--dry-run", "--json")
    assert (outcome.code, outcome.json["rows"]["messages"]) == (0, 5)
    assert not new.exists()


def test_dash_reads_standard_input(
    shell: Shell, db: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = shutil.make_archive(str(tmp_path / "export"), "zip", FIXTURES / "claude")
    data = [(FIXTURES / "claude" / "conversations.json").read_bytes(), Path(archive).read_bytes()]
    for sent, stored in zip(data, (5, 0), strict=True):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sent)))
        outcome = shell("import", "-", "--user", "lin", "--db", db, "--json")
        assert (outcome.code, outcome.json["stored"]) == (0, stored)


def test_format_option_overrides(shell: Shell, db: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk.txt"
    file.write_text("body|who\nhello|Ann\n")
    arguments = ("--user", "ann", "--me", "Ann", "--db", db, "--json")
    outcome = shell("import", file, "--map", "text=body,speaker=who", *arguments)
    assert (outcome.code, outcome.json["formats"]) == (0, {"csv": 1})
    wrong = shell("import", file, "--format", "whatsap")
    assert (wrong.code, "Did you mean whatsapp?" in wrong.err) == (2, True)
    other = shell("import", FIXTURES / "chatgpt", "--format", "mbox", "--user", "ann")
    assert (other.code, "no file of the format mbox" in other.err) == (2, True)


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--date-order", "ydm", "dmy, mdy or ymd"),
        ("--zone", "Mars/Olympus", "time zone 'Mars/Olympus' is not known"),
        ("--map", "text", "text=body,time=date"),
        ("--map", "colour=red", "the fields are text, time"),
    ],
)
def test_wrong_option_is_explained(
    shell: Shell, db: Path, option: str, value: str, reason: str
) -> None:
    outcome = shell("import", LAKE, option, value, "--db", db)
    assert (outcome.code, reason in outcome.err) == (2, True)


def test_folder_without_a_chat_names_the_formats(shell: Shell, db: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"\xff\xd8")
    outcome = shell("import", tmp_path / "photos", "--user", "ann", "--db", db)
    assert outcome.code == 2
    assert "chatgpt, claude, gemini" in outcome.err


def test_faults_name_the_file_of_a_folder(shell: Shell, db: Path, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "slack", tmp_path / "slack")
    day = tmp_path / "slack" / "general" / "2026-01-12.json"
    day.write_text(day.read_text("utf-8").replace('"1768208520.000300"', '"soon"', 1), "utf-8")
    outcome = shell("import", tmp_path / "slack", "--user", "m", "--me", "maya", "--db", db)
    assert outcome.code == 1
    assert outcome.err == "general/2026-01-12.json: entry 3: ts 'soon' is not a time\n"
    refused = shell(
        "import", tmp_path / "slack", "--user", "m", "--me", "maya", "--db", db, "--strict"
    )
    assert refused.code == 2
