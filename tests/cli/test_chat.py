"""`memrecall chat`, as a person or a program calls it."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memrecall.testing import Script, ScriptedClient, call, fail, say
from tests.cli.conftest import Shell

ROOT = Path(__file__).parent.parent.parent
PEANUTS = "我对花生过敏，千万别放。"
DSML = '<｜DSML｜function_calls><｜DSML｜invoke name="recall_memory">'
GROUP: dict[str, Any] = {
    "group_id": "team",
    "members": [
        {"member_id": "ann", "name": "Ann"},
        {"member_id": "bo", "name": "小波", "nicknames": ["波波"]},
        {"member_id": "bot", "name": "小助手", "ai": True},
        {"member_id": "deep", "name": "Deep", "ai": True},
    ],
    "messages": [
        {"speaker": "ann", "content": PEANUTS, "message_id": "g1"},
        {"speaker": "bo", "content": "@小助手 Ann 对什么过敏？", "message_id": "g2"},
    ],
}


@pytest.fixture
def chat(shell: Shell, db: Path, tmp_path: Path) -> Path:
    """A database in which lin has said something."""
    line = {"user_id": "lin", "message_id": "l1", "ts": "2026-03-02T09:00:00Z", "role": "user"}
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({**line, "content": PEANUTS}, ensure_ascii=False), "utf-8")
    assert shell("import", file, "--db", db).code == 0
    return db


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets a scripted model answer instead of the one of the settings."""

    def play(*steps: Any) -> ScriptedClient:
        steps_: Script = steps
        client = ScriptedClient(steps_)
        monkeypatch.setattr("memrecall.memory.client_of", lambda settings: client)
        return client

    return play


def group_file(folder: Path, **changes: Any) -> Path:
    file = folder / "group.json"
    file.write_text(json.dumps({**GROUP, **changes}, ensure_ascii=False), "utf-8")
    return file


def stored(shell: Shell, db: Path, user: str) -> list[str]:
    page = shell("messages", "--user", user, "--db", db, "--json").json
    return [item["content"] for item in reversed(page["items"])]


def test_one_message_is_answered_with_its_tool_events_shown(
    shell: Shell, chat: Path, script: Any
) -> None:
    script(call("recall_memory", query="花生过敏"), say("你对花生过敏。"))
    done = shell("chat", "我对什么过敏？", "--user", "lin", "--db", chat, "--session", "today")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "  ▸ recall_memory “我对什么过敏？” (every turn)"
    assert f"    2026-03-02 user: {PEANUTS}" in lines
    assert "  ▸ recall_memory “花生过敏”" in lines
    assert lines[-1] == "你对花生过敏。"
    assert stored(shell, chat, "lin") == [PEANUTS, "我对什么过敏？", "你对花生过敏。"]


def test_json_is_one_object_with_the_answer_and_the_events(shell: Shell, chat: Path) -> None:
    done = shell(
        "chat", "我对什么过敏？", "--user", "lin", "--db", chat, "--json", "--session", "s"
    )
    assert done.code == 0
    assert PEANUTS in done.json["answer"]["text"]
    assert done.json["answer"]["model"] == "memrecall-offline"
    assert [event["type"] for event in done.json["events"]] == [
        *("tool_call", "tool_result", "text_delta")
    ]


