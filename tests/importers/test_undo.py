"""Taking back imports, and chats that are imported again with another zone or after an upgrade."""

import io
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memrecall.errors import InvalidArgument
from memrecall.importers.importer import IMPORT_KEY, list_imports, undo_import
from memrecall.importers.records import ReadOptions
from memrecall.memory import Importer, ImportReport, Library
from memrecall.scope import Scope
from memrecall.search.request import SearchRequest
from memrecall.types import EXTRACTION, NewMemory, NewMessage, Origin, Role, format_time
from tests.cli.conftest import Shell, db, shell
from tests.importers.reading import FIXTURES, read

__all__ = ["db", "shell"]
FIRST = "31.12.23, 21:41 - Uwe: Der Zug kommt um 14:05 in Ulm an.\n31.12.23, 21:42 - 小林: 好的\n"
LATER = FIRST + "01.01.24, 09:00 - Uwe: Ich bringe den Schlitten mit.\n"
SHANGHAI = ZoneInfo("Asia/Shanghai")


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    return rewrite(tmp_path / "Ulm.txt", FIRST)


def rewrite(file: Path, text: str) -> Path:
    file.write_text(text, "utf-8")
    return file


async def run(library: Library, chat: Path, user: str = "uwe", **options: Any) -> ImportReport:
    return await Importer(library, ReadOptions(user, "Uwe", **options)).run(chat)


async def contents(library: Library, user: str = "uwe") -> list[str]:
    page = await library.store.timeline(Scope(user)).page(order="asc")
    return [message.content for message in page.items]


