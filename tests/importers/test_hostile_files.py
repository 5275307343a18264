"""Hostile and broken files are refused or read within limits."""

import io
import json
import os
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from memrecall.errors import InvalidArgument
from memrecall.importers import mbox, source, team_chats
from memrecall.importers.records import ReadOptions
from memrecall.importers.source import JsonStream
from tests.cli.conftest import Shell, db, shell
from tests.importers.reading import FIXTURES, read

pytestmark = pytest.mark.texts

__all__ = ["db", "shell"]
CHAT = FIXTURES / "chatgpt" / "conversations.json"


def pack(path: Path, files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def test_zip_bomb_is_refused(tmp_path: Path) -> None:
    bomb = pack(tmp_path / "bomb.zip", {"conversations.json": b"[" + b" " * 32 * 1024**2})
    assert bomb.stat().st_size < 64 * 1024
    with pytest.raises(InvalidArgument, match="too large"):
        read(bomb)


def test_archive_of_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_FILES", 3)
    files = {f"{number}.json": b"[]" for number in range(4)}
    with pytest.raises(InvalidArgument, match="more than 3 files"):
        read(pack(tmp_path / "many.zip", files))


@pytest.mark.parametrize("name", ["../x.json", "/etc/x.json", "a/../../x.json", "C:/x.json"])
def test_archive_with_unsafe_path_is_refused(tmp_path: Path, name: str) -> None:
    archive = pack(tmp_path / "unsafe.zip", {name: CHAT.read_bytes()})
    with pytest.raises(InvalidArgument, match="unsafe path"):
        read(archive)


def test_protected_and_damaged_archives_are_refused(tmp_path: Path) -> None:
    archive = pack(tmp_path / "chat.zip", {"conversations.json": CHAT.read_bytes()})
    data = bytearray(archive.read_bytes())
    for start in (data.index(b"PK\x03\x04") + 6, data.index(b"PK\x01\x02") + 8):
        data[start] |= 1  # the flag of encryption
    archive.write_bytes(data)
    with pytest.raises(InvalidArgument, match="password"):
        read(archive)
    stored = pack(tmp_path / "chat.zip", {"conversations.json": CHAT.read_bytes()}, 0)
    damaged = bytearray(stored.read_bytes())
    damaged[damaged.index(b"Lisbon")] ^= 1
    stored.write_bytes(damaged)
    with pytest.raises(InvalidArgument, match="damaged"):
        read(stored)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "conversations.json").write_bytes(CHAT.read_bytes())
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "own.json").write_bytes((FIXTURES / "claude" / "conversations.json").read_bytes())
    (folder / "linked.json").symlink_to(secret / "conversations.json")
    (folder / "linked").symlink_to(secret)
    os.mkfifo(folder / "pipe.json")
    result = read(folder)
    assert result.survey.formats == {"claude": 1}
    assert result.survey.skipped["symbolic links"] == 2
    assert result.survey.skipped["special files"] == 1
    link = zipfile.ZipInfo("linked.json")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "links.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
        archive.writestr("conversations.json", CHAT.read_bytes())
    assert read(tmp_path / "links.zip").survey.skipped["symbolic links"] == 1


def test_device_and_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(InvalidArgument, match="neither a file nor a folder"):
            read(path)