def test_line_by_line_until_the_input_ends(
    shell: Shell, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "My cat is called Momo.\n\nWhat is my cat called?\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    done = shell("chat", "--user", "lin", "--db", db)
    assert (done.code, done.err) == (0, "")
    assert "All right." in done.out
    assert "you said: “My cat is called Momo.”" in done.out
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    again = shell("chat", "--user", "lin", "--db", db, "--json")
    assert ["answer" in json.loads(line) for line in again.out.splitlines()] == [True, True]


def test_a_talk_goes_on_after_a_failure(
    shell: Shell, db: Path, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(fail("unreachable", "no route"), say("Hello."))
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\nhi again\n"))
    done = shell("chat", "--user", "lin", "--db", db)
    assert done.code == 0
    assert done.err == "error: no route [UNAVAILABLE]\n"
    assert done.out.endswith("Hello.\n")


def test_one_message_that_fails_is_the_commands_failure(
    shell: Shell, db: Path, script: Any
) -> None:
    script(fail("unreachable", "no route"))
    done = shell("chat", "hi", "--user", "lin", "--db", db)
    assert (done.code, done.err) == (2, "error: no route [UNAVAILABLE]\n")


def test_leaks_and_degraded_answers_are_told(shell: Shell, db: Path, script: Any) -> None:
    script(say(f"Well. {DSML}"), say(DSML))
    done = shell("chat", "hi", "--user", "lin", "--db", db)
    assert "Well." in done.out
    assert "the model wrote 2 calls as text (deepseek_dsml): hidden, not run" in done.out
    assert "degraded: the model gave no clean answer" in done.out
    assert "function_calls" not in done.out


def test_words_cannot_move_the_cursor(shell: Shell, db: Path, script: Any) -> None:
    script(say("a\x1b[2Jb [red]c[/red]"))
    done = shell("chat", "hi", "--user", "lin", "--db", db)
    assert "\x1b" not in done.out
    assert "[red]c[/red]" in done.out


def test_a_group_is_played_from_its_file(shell: Shell, db: Path, tmp_path: Path) -> None:
    done = shell("chat", "--group", group_file(tmp_path), "--db", db)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:2] == [f"Ann: {PEANUTS}", "小波: @小助手 Ann 对什么过敏？"]
    assert "    被提及，需要发言" in lines
    assert any(line.startswith("小助手: Ann，") and PEANUTS in line for line in lines)
    assert "    未被提及，可自行判断" in lines
    assert lines[-1] == "  says nothing"
    said = stored(shell, db, "team")
    assert said[:2] == [PEANUTS, "@小助手 Ann 对什么过敏？"]
    assert len(said) == 3


def test_a_group_as_json(shell: Shell, db: Path, tmp_path: Path) -> None:
    file = group_file(tmp_path, answers=["bot"])
    done = shell("chat", "--group", file, "--db", db, "--json").json
    assert done["group_id"] == "team"
    assert done["posted"] == [
        {"message_id": "g1", "mentions": []},
        {"message_id": "g2", "mentions": ["bot"]},
    ]
    (turn,) = done["turns"]
    assert turn["member_id"] == "bot"
    names = [event["name"] for event in turn["events"] if event["type"] == "tool_call"]
    assert names == ["get_other_members_messages", "is_mentioned", "recall_memory"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"members": []}, "members"),
        ({"members": [{"name": "Ann"}]}, "members.0.member_id"),
        ({"messages": [{"speaker": "eve", "content": "hi"}]}, "no member 'eve'"),
        ({"messages": [{"speaker": "ann", "content": " "}]}, "messages.0.content"),
        ({"answers": ["eve"]}, "no member 'eve'"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_group_file_names_the_place(
    shell: Shell, db: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    done = shell("chat", "--group", group_file(tmp_path, **changes), "--db", db)
    assert done.code == 2
    assert said in done.err


def test_what_cannot_be_meant_is_refused(shell: Shell, db: Path, tmp_path: Path) -> None:
    file = group_file(tmp_path)
    (tmp_path / "bad.json").write_text("{", "utf-8")
    for arguments in (
        ["hi"],
        ["hi", "--user", "lin", "--group", file],
        ["hi", "--group", file],
        ["  ", "--user", "lin"],
        ["--group", tmp_path / "missing.json"],
        ["--group", tmp_path / "bad.json"],
    ):
        done = shell("chat", *arguments, "--db", db)
        assert (done.code, done.err.count("\n")) == (2, 1), arguments
    assert not db.exists()


def test_on_a_terminal_it_asks_and_ends_at_the_end_of_input(tmp_path: Path) -> None:
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "memrecall", "chat", "--user", "lin", "--db", tmp_path / "a.db"],
        stdin=side,
        stdout=side,
        stderr=side,
        env={**os.environ, "MEMRECALL_EMBEDDER": "hash", "PYTHONPATH": str(ROOT)},
    )
    os.close(side)
    shown = b""
    try:
        os.write(main, b"hello\n")
        while b"All right." not in shown:
            shown += os.read(main, 1024)
        os.write(main, b"\x04")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(10)
        os.close(main)
    assert b"you: " in shown
    assert b"recall_memory" in shown


def test_a_person_talks_on_in_a_group(
    shell: Shell, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = group_file(tmp_path, messages=GROUP["messages"][:1], answers=["bot"])
    monkeypatch.setattr("sys.stdin", io.StringIO("@小助手 Ann 对什么过敏？\n\n好的，那换别的菜\n"))
    done = shell("chat", "--group", file, "--as", "bo", "--db", db, "--json")
    assert (done.code, done.err) == (0, "")
    opening, asked, dropped = map(json.loads, done.out.splitlines())
    assert (opening["group_id"], opening["turns"]) == ("team", [])
    assert asked["posted"][0]["mentions"] == ["bot"]
    assert PEANUTS in asked["turns"][0]["answer"]["text"]
    assert dropped["posted"][0]["mentions"] == []
    said = stored(shell, db, "team")
    assert said[0] == PEANUTS
    assert "好的，那换别的菜" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--user", "lin", "--as", "bo"), "--as names a member of a group"),
        (("--group", "FILE", "--as", "stranger"), "stranger"),
    ],
)
def test_only_a_member_talks_in_a_group(
    shell: Shell, db: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    file = str(group_file(tmp_path))
    done = shell("chat", *(file if word == "FILE" else word for word in words), "--db", db)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""
