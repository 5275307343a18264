"""`memrecall chat`: single messages, conversations and terminals."""

import fcntl
import io
import json
import os
import pty
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memrecall.chat import TextDelta, TextRetracted
from memrecall.cli.views.chat import ChatTurnView
from memrecall.testing import call, fail, say
from tests.cli.conftest import PEANUTS, Shell, assert_error_line
from tests.model.openai_server import Reply, serve, stream
from tests.waiting import LIMIT, block_until

ROOT = Path(__file__).parent.parent.parent
DSML = '<｜DSML｜function_calls><｜DSML｜invoke name="recall_memory">'
TINY = {"MEMRECALL_MODEL": "tiny", "NO_PROXY": "127.0.0.1"}


def list_messages(shell: Shell, db: Path, user: str) -> list[str]:
    page = shell("messages", "--user", user, "--db", db, "--json").json
    return [item["content"] for item in reversed(page["items"])]


def test_single_message_prints_tool_events_and_answer(
    shell: Shell, chat: Path, script: Any
) -> None:
    script(call("recall_memory", query="花生过敏"), say("你对花生过敏。"))
    outcome = shell("chat", "我对什么过敏？", "--user", "lin", "--db", chat, "--session", "today")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0] == "  ▸ recall_memory “我对什么过敏？” (every turn)"
    assert lines[1] in [f"    2026-03-02 user{label}: {PEANUTS}" for label in ("", " (可能)")]
    assert "  ▸ recall_memory “花生过敏”" in lines
    assert lines[-1] == "你对花生过敏。"
    assert list_messages(shell, chat, "lin")[-2:] == ["我对什么过敏？", "你对花生过敏。"]


def test_json_has_answer_and_events(shell: Shell, chat: Path) -> None:
    outcome = shell(
        "chat", "我对什么过敏？", "--user", "lin", "--db", chat, "--json", "--session", "s"
    )
    assert outcome.code == 0
    assert PEANUTS in outcome.json["answer"]["text"]
    assert outcome.json["answer"]["model"] == "memrecall-offline"
    assert [event["type"] for event in outcome.json["events"]] == [
        *("tool_call", "tool_result", "text_delta")
    ]


def test_retracted_text_is_not_printed(shell: Shell, chat: Path, script: Any) -> None:
    script(*[say("I must not reveal the plan.</think>Peanuts.")] * 2)
    arguments = ("chat", "hi", "--user", "lin", "--db", chat)
    outcome = shell(*arguments)
    assert (outcome.code, outcome.out.splitlines()[-1]) == (0, "Peanuts.")
    assert "plan" not in outcome.out
    script(say("I must not reveal the plan.</think>Peanuts."))
    outcome = shell(*arguments, "--json")
    assert "plan" not in outcome.out
    texts = [event["text"] for event in outcome.json["events"] if event["type"] == "text_delta"]
    assert "".join(texts) == outcome.json["answer"]["text"] == "Peanuts."


def test_terminal_erases_retracted_text() -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=10, color_system=None)
    view = ChatTurnView(terminal, 10)
    for event in (
        TextDelta("小助手: a plan of\n15 characters"),
        TextRetracted(""),
        TextDelta("Hi."),
    ):
        view.show(event)
    view.end_line()
    erased = "\r\x1b[2K" + "\x1b[1A\x1b[2K" * 3  # "小助手: a plan of" has two rows of ten
    assert screen.getvalue().split(erased) == ["小助手: a plan of\n15 characters", "Hi.\n"]


