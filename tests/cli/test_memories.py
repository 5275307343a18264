"""The commands `memories`, `graph`, `sweep` and `export`."""

import asyncio
import io
import json
from pathlib import Path

import pytest

from memrecall.memory.ingest import NO_MODEL
from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.types import EXTRACTION, NewMemory, NewMessage, Origin, Role
from tests.cases import check_each, read_rows
from tests.cli.conftest import Shell, assert_error_line
from tests.extractors import SentenceExtractor


@pytest.fixture
def db_of_ann(shell: Shell, db: Path, sentence_extractor: SentenceExtractor) -> Path:
    """A database in which an extractor has found that Ann lives in Paris and likes tea."""
    for text in ("I live in Paris.", "I like green tea."):
        assert shell("memories", "add", text, "--user", "ann", "--db", db).code == 0
    return db


def list_memories(shell: Shell, db: Path, *options: object) -> list[str]:
    outcome = shell("memories", "list", "--user", "ann", "--db", db, "--json", *options)
    assert outcome.code == 0, outcome.err
    return [item["memory"] for item in outcome.json["results"]]


def find_key(shell: Shell, db: Path, text: str) -> str:
    outcome = shell("memories", "list", "--user", "ann", "--db", db, "--json", "--superseded")
    (key,) = [item["id"] for item in outcome.json["results"] if item["memory"] == text]
    return str(key)