async def test_undo_takes_back_one_import_and_only_that(
    library: Library, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.importers.importer.IMPORT_BATCH", 1)
    first = await run(library, chat)
    second = await run(library, rewrite(chat, LATER))
    other = await run(library, chat, "maya")
    assert [item["messages"] for item in await list_imports(library, "uwe")] == [1, 2]
    undone = {"id": second.import_id, "messages": 1, "memories": 0}
    assert await undo_import(library, "uwe", second.import_id) == undone
    assert await undo_import(library, "uwe", second.import_id) == {**undone, "messages": 0}
    for not_an_id in ("", "whatsapp", "imp", other.import_id):
        assert (await undo_import(library, "uwe", not_an_id))["messages"] == 0
    assert len(await contents(library)) == 2
    assert (await run(library, chat)).stored == 1
    await undo_import(library, "uwe", first.import_id)
    assert await contents(library) == ["Ich bringe den Schlitten mit."]
    assert len(await contents(library, "maya")) == 3


async def test_undo_erases_what_was_derived_alone(library: Library, chat: Path) -> None:
    scope = Scope("uwe", session_id="own")
    await library.add_messages(scope, [NewMessage(message_id="m1", role=Role.USER, content="hi")])
    report = await run(library, chat)
    assert "Ulm" in str(await library.engine.search(Scope("uwe"), SearchRequest("Zug Ulm")))
    page = await library.store.timeline(Scope("uwe")).page(order="asc")
    train, fine = (item.message_id for item in page.items if item.message_id != "m1")
    facts = {"alone": (train,), "both": (train, fine), "other": (train, "m1")}
    memories = [
        NewMemory(memory_key=k, content=k, source_message_ids=ids) for k, ids in facts.items()
    ]
    await library.add_memories(scope, memories, origin=Origin.USER, actor=EXTRACTION)
    result = await undo_import(library, "uwe", report.import_id)
    assert (result["messages"], result["memories"]) == (2, 2)
    (left,) = (await library.store.memories(Scope("uwe")).page()).items
    assert (left.memory_key, left.source_message_ids) == ("other", ("m1",))
    sessions = await library.store.session_list(Scope("uwe")).page(10)
    assert [item.session_id for item in sessions.items] == ["own"]
    assert "Ulm" not in str(await library.engine.search(Scope("uwe"), SearchRequest("Zug Ulm")))
    assert (await run(library, chat)).stored == 2


FILES = {
    "whatsapp": FIRST,
    "wechat": "2023-12-31 21:41:00 Uwe\nDer Zug\n",
    "chat": "Uwe 2023/12/31 21:41\nDer Zug\n\nUwe 2023/12/31 21:42\nnach Ulm\n",
    "csv": "time,sender,text\n31.12.2023 21:41,Uwe,Der Zug\n",
    "markdown": "# 2023-12-31\nDer Zug\n",
}


@pytest.mark.parametrize("name", FILES)
async def test_corrected_zone_is_refused_until_the_import_is_taken_back(
    library: Library, tmp_path: Path, name: str
) -> None:
    suffix = {"csv": ".csv", "markdown": ".md"}.get(name, ".txt")
    file = rewrite(tmp_path / f"a{suffix}", FILES[name])
    first = await run(library, file)
    assert (await list_imports(library, "uwe"))[0]["format"] == name
    with pytest.raises(InvalidArgument, match=f"import --undo {first.import_id} --user uwe"):
        await run(library, file, zone=SHANGHAI)
    assert (await undo_import(library, "uwe", first.import_id))["messages"] == first.stored
    assert (await run(library, file, zone=SHANGHAI)).stored == first.stored
    page = await library.store.timeline(Scope("uwe")).page(order="asc")
    assert format_time(page.items[0].ts) < "2023-12-31T14"
    assert (await run(library, file, zone=SHANGHAI)).repeated == first.stored


async def test_chat_of_version_0_2_is_not_stored_twice(
    library: Library, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 0.2, no import was named, and the id had the time in UTC: of this file the same."""
    monkeypatch.setattr("memrecall.importers.importer.IMPORT_KEY", "nothing")
    await run(library, chat)
    monkeypatch.setattr("memrecall.importers.importer.IMPORT_KEY", IMPORT_KEY)
    report = await run(library, rewrite(chat, LATER))
    assert (report.stored, report.repeated) == (1, 2)
    with pytest.raises(InvalidArgument, match="sessions erase whatsapp-Ulm --user uwe"):
        await run(library, chat, zone=SHANGHAI)
    # With a zone, version 0.2 gave the messages other ids, as of other days here.
    rewrite(chat, LATER.replace("31.12.23", "30.12.23").replace("01.01.24", "31.12.23"))
    with pytest.raises(InvalidArgument, match="sessions erase whatsapp-Ulm"):
        await run(library, chat)
    assert len(await contents(library)) == 3
    ids = read(FIXTURES / "whatsapp" / "_chat.txt").ids
    assert ids[0] == "whatsapp-58e8a424356e16ecf0328e5f"  # as version 0.2 made it


def test_command_lists_and_takes_back(
    shell: Shell, db: Path, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("--user", "uwe", "--db", db)
    report = shell("import", chat, "--me", "Uwe", *common, "--json").json
    rewrite(chat, LATER)
    shell("import", chat, "--me", "Uwe", *common)
    (last, first) = shell("import", "--list", *common, "--json").json["items"]
    assert (first["id"], first["messages"], last["messages"]) == (report["import_id"], 2, 1)
    assert "  whatsapp  Ulm.txt  1 message\n" in shell("import", "--list", *common).out
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = shell("import", "--undo", *common)
    assert (asked.code == 0, f"Take back {last['id']}" in asked.err) == (False, True)
    assert shell("import", "--undo", *common, "--yes").out == "1 message and 0 memories erased\n"
    undone = shell("import", "--undo", first["id"], *common, "--yes", "--json").json
    assert undone == {"id": first["id"], "messages": 2, "memories": 0}
    repeated = shell("import", "--undo", first["id"], *common, "--yes")
    assert (repeated.code, "--list shows" in repeated.err) == (2, True)
    assert shell("import", "--undo", *common, "--yes").out == "no import to take back\n"
    assert shell("import", "--list", *common).out == "no imports\n"
    assert "Pass --user" in shell("import", "--list", "--db", db).err


def test_command_takes_an_export_back(shell: Shell, db: Path, chat: Path, tmp_path: Path) -> None:
    shell("import", chat, "--me", "Uwe", "--user", "uwe", "--db", db)
    shell("add", "Ulm hat einen Bahnhof.", "--user", "uwe", "--db", db)
    file = tmp_path / "uwe.jsonl"
    shell("export", "--user", "uwe", "--out", file, "--db", db)
    common = ("--user", "maya", "--db", db)
    report = shell("import", file, *common, "--json").json
    of_chat = "  whatsapp  Ulm.txt  2 messages\n"
    line = f"  memrecall  uwe.jsonl  {report['rows']['messages']} messages"
    if memories := report["rows"]["memories"]:
        line += f", {memories} memory"
    listed = shell("import", "--list", *common)
    assert line in listed.out
    assert of_chat in listed.out  # what messages say of themselves
    undone = shell("import", "--undo", report["import_id"], *common, "--yes", "--json").json
    rows = report["rows"]
    assert (undone["messages"], undone["memories"]) == (rows["messages"], rows["memories"])
    assert shell("import", "--list", *common).out == "no imports\n"
    assert shell("messages", *common).out == "no messages\n"
    assert shell("sessions", "list", *common, "--json").json["items"] == []
    assert len(shell("import", "--list", "--user", "uwe", "--db", db, "--json").json["items"]) == 1