@pytest.mark.parametrize("name", ["chat.jsonl", "chat.txt", "chat.csv", "chat.mbox"])
def test_line_without_end_takes_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(source, "MAX_LINE", 256 * 1024)
    monkeypatch.setattr(mbox, "_MAX_MAIL", 256 * 1024)
    starts = {
        "chat.jsonl": b'{"user_id": "lin", "message_id": "',
        "chat.txt": b"12/31/23, 9:41 PM - A: ",
        "chat.csv": b"text,time\n",
        "chat.mbox": b"From a@b Mon\nSubject: x\nDate: Mon, 12 Jan 2026 10:00:00 +0100\n\n",
    }
    file = tmp_path / name
    with file.open("wb") as stream:
        stream.write(starts[name])
        for _ in range(16):
            stream.write(b"a" * 1024**2)
    tracemalloc.start()
    try:
        result = read(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.messages == []
    assert peak < 8 * 1024**2  # of a line of 16 MiB


@pytest.mark.parametrize("head", ["31.12.23, 21:41 - A: ", "2026-01-02 09:15:30 A\n"])
def test_message_of_endless_lines_is_reported(tmp_path: Path, head: str) -> None:
    file = tmp_path / "chat.txt"
    file.write_text(head + "words\n" * 200_000)
    result = read(file)
    assert result.messages == []
    assert [bad.line for bad in result.survey.bad] == [1]
    assert "1000000 characters" in result.survey.bad[0].reason


def test_large_file_is_streamed(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    with file.open("w") as stream:
        stream.write('{"name": "N", "type": "personal_chat", "id": 7, "messages": [')
        fields = '"type": "message", "date_unixtime": "1768035660", "from": "N"'
        text = "x" * 4_000
        messages = (f'{{"id": {number}, {fields}, "text": "{text}"}}' for number in range(2_000))
        stream.write(",".join(messages))
        stream.write("]}")
    tracemalloc.start()
    try:
        with source.open_source(file) as opened:
            read_file = team_chats.TELEGRAM.read
            count = sum(1 for _ in read_file(opened.files[0], ReadOptions()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 2_000
    assert peak < 4 * 1024**2  # of a file of 8 MB


def test_value_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrecall.importers.source.MAX_VALUE", 1024**2)
    reader = JsonStream(io.StringIO(json.dumps("a" * 4 * 1024**2)))
    with pytest.raises(InvalidArgument, match="more than 1,048,576 characters"):
        reader.value()


@pytest.mark.parametrize("depth", [100_000, 1_000_000])
def test_deeply_nested_json_is_refused(tmp_path: Path, depth: int) -> None:
    file = tmp_path / "conversations.json"
    file.write_text('[{"mapping": ' + "[" * depth + "]" * depth + "}]")
    with pytest.raises(InvalidArgument, match="nested too deeply"):
        read(file)
    skipped = tmp_path / "result.json"
    skipped.write_text('{"about": "", "personal_information": {}, "x": ' + '{"a":' * depth)
    with pytest.raises(InvalidArgument, match="nested too deeply"):
        read(skipped)


@pytest.mark.parametrize("tail", ['{"mapping": {}', "", '"', "{]", "tru", "1" * 5_000, "\\"])
def test_truncated_json_is_refused(tmp_path: Path, tail: str) -> None:
    file = tmp_path / "conversations.json"
    file.write_text('[{"mapping": {}}, ' + tail)
    with pytest.raises(InvalidArgument, match="not JSON at character"):
        read(file)


ENCODED = [("utf-16", ""), ("utf-8-sig", ""), ("utf-16-le", "UTF-16-LE"), ("gb18030", "GB18030")]


@pytest.mark.parametrize(("encoding", "assumed"), ENCODED)
def test_encoding_is_recognised(tmp_path: Path, encoding: str, assumed: str) -> None:
    original = FIXTURES / "wechat" / "小明.txt"
    text = original.read_text("utf-8")
    if encoding == "utf-16-le":  # Without a mark only mostly Latin text can be told.
        text = "2026-01-02 09:15:30 Ming\nThe deposit is 3200, back at the end of the month.\n"
    file = tmp_path / "小明.txt"
    file.write_bytes(text.encode(encoding))
    result = read(file, "wechat")
    assert result.messages
    assert result.messages[0].content in text
    assert [note for note in result.survey.notes if assumed in note][:1] == (
        [f"小明.txt is text in {assumed}"] if assumed else []
    )


def test_latin_text_is_read_as_such(tmp_path: Path) -> None:
    file = tmp_path / "chat.txt"
    file.write_bytes("31.12.23, 21:41 - Jörg: Grüße aus Köln, schön hier\n".encode("latin-1"))
    result = read(file)
    assert result.said == [("other", "Jörg", "Grüße aus Köln, schön hier")]
    assert result.survey.notes == ["chat.txt is text in CP1252"]


def test_binary_file_is_not_recognised(shell: Shell, db: Path, tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(bytes(range(256)) * 100)
    outcome = shell("import", file, "--db", db, "--user", "lin")
    assert (outcome.code, "format not recognised" in outcome.err) == (2, True)


def test_text_that_databases_refuse_is_cleaned(tmp_path: Path) -> None:
    file = tmp_path / "messages.json"
    file.write_text('[{"role": "user", "content": "a\\u0000b \\ud800"}]')
    result = read(file)
    assert result.survey.bad[0].reason.startswith("the content of a message contains a NUL")
    chat = tmp_path / "chat.txt"
    chat.write_bytes(b"31.12.23, 21:41 - A\x00B: x\x00y\n")
    assert read(chat).said == [("other", "A\ufffdB", "x\ufffdy")]


def test_cycle_of_parents_ends(tmp_path: Path) -> None:
    node = {
        "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["x"]}}
    }
    data = [
        {
            "mapping": {"a": {**node, "parent": "b"}, "b": {**node, "parent": "a"}},
            "current_node": "a",
        }
    ]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(data))
    assert len(read(file).messages) == 2


def test_mail_with_broken_parts_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "mail.mbox"
    nested = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(2_000)
    )
    date = b"Date: Mon, 12 Jan 2026 10:00:00 +0100\n"
    file.write_bytes(
        b"From a@b Mon\nSubject: x\nDate: never\n\nno date\n\n"
        b"From a@b Mon\nFrom: =?no-such-code?q?A?= <a@b>\n" + date
        + b'Content-Type: text/plain; charset="no-such-code"\n\nwords\n\n'
        b"From a@b Mon\n" + date + nested
        + b"\n\nFrom a@b Mon\n" + date + b"Content-Type: text/plain" + b";" * 10**6 + b"\n\nlast"
    )  # fmt: skip
    result = read(file)
    assert [(bad.line, bad.reason) for bad in result.survey.bad] == [
        (1, "date 'never' is not a time"),
        (3, "the mail has more than 100 groups of parts"),
    ]
    assert [text for _, _, text in result.said] == ["words", "last"]