class TestMemories:
    def test_add_extracts_facts_and_shows_replaced_memory(
        self, shell: Shell, db_of_ann: Path
    ) -> None:
        outcome = shell("memories", "add", "I moved to Rome.", "--user", "ann", "--db", db_of_ann)
        assert outcome.code == 0
        assert outcome.out.startswith("UPDATE User moved to Rome. replaces User lives in Paris.")
        assert list_memories(shell, db_of_ann) == ["User moved to Rome.", "User likes green tea."]
        assert len(list_memories(shell, db_of_ann, "--superseded")) == 3
        greeting = shell("memories", "add", "Hello!", "--user", "ann", "--db", db_of_ann)
        assert greeting.out == "stored; no new facts in it\n"

    def test_add_as_is_and_from_standard_input(
        self, shell: Shell, db: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("喝茶"))
        options = ("--as-is", "--metadata", '{"a": 1}', "--session", "s1", "--agent", "helper")
        outcome = shell("memories", "add", "-", "--user", "ann", *options, "--db", db, "--json")
        assert outcome.json["results"][0]["memory"] == "喝茶"
        assert list_memories(shell, db, "--filter", '{"a": 1}', "--session", "s1") == ["喝茶"]
        assert list_memories(shell, db, "--agent", "other") == []

    def test_search_prints_json_and_text(self, shell: Shell, db_of_ann: Path) -> None:
        base = ("memories", "search", "tea", "--user", "ann", "--db", db_of_ann)
        result = shell(*base, "--limit", 1, "--json").json
        assert result["results"][0]["memory"] == "User likes green tea."
        assert "User likes green tea." in shell(*base).out
        assert "from: I like green tea." in shell(*base).out
        assert "no results" not in shell(*base, "--no-rerank").out
        said = shell(*base, "--kinds", "message", "--limit", 1, "--json").json["results"][0]
        assert (said["kind"], said["memory"]) == ("message", "I like green tea.")
        assert said["id"] in shell(*base, "--kinds", "message").out
        assert shell(*base, "--kinds", "dreams").code == 2
        update = ("memories", "update", said["id"], "--text", "x", *base[3:])
        assert "is a message" in shell(*update).err
        hidden = shell("memories", "delete", said["id"], *base[3:])
        assert hidden.out == f"{said['id']} deleted, with 1 memory\n"
        listed = ("memories", "list", "--kinds", "messages", "--deleted", *base[3:])
        assert said["id"] in shell(*listed).out
        assert shell("memories", "undo", said["id"], *base[3:]).code == 0
        assert said["id"] not in shell(*listed).out
        erased = shell("memories", "purge", said["id"], *base[3:], "--yes")
        assert erased.out == f"{said['id']} erased, with 1 memory\n"
        assert shell(*base, "--min-score", "1").out.strip()

    def test_list_without_memories_says_how_many_messages_are_kept(
        self, shell: Shell, db: Path
    ) -> None:
        at = ("--user", "ann", "--db", db)
        assert shell("add", "Hello there.", *at).out == f"{NO_MODEL}\n"
        listed = shell("memories", "list", *at)
        assert listed.out == "no memories; 1 message is kept: list them with --kinds messages\n"
        assert "Hello there." in shell("memories", "list", "--kinds", "messages", *at).out
        assert shell("memories", "list", *at, "--json").json["kept_messages"] == 1

    def test_forget_and_purge_with_sources(
        self, shell: Shell, db_of_ann: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at = ("--user", "ann", "--db", db_of_ann)
        key = find_key(shell, db_of_ann, "User lives in Paris.")
        forgotten = shell("memories", "forget", key, *at)
        assert forgotten.out == f"{key} deleted, with 1 message\n"
        assert "Paris" not in shell("messages", *at).out
        assert shell("memories", "undo", key, *at).code == 0
        assert "Paris" in shell("messages", *at).out
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        refused = shell("memories", "purge", key, *at)
        assert "and its messages permanently?" in refused.err
        assert refused.code == 2
        purged = shell("memories", "purge", key, *at, "--yes", "--json").json
        assert (purged["purged"], len(purged["messages"])) == (1, 1)
        assert "Paris" not in shell("messages", *at).out

    def test_delete_message_and_compact(self, shell: Shell, db_of_ann: Path) -> None:
        at = ("--user", "ann", "--db", db_of_ann)
        items = shell("messages", *at, "--json").json["items"]
        (message,) = [item["message_id"] for item in items if "Paris" in item["content"]]
        deleted = shell("delete-message", message, *at)
        assert deleted.out == "1 message and 1 memory deleted\n"
        assert list_memories(shell, db_of_ann) == ["User likes green tea."]
        assert shell("delete-message", message, *at, "--json").json["deleted"] == 0
        assert shell("memories", "undo", message, *at).code == 0
        assert len(list_memories(shell, db_of_ann)) == 2
        erased = shell("delete-message", message, *at, "--purge", "--yes")
        assert erased.out == "1 message and 1 memory erased\n"
        assert "there is no message" in shell("delete-message", "unknown", *at, "--yes").err
        sizes = shell("compact", "--db", db_of_ann, "--json").json
        assert 0 < sizes["after"] <= sizes["before"]
        assert "compacted: " in shell("compact", "--db", db_of_ann).out

    def test_update_delete_undo_and_history(self, shell: Shell, db_of_ann: Path) -> None:
        key = find_key(shell, db_of_ann, "User likes green tea.")
        at = ("--user", "ann", "--db", db_of_ann)
        outcome = shell("memories", "update", key, "--text", "likes coffee", "--pin", *at, "--json")
        assert (outcome.json["memory"], outcome.json["pinned"]) == ("likes coffee", True)
        assert shell("memories", "delete", key, *at).out == f"{key} deleted, with 1 message\n"
        assert list_memories(shell, db_of_ann) == ["User lives in Paris."]
        assert list_memories(shell, db_of_ann, "--deleted") == ["likes coffee"]
        assert shell("memories", "undo", key, *at).code == 0
        outcome = shell("memories", "show", key, *at)
        assert "likes coffee" in outcome.out
        outcome = shell("memories", "history", key, *at)
        assert [line.split()[2] for line in outcome.out.splitlines()] == [
            "ADD", "UPDATE", "DELETE", "UNDO",
        ]  # fmt: skip
        assert "by command line" in outcome.out
        assert (
            shell("memories", "purge", key, *at, "--yes").out == f"{key} erased, with 1 message\n"
        )
        deleted = shell("memories", "show", key, *at)
        assert (deleted.code, "NOT_FOUND" in deleted.err) == (2, True)

    def test_delete_all_counts_and_confirms(
        self, shell: Shell, db_of_ann: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        base = ("memories", "delete-all", "--user", "ann", "--db", db_of_ann)
        assert shell(*base, "--dry-run").out == "2 memories and 2 messages would be deleted\n"
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        assert shell(*base).code == 2
        assert len(list_memories(shell, db_of_ann)) == 2
        deleted = shell(*base, "--yes", "--json").json
        assert (deleted["memories"], deleted["messages"]) == (2, 2)
        assert list_memories(shell, db_of_ann) == []

    def test_extracted_memories_are_deleted_without_their_messages(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        at = ("--user", "ann", "--db", tmp_path / "extracted.db")
        shell("memories", "add", "Remember: the door code is 4321.", *at)
        shell("memories", "add", "Written by hand.", "--as-is", *at)

        async def store_extracted() -> None:
            async with await Store.open(str(tmp_path / "extracted.db")) as store:
                records = store.memories(Scope("ann"))
                tea, rice = (
                    NewMemory(content=f"User likes {it}.", subject="user") for it in ("tea", "rice")
                )
                await records.add([tea], origin=Origin.USER, actor=EXTRACTION)
                await records.add([rice], origin=Origin.ASSISTANT, actor="assistant")

        asyncio.run(store_extracted())
        extracted = {"actor": "extraction", "subject": "*", "created_at": {"lt": "2100-01-01"}}
        command = ("memories", "delete-all", "--kinds", "memories", "--keep-sources")
        filtered = (*command, "--filter", json.dumps(extracted), *at)
        assert shell(*filtered, "--dry-run").out == "1 memory and 0 messages would be deleted\n"
        assert shell(*filtered, "--yes").out == "1 memory and 0 messages deleted\n"
        left = list_memories(shell, tmp_path / "extracted.db")
        assert set(left) == {"User likes rice.", "Written by hand.", "the door code is 4321."}
        messages = shell("memories", "list", "--kinds", "messages", *at, "--json").json["results"]
        assert len(messages) == 1

    def test_invalid_input_prints_one_error_line(self, shell: Shell, db_of_ann: Path) -> None:
        cases: list[tuple[str, ...]] = read_rows("commands", "memories")

        def check(arguments: tuple[str, ...]) -> None:
            assert_error_line(shell("memories", *arguments, "--user", "ann", "--db", db_of_ann))

        check_each(cases, check)


def test_graph_prints_relations(shell: Shell, db_of_ann: Path) -> None:
    at = ("--user", "ann", "--db", db_of_ann)
    assert "user —lives_in→ Paris" in shell("graph", "user", *at).out
    assert "Paris" in shell("graph", *at).out
    assert "green tea" in shell("graph", "Paris", "--depth", "2", *at).out
    assert shell("graph", "nobody", *at).out == "nothing found\n"


class TestSweep:
    def test_sweep_previews_and_confirms(
        self, shell: Shell, db_of_ann: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(2):
            shell("memories", "add", "the same", "--as-is", "--user", "ann", "--db", db_of_ann)
        base = ("sweep", "--user", "ann", "--db", db_of_ann)
        text = shell(*base, "--dry-run").out
        assert "duplicate        1" in text
        assert text.endswith("1 memory would be deleted\n")
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        assert shell(*base).code == 2
        assert len(list_memories(shell, db_of_ann)) == 4
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
        assert shell(*base).out.endswith("1 memory deleted\n")
        assert len(list_memories(shell, db_of_ann)) == 3

    def test_sweep_json_deletes_only_with_yes(self, shell: Shell, db_of_ann: Path) -> None:
        base = ("sweep", "--user", "ann", "--most", 1, "--db", db_of_ann, "--json")
        outcome = shell(*base).json
        assert (outcome["dry_run"], outcome["found"], outcome["removed"]) == (True, 1, 0)
        assert outcome["results"][0]["reason"] == "over the budget"
        outcome = shell(*base, "--yes", "--purge").json
        assert (outcome["dry_run"], outcome["removed"]) == (False, 1)
        assert len(list_memories(shell, db_of_ann)) == 1

    def test_sweep_all_users(self, shell: Shell, db_of_ann: Path) -> None:
        shell("memories", "add", "of ben", "--as-is", "--user", "ben", "--db", db_of_ann)
        outcome = shell(
            "sweep", "--all-users", "--most", 0, "--db", db_of_ann, "--json", "--yes"
        ).json
        assert (outcome["users"], outcome["removed"]) == (2, 3)
        assert outcome["reasons"] == {"over the budget": 3}
        for options in ((), ("--user", "ann", "--all-users"), ("--all-users", "--older-than", -1)):
            assert shell("sweep", *options, "--db", db_of_ann).code == 2


class TestMoving:
    def test_export_can_be_imported_into_another_database(
        self, shell: Shell, db_of_ann: Path, tmp_path: Path
    ) -> None:
        file, other = tmp_path / "ann.jsonl", tmp_path / "other.db"
        outcome = shell("export", "--user", "ann", "--out", file, "--db", db_of_ann, "--json").json
        assert outcome["lines"] == len(file.read_text("utf-8").splitlines())
        assert file.stat().st_mode & 0o777 == 0o600

        imported = shell("import", file, "--db", other, "--json")

        assert imported.json["rows"]["memories"] == 2
        assert list_memories(shell, other) == list_memories(shell, db_of_ann)
        repeated = shell("import", file, "--db", other)
        assert repeated.out.startswith("export of 1 user imported: ")
        assert list_memories(shell, other) == list_memories(shell, db_of_ann)
        assert shell("import", file, "--user", "anna", "--db", other, "--json").code == 0
        result = shell("memories", "list", "--user", "anna", "--db", other, "--json").json
        assert {item["user_id"] for item in result["results"]} == {"anna"}

    def test_import_of_export_with_several_users(
        self, shell: Shell, db_of_ann: Path, tmp_path: Path
    ) -> None:
        shell("memories", "add", "of ben", "--as-is", "--user", "ben", "--db", db_of_ann)
        lines = [shell("export", "--user", user, "--db", db_of_ann).out for user in ("ann", "ben")]
        file, other = tmp_path / "all.jsonl", tmp_path / "other.db"
        file.write_text("".join(lines), "utf-8")
        assert shell("import", file, "--db", other, "--json").json["users"] == 2
        assert shell("import", file, "--user", "ann", "--db", other).code == 2

    def test_invalid_export_and_import_are_rejected(
        self, shell: Shell, db_of_ann: Path, tmp_path: Path
    ) -> None:
        file = tmp_path / "ann.jsonl"
        assert shell("export", "--user", "nobody", "--out", file, "--db", db_of_ann).code == 2
        assert not file.exists()
        file.write_text("mine")
        assert shell("export", "--user", "ann", "--out", file, "--db", db_of_ann).code == 2
        assert file.read_text() == "mine"
        assert shell("export", "--user", "ann", "--db", db_of_ann, "--json").code == 2
        broken = shell("export", "--user", "ann", "--db", db_of_ann).out + '{"role": "user"}\n'
        file.write_text(broken, "utf-8")
        outcome = shell("import", file, "--db", tmp_path / "new.db", "--json")
        assert outcome.code == 2
        assert "line" in json.loads(outcome.err)["error"]["message"]


def test_truncated_memory_says_so(shell: Shell, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("harbour " * 9))
    monkeypatch.setattr("memrecall.store.texts.MEMORY_BYTES", 64)
    arguments = ["--user", "ann", "--db", db]
    (added,) = shell("memories", "add", "-", "--as-is", *arguments, "--json").json["results"]
    (listed,) = shell("memories", "list", *arguments, "--json").json["results"]
    (found,) = shell("memories", "search", "harbour", *arguments, "--json").json["results"]
    (hit,) = shell(
        "search", "harbour", *arguments, "--kind", "memory", "--min-score", 0, "--json"
    ).json["results"]
    shown = shell("memories", "show", added["id"], *arguments, "--json").json
    assert [item["truncated"] for item in (added, listed, found, hit, shown)] == [True] * 5
    assert "truncated" in shell("memories", "list", *arguments).out


def test_scan_counts_secrets_and_redacts_them(shell: Shell, tmp_path: Path) -> None:
    async def fill() -> None:
        async with await Store.open(str(db), privacy="off") as store:
            message = NewMessage(content=f"{secret} or ann@example.com", role=Role.USER)
            await store.timeline(Scope("ann")).add([message])

    db, secret = tmp_path / "scan.db", "ghp_" + "a1" * 20
    asyncio.run(fill())
    found = shell("scan", "--db", db)
    outcome = "1 rows read, 1 would be changed by --apply: messages 1"
    assert found.out == f"ann  token 1, e-mail 1\n{outcome}\n"
    assert shell("scan", "--apply", "--db", db, "--json").json["changed"] == 1
    assert secret.encode() not in db.read_bytes()


def test_add_and_import_say_what_was_redacted(shell: Shell, tmp_path: Path) -> None:
    file, options = tmp_path / "m.jsonl", ("--db", tmp_path / "new.db")
    for flags in ([], ["--as-is"]):
        added = shell("add", "password=hunter22", *flags, "--user", "ann", *options)
        assert added.out.endswith("redacted: password 1\n")
    line = {"message_id": "m", "role": "user", "content": "password=hunter22"}
    file.write_text(json.dumps(line))
    imported = shell("import", file, "--user", "ben", *options)
    assert "imported; redacted: password 1\n" in imported.out
    shell("export", "--user", "ben", "--out", tmp_path / "e.jsonl", *options)
    file.write_text((tmp_path / "e.jsonl").read_text().replace("[redacted: password]", "hunter22"))
    imported = shell("import", file, "--user", "cid", *options, "--json")
    assert imported.json["redacted"] == {"password": 1}