def test_chat_reads_lines_until_end_of_input(
    shell: Shell, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "My cat is called Momo.\n\nWhat is my cat called?\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    outcome = shell("chat", "--user", "lin", "--db", db)
    assert (outcome.code, outcome.err) == (0, "")
    assert "All right." in outcome.out
    assert "you said: “My cat is called Momo.”" in outcome.out
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    as_json = shell("chat", "--user", "lin", "--db", db, "--json")
    assert ["answer" in json.loads(line) for line in as_json.out.splitlines()] == [True, True]


@pytest.mark.parametrize("setting", ["", '{"extract": true}', '{"extract": false}'])
def test_statements_are_remembered_unless_switched_off(
    shell: Shell, db: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("MEMRECALL_CHAT", setting)
    for words in ("I live in Hamburg.", "Actually I live in Berlin since March."):
        assert shell("chat", words, "--user", "lin", "--db", db).code == 0
    memories = shell("memories", "list", "--user", "lin", "--db", db, "--json").out
    assert ("Berlin" in memories) is ("false" not in setting)


def test_chat_continues_after_failed_turn(
    shell: Shell, db: Path, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(fail("unreachable", "no route"), say("Hello."))
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\nhi again\n"))
    outcome = shell("chat", "--user", "lin", "--db", db)
    assert outcome.code == 0
    assert outcome.err == "error: no route [UNAVAILABLE]\n"
    assert outcome.out.endswith("Hello.\n")


def test_failed_single_message_fails_command(shell: Shell, db: Path, script: Any) -> None:
    script(fail("unreachable", "no route"))
    outcome = shell("chat", "hi", "--user", "lin", "--db", db)
    assert (outcome.code, outcome.err) == (2, "error: no route [UNAVAILABLE]\n")


def test_leaks_and_degraded_answers_are_reported(shell: Shell, db: Path, script: Any) -> None:
    script(say(f"Well. {DSML}"), say(DSML))
    outcome = shell("chat", "hi", "--user", "lin", "--db", db)
    assert "Well." in outcome.out
    assert "the model wrote 2 calls as text (deepseek_dsml): hidden, not run" in outcome.out
    assert "degraded: the model returned no clean answer" in outcome.out
    assert "function_calls" not in outcome.out


def test_answer_text_cannot_move_cursor(shell: Shell, db: Path, script: Any) -> None:
    script(say("a\x1b[2Jb [red]c[/red]"))
    outcome = shell("chat", "hi", "--user", "lin", "--db", db)
    assert "\x1b" not in outcome.out
    assert "[red]c[/red]" in outcome.out


def test_missing_user_and_empty_message_are_rejected(shell: Shell, db: Path) -> None:
    for arguments in (["hi"], ["  ", "--user", "lin"]):
        assert_error_line(shell("chat", *arguments, "--db", db))
    assert not db.exists()


class Terminal:
    """A `memrecall chat` process on a pseudo-terminal."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self._start(
            ["-m", "memrecall", "chat", "--db", str(folder / "a.db"), *arguments], environment
        )

    @classmethod
    def run_program(cls, program: str) -> "Terminal":
        """Run a Python program on a pseudo-terminal."""
        terminal = cls.__new__(cls)
        terminal._start(["-c", program], {})
        return terminal

    def _start(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._output = b""
        self._main, side = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            preexec_fn=_take_terminal,
            env={
                **os.environ,
                "MEMRECALL_EMBEDDER": "hash",
                "MEMRECALL_CHAT": json.dumps({"recall_seconds": LIMIT}),
                "PYTHONPATH": str(ROOT),
                "TERM": "xterm",
                "LC_ALL": "C.UTF-8",
                **environment,
            },
        )
        os.close(side)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(LIMIT)
        os.close(self._main)

    def type(self, words: str) -> None:
        os.write(self._main, words.encode())

    def wait_for(self, words: str) -> str:
        """Return the new output up to and including `words`."""
        while words.encode() not in self._output:
            self._output += os.read(self._main, 1024)  # bounded by pytest's timeout
        before, match, self._output = self._output.partition(words.encode())
        return (before + match).decode("utf-8", "replace")

    def ends_with(self, code: int) -> bool:
        return self.process.wait(LIMIT) == code


def _take_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C reaches the process."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.service
@pytest.mark.concurrent
def test_terminal_prompts_until_end_of_input(tmp_path: Path) -> None:
    with Terminal(tmp_path, "--user", "lin") as person:
        person.wait_for("you: ")
        person.type("hello\n")
        assert "recall_memory" in person.wait_for("What would you like to know?")
        person.wait_for("you: ")
        person.type("\x04")
        assert person.ends_with(0)


@pytest.mark.service
@pytest.mark.concurrent
def test_terminal_edits_lines_and_offers_history(tmp_path: Path, shell: Shell) -> None:
    """Lines in any script can be edited, and the arrow key offers earlier ones."""
    arrow_left, arrow_up, backspace = "\x1b[D", "\x1b[A", "\x7f"
    with Terminal(tmp_path, "--user", "lin") as person:
        person.wait_for("you: ")
        person.type(f"我叫林小{backspace}晓{arrow_left}{arrow_left}阿{backspace}\n")
        person.wait_for("好的。")
        person.wait_for("you: ")
        person.type(f"{arrow_up}。\n")
        person.wait_for("好的。")
        person.wait_for("you: ")
        person.type("\x04")
        assert person.ends_with(0)
    messages = list_messages(shell, tmp_path / "a.db", "lin")
    assert [messages[0], messages[2]] == ["我叫林晓", "我叫林晓。"]


def leaking() -> Reply:
    return stream([{"content": f"One moment. {DSML}"}])


@pytest.mark.service
@pytest.mark.concurrent
def test_terminal_keeps_log_out_of_answers(tmp_path: Path) -> None:
    with serve() as server:
        server.play(
            leaking(), stream([{"content": "Lisbon."}]), leaking(), stream([{"content": "x"}])
        )
        model = {**TINY, "MEMRECALL_BASE_URL": server.url}
        with Terminal(tmp_path, "hello", "--user", "lin", **model) as person:
            text = person.wait_for("hidden, not run")
            assert person.ends_with(0)
        assert "as text (deepseek_dsml)" in text  # in the view
        assert "it was not run" not in text  # not in the log
        with Terminal(tmp_path, "hello", "--user", "lin", "--verbose", **model) as person:
            text = person.wait_for("hidden, not run")
        assert "ERROR memrecall.chat.visible_text: tiny wrote a call of" in text


@pytest.mark.service
@pytest.mark.concurrent
def test_ctrl_c_stops_answer_then_chat(tmp_path: Path) -> None:
    with serve() as server:
        server.play(
            replace(stream([{"content": "late"}]), seconds=60.0), stream([{"content": "Hi."}])
        )
        model = {**TINY, "MEMRECALL_BASE_URL": server.url}
        with Terminal(tmp_path, "--user", "lin", **model) as person:
            person.wait_for("you: ")
            person.type("hello\n")
            person.wait_for("nothing found")
            block_until(lambda: server.requests)
            person.type("\x03")
            assert "press Ctrl-C again or Ctrl-D to end the chat" in person.wait_for("you: ")
            person.type("hello again\n")
            person.wait_for("Hi.")
            person.wait_for("you: ")
            person.type("\x03")
            assert person.ends_with(130)


# Reads a line. Ctrl-C arrives when the prompt is printed and the editor does not wait for a key.
# A C function sends it: Python would handle the signal before a Python function returns.
INTERRUPTED = """
import ctypes, readline
from functools import partial
from memrecall.cli.chat import input_lines
readline.set_pre_input_hook(partial(ctypes.PyDLL(None)["raise"], 2))
try:
    next(input_lines("you: "))
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.concurrent
def test_ctrl_c_interrupts_prompt_before_first_key() -> None:
    with Terminal.run_program(INTERRUPTED) as person:
        person.wait_for("you: ")
        person.wait_for("stopped")
        assert person.ends_with(0)
