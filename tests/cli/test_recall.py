"""`memrecall recall`: output, conversations, cassettes, limits and failures."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from memrecall.agent import RecallResult, Trace
from memrecall.testing import call, call_raw, calls, fail, say, think
from tests.cases import check_each, read_rows
from tests.cli.conftest import GARAGE, PEANUTS, Shell, assert_error_line

ROOT = Path(__file__).parent.parent.parent
NOW = "2026-04-21T09:00:00Z"
RESULT = {
    "handoff", "memories", "confidence", "abstained", "stop_reason", "iterations", "windows",
    "usage", "trace", "judged", "model", "language", "now", "queries", "withheld", "certainty",
}  # fmt: skip


def search(query: str, **arguments: Any) -> Any:
    """Return a search that finds its hits even among few messages."""
    return call("search_memories", query=query, min_relevance_score=0.0, **arguments)


def hand_off(*keys: str, confidence: float = 0.8, **extra: Any) -> Any:
    arguments = {
        "reason": "done",
        "search_summary": "what it is",
        "confidence": confidence,
        **extra,
    }
    return call("handoff", relevant_memory_keys=list(keys), **arguments)


@pytest.mark.parametrize(
    ("user", "query", "key", "words"),
    [
        ("lin", "我对花生过敏吗？", "lin-1", PEANUTS),
        ("maya", "Who has the spare key of the garage?", "maya-1", GARAGE),
    ],
)
def test_recall_prints_query_calls_and_evidence(
    shell: Shell, chat: Path, script: Any, user: str, query: str, key: str, words: str
) -> None:
    script(search(query), hand_off(key))
    outcome = shell("recall", query, "--user", user, "--db", chat, "--now", NOW)
    assert (outcome.code, outcome.err) == (0, "")
    opening = [f"?  {query}", "iteration 1, 1 message shown", "▸ search_memories “", "hybrid"]
    ending = ["▸ handoff", "── handoff", "━", key, f"│ {words}", "handoff, window 5"]
    parts = opening + ending
    places = [outcome.out.index(part) for part in parts]
    assert places[:6] == sorted(places[:6])
    assert places[-1] == max(places)
    assert "\x1b" not in outcome.out
    assert max(map(cell_len, outcome.out.splitlines())) <= 80


def test_json_prints_recall_result(shell: Shell, chat: Path, script: Any) -> None:
    script(search("花生"), hand_off("lin-1"))
    outcome = shell("recall", "花生过敏", "--user", "lin", "--db", chat, "--now", NOW, "--json")
    assert (outcome.code, outcome.err, outcome.out.count("\n")) == (0, "", 1)
    assert outcome.json.keys() >= RESULT
    assert outcome.json["memories"][0]["memory_key"] == "lin-1"
    assert outcome.json["memories"][0]["content"] == PEANUTS
    assert (outcome.json["language"], outcome.json["now"]) == ("zh", NOW)
    kinds = [event["kind"] for event in outcome.json["trace"]["events"]]
    assert (kinds[0], kinds[-1]) == ("start", "handoff")


def test_python_prints_what_the_command_line_shows(
    shell: Shell, chat: Path, script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    script(search("花生"), hand_off("lin-1"))
    base = ("--user", "lin", "--db", chat)
    outcome = shell("recall", "花生过敏", *base, "--now", NOW, "--json")
    shown = shell("trace", "show", "--last", *base)
    print(RecallResult.from_dict(outcome.json))
    printed = capsys.readouterr().out
    assert printed == shown.out
    assert "花生" in printed


def test_certainty_is_printed(shell: Shell, chat: Path, script: Any) -> None:
    cases = (("lin", "花生过敏", "lin-1"), ("maya", "the garage key", "maya-1"))
    for user, query, key in cases:
        base = ["recall", query, "--user", user, "--db", chat, "--now", NOW]
        script(search(query), hand_off(key))
        result = shell(*base, "--json").json
        assert (result["certainty"], result["memories"][0]["certainty"]) == ("sure", "sure")
        script(search(query, search_mode="keyword"), hand_off(key, confidence=0.4))
        result = shell(*base, "--json").json
        assert (result["certainty"], result["memories"][0]["certainty"]) == ("possible",) * 2
        script(search(query, search_mode="keyword"), hand_off(key, confidence=0.4))
        lines = shell(*base).out.splitlines()
        assert any("possible: 1 memory handed off" in line for line in lines)
        assert any(line.strip() == "possibly" for line in lines)


def test_now_hides_later_messages(shell: Shell, chat: Path) -> None:
    base = ["recall", "花生过敏", "--user", "lin", "--db", chat, "--json"]
    assert "lin-1" in shell(*base, "--now", "2026-03-02T10:00:00Z").json["keys_seen"]
    assert "lin-1" not in shell(*base, "--now", "2026-03-01T10:00:00Z").json["keys_seen"]


def test_time_filters_searches_and_recalls(shell: Shell, chat: Path) -> None:
    note, question = "nothing for “2026-02”; the nearest is from", "“2026-02”没有任何记录，最近的是"
    for command, empty in (("search", note), ("memories search", note), ("recall", question)):
        call = (*command.split(), "我对什么过敏？", "--user", "lin", "--db", chat, "--time")
        for period in ("2026-03-02", "2026年3月2日"):
            result = shell(*call, period, "--json").json
            (item,) = result.get("results") or result["memories"]
            assert (item.get("content") or item["memory"]) == PEANUTS
        assert f"{empty} 2026-03-01" in shell(*call, "2026-02").out.replace("\n", "")
        assert_error_line(shell(*call, "soonish"), "is not a period. Write it like")


def test_unanswerable_request_ends_in_question(shell: Shell, chat: Path) -> None:
    for user, query in (
        ("lin", "我的护照什么时候到期？"),
        ("maya", "When does my passport expire?"),
    ):
        base = ["recall", query, "--user", user, "--db", chat, "--now", NOW]
        outcome = shell(*base, "--json")
        assert (outcome.code, outcome.json["abstained"], outcome.json["memories"]) == (0, True, [])
        question = outcome.json["handoff"]["follow_up_question"]
        outcome = shell(*base)
        assert outcome.code == 0
        assert "nothing handed off" in outcome.out
        assert question[:10] in outcome.out


def test_unknown_user_is_reported(shell: Shell, chat: Path) -> None:
    outcome = shell("recall", "花生过敏", "--user", "nobody", "--db", chat)
    assert outcome.code == 0
    assert "stopped (nothing_stored)" in outcome.out
    result = shell("recall", "花生过敏", "--user", "nobody", "--db", chat, "--json").json
    assert (result["stop_reason"], result["abstained"]) == ("nothing_stored", True)


def test_disabled_user_is_rejected(shell: Shell, chat: Path) -> None:
    shell("users", "disable", "lin", "--db", chat)
    outcome = shell("recall", "花生过敏", "--user", "lin", "--db", chat)
    assert (outcome.code, outcome.out) == (2, "")
    assert "PERMISSION_DENIED" in outcome.err
    assert shell("recall", "garage", "--user", "maya", "--db", chat).code == 0


def test_sensitive_memories_require_permission(shell: Shell, chat: Path, script: Any) -> None:
    shell("add", "the garage code is heron-quill", "--user", "maya", "--db", chat, "--sensitive",
          "--key", "code")  # fmt: skip
    base = ["recall", "What is the garage code?", "--user", "maya", "--db", chat]
    hidden = shell(*base, "--json").json
    assert hidden["withheld"] == 1
    assert "heron-quill" not in json.dumps(hidden)
    assert "1 sensitive memory withheld" in shell(*base).out
    script(search("garage code"), hand_off("code"))
    allowed = shell(*base, "--allow-sensitive", "--json").json
    assert (allowed["withheld"], allowed["memories"][0]["memory_key"]) == (0, "code")
    trace_id = allowed["trace"]["trace_id"]
    shown = shell("trace", "show", trace_id, "--user", "maya", "--db", chat).out
    assert "contents are not in this trace: the recall could see sensitive memories" in shown
    assert "heron-quill" not in shown


def test_agent_option_restricts_recall(shell: Shell, chat: Path) -> None:
    base = ["recall", "花生过敏", "--user", "lin", "--db", chat, "--json"]
    assert "lin-1" in shell(*base, "--agent", "default").json["keys_seen"]
    assert shell(*base, "--agent", "other").json["keys_seen"] == []


MESSAGES = [
    {"role": "user", "content": "晚上做宫保鸡丁", "name": "林晓", "ts": "2026-04-20T10:00:00Z"},
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": "要放花生吗？"},
]


def as_lines(messages: list[Any]) -> str:
    return "\r\n".join(json.dumps(message, ensure_ascii=False) for message in messages) + "\n\n"


def test_messages_are_read_from_file_or_standard_input(
    shell: Shell, chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "said.json"
    base = ["recall", "--user", "lin", "--db", chat, "--now", NOW, "--json", "--messages"]
    question = {"role": "user", "content": "我花生过敏的事你还记得吗"}
    for text in (
        as_lines([*MESSAGES, question]),
        "\ufeff" + json.dumps([*MESSAGES, question], indent=1),
    ):
        file.write_text(text, "utf-8")
        start = shell(*base, file).json["trace"]["events"][0]
        assert (start["asked"], start["given"]) == (question["content"], 3)
    file.write_text(as_lines(MESSAGES), "utf-8")
    start = shell(*base, file, "花生").json["trace"]["events"][0]
    assert (start["asked"], start["given"]) == ("花生", 3)
    stdin = io.TextIOWrapper(io.BytesIO(as_lines([*MESSAGES, question]).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert shell(*base, "-").json["trace"]["events"][0]["given"] == 3


BAD_FILES: list[tuple[str | bytes, str]] = [
    ("", "contains no message"),
    ("[]", "contains no message"),
    ('{"role": "user", "content": " "}', "contains no message"),
    ('{"role": "user", "content": "a"}\n{"role"', "line 2: not JSON"),
    ('[{"role": "user", "content": "a"},\n{"role"]', "line 2: not JSON"),
    ('{"role": "user", "content": "a"}\n[1]', "line 2: not a JSON object"),
    ('[{"role": "user", "content": "a"}, 7]', "message 2: not an object"),
    ('\n\n{"content": "a"}', "line 3: role is missing"),
    ('{"role": "user"}', "line 1: content is missing"),
    ('{"role": "king", "content": "a"}', "line 1: role 'king' is not known"),
    ('{"role": "assistant", "content": "a"}', "has role assistant, not user"),
    (b'{"role": "user", "content": "a"}\n\xff', "line 2: not UTF-8"),
]


def test_invalid_conversation_error_names_line(shell: Shell, chat: Path, tmp_path: Path) -> None:

    def check(case: tuple[str | bytes, str]) -> None:
        text, expected = case
        file = tmp_path / "said.json"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        outcome = shell("recall", "--messages", file, "--user", "lin", "--db", chat)
        assert (outcome.code, outcome.out) == (2, "")
        assert_error_line(outcome, expected)
        assert "said.json" in outcome.err

    check_each(BAD_FILES, check)


def test_invalid_arguments_print_one_error_line(shell: Shell, chat: Path) -> None:

    def check(case: tuple[list[str], str]) -> None:
        arguments, expected = case
        assert_error_line(shell("recall", *arguments, "--user", "lin", "--db", chat), expected)

    check_each(read_rows("commands", "recall"), check)


def test_recall_does_not_create_database(shell: Shell, db: Path, tmp_path: Path) -> None:
    cassette = tmp_path / "cassette.jsonl"
    assert shell("recall", "x", "--user", "lin", "--db", db, "--record", cassette).code == 2
    assert not db.exists()
    assert not cassette.exists()


@pytest.fixture
def peanuts_script(script: Any) -> None:
    """A model that finds the peanuts, in two calls, in each of two recalls."""
    script(*[search("花生"), hand_off("lin-1")] * 2)


@pytest.mark.usefixtures("peanuts_script")
def test_cassette_that_cannot_be_written_is_an_error(shell: Shell, chat: Path) -> None:
    outcome = shell("recall", "x", "--user", "lin", "--db", chat, "--record", "no/such/folder")
    assert (outcome.code, "cannot be written" in outcome.err) == (2, True)


@pytest.mark.usefixtures("peanuts_script")
@pytest.mark.parametrize("arguments", [["--now", NOW], []])
def test_replay_reproduces_recorded_trace(
    shell: Shell, chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    cassette = tmp_path / "cassette.jsonl"
    base = ["recall", "我对花生过敏吗？", "--user", "lin", "--db", chat, "--json"]
    recording = shell(*base, *arguments, "--record", cassette).json
    calls_made = [json.loads(line) for line in cassette.read_text("utf-8").splitlines()]
    assert len(calls_made) == recording["usage"]["model_calls"]
    monkeypatch.setattr("memrecall.memory.client_of", None)  # a replay needs no model
    replay = shell(*base, "--replay", cassette).json
    traces = [Trace.from_dict(result["trace"]).fixed() for result in (recording, replay)]
    assert traces[0] == traces[1]
    assert recording["now"] == replay["now"]
    assert recording["memories"] == replay["memories"]


@pytest.mark.usefixtures("peanuts_script")
def test_replay_uses_recorded_time(shell: Shell, chat: Path, tmp_path: Path) -> None:
    cassette = tmp_path / "cassette.jsonl"
    base = ["recall", "花生过敏", "--user", "lin", "--db", chat]
    shell(*base, "--record", cassette, "--now", NOW)
    assert shell(*base, "--replay", cassette, "--now", NOW).code == 0
    other = shell(*base, "--replay", cassette, "--now", "2026-05-01")
    assert_error_line(other, "was recorded with now = 2026-04-21T09:00:00Z")
    other = shell("recall", "花生", "--user", "lin", "--db", chat, "--replay", cassette, "--json")
    error = json.loads(other.err)["error"]
    assert (error["code"], error["details"]["call"]) == ("FAILED_PRECONDITION", 1)
    shell("users", "erase", "lin", "--db", chat, "--yes")
    assert "never made" in shell(*base, "--replay", cassette).err


@pytest.mark.usefixtures("peanuts_script")
def test_record_does_not_overwrite_cassette(shell: Shell, chat: Path, tmp_path: Path) -> None:
    cassette = tmp_path / "cassette.jsonl"
    base = ["recall", "花生过敏", "--user", "lin", "--db", chat, "--record", cassette]
    assert shell(*base).code == 0
    before = cassette.read_bytes()
    outcome = shell(*base)
    assert outcome.code == 2
    assert "--overwrite" in outcome.err
    assert cassette.read_bytes() == before
    assert shell(*base, "--overwrite").code == 0


def test_recall_prints_thoughts_steering_errors_and_dropped_keys(
    shell: Shell, chat: Path, script: Any
) -> None:
    script(
        think("Let me [bold]look\x1b[31m.", search("garage", limit=3)),
        say("It is with Joyce."),
        calls(
            call("get_memory_detail", memory_key="nope"),
            call_raw("search_memories", '{"user_id": "lin"}'),
            call("extract_search_keywords", query="spare garage key"),
            call("expand_context_window", reason="more", current_size=5, requested_size=10),
        ),
        say('{"keywords": [{"keyword": "garage", "weight": 1, "type": "entity"}]}'),
        *[hand_off("maya-1", "made-up", reasoning="why")] * 2,  # the first is refused
        tokens=(812, 96),
    )
    outcome = shell("recall", "the garage", "--user", "maya", "--db", chat, "--max-iterations", 1)
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    for part in (
        " 1  812 + 96 tokens",
        "Let me [bold]look�[31m.",
        "hybrid, limit 3, score ≥ 0.0",
        "! corrected (text_answer): ",
        "get_memory_detail nope",
        "not_found: ",
        '▸ search_memories {"user_id": "lin"}',
        "invalid_arguments: ",
        "▸ extract_search_keywords “spare garage key”, at most 5",
        "▸ expand_context_window 5 → 10",
        "refused: ",
        "0.40 ",
        "1 memory handed off",
        "what it is",
        "dropped, because this recall never saw them: made-up",
        "keywords, 812 + 96 tokens",
        "garage 1",
        "Not handed off: made-up was not found in this recall.",
        "5,448 tokens",
    ):
        assert part in outcome.out, part


def test_larger_window_starts_new_iteration(
    shell: Shell, chat: Path, script: Any, tmp_path: Path
) -> None:
    file = tmp_path / "said.jsonl"
    messages = [{"role": "user", "content": f"line {n}"} for n in range(9)]
    file.write_text(as_lines(messages), "utf-8")
    script(
        call("expand_context_window", reason="more", current_size=5, requested_size=8),
        search("garage"),
        hand_off("maya-1"),
    )
    outcome = shell("recall", "go on", "--messages", file, "--user", "maya", "--db", chat)
    assert "10 messages passed" in outcome.out
    assert "iteration 1, 5 messages shown" in outcome.out
    assert "iteration 2, 8 messages shown" in outcome.out
    assert "window 5 → 8" in outcome.out


def test_recall_goes_on_without_a_failed_model(shell: Shell, chat: Path, script: Any) -> None:
    script(fail("authentication", "the key [sk] is wrong"))
    outcome = shell("recall", "Who has the spare key?", "--user", "maya", "--db", chat)
    assert outcome.code == 0
    assert "the model failed: the key [sk] is wrong" in outcome.out
    result, _, after = outcome.out.partition(
        "the model cannot continue, the recall goes on without it"
    )
    assert "▸" not in result
    assert "▸ search_memories “Who has the spare key?”" in after
    assert "model_failed, window 5" in outcome.out


def test_limit_hands_off_unjudged_results(shell: Shell, chat: Path, script: Any) -> None:
    script(search(GARAGE), *[call("get_memory_detail", memory_key="maya-1")] * 11)
    outcome = shell("recall", "garage", "--user", "maya", "--db", chat)
    assert outcome.code == 0
    assert "stopped (model_calls)" in outcome.out
    assert "not judged" in outcome.out


def test_failed_search_exits_1(shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memrecall.errors import StorageError
    from memrecall.memory import Library

    async def broken(*_: object) -> None:
        raise StorageError("the disk is on fire")

    monkeypatch.setattr(Library, "search", broken)
    outcome = shell("recall", "garage", "--user", "maya", "--db", chat)
    assert outcome.code == 1
    assert "storage: " in outcome.out


def test_long_memory_is_truncated_in_output(shell: Shell, chat: Path, script: Any) -> None:
    shell("add", "garage " + "长" * 3_000, "--user", "maya", "--db", chat, "--key", "long")
    script(search("garage"), hand_off("long"))
    outcome = shell("recall", "garage", "--user", "maya", "--db", chat)
    assert "… 3,007 characters in all; --json shows them" in outcome.out
    assert len(outcome.out.splitlines()) < 60
    assert max(map(cell_len, outcome.out.splitlines())) <= 80


def test_times_are_in_user_time_zone(shell: Shell, chat: Path, script: Any) -> None:
    script(search("花生"), hand_off("lin-1"))
    shell("users", "zone", "lin", "Asia/Shanghai", "--db", chat)
    outcome = shell("recall", "花生过敏", "--user", "lin", "--db", chat, "--now", NOW)
    assert "2026-04-21 17:00" in outcome.out
    assert "2026-03-02 17:00  lin-1" in outcome.out


def test_ctrl_c_prints_one_line(shell: Shell, chat: Path, script: Any) -> None:
    def interrupt(request: object) -> Any:
        raise KeyboardInterrupt

    script(search("garage"), interrupt)
    outcome = shell("recall", "garage", "--user", "maya", "--db", chat)
    assert outcome.code == 130
    assert outcome.err == "stopped\n"
    assert "▸ search_memories “garage”" in outcome.out


@pytest.mark.service
@pytest.mark.concurrent
def test_terminal_output_is_coloured(chat: Path, tmp_path: Path) -> None:
    """Run in a process with a pseudo-terminal."""
    parent, child = pty.openpty()
    command = ["-c", "from memrecall.cli import main; main()", "recall", "花生过敏"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    running = subprocess.Popen(
        [sys.executable, *command, "--user", "lin", "--db", str(chat)],
        stdout=child, stderr=subprocess.DEVNULL, env=environment, cwd=ROOT,
    )  # fmt: skip
    os.close(child)
    output = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    os.close(parent)
    assert running.wait() == 0
    assert b"\x1b[" in output
    assert PEANUTS in output.decode()


@pytest.mark.service
@pytest.mark.concurrent
def test_closed_pipe_is_not_an_error(chat: Path) -> None:
    command = ["-c", "from memrecall.cli import main; main()", "recall", "花生过敏"]
    running = subprocess.Popen(
        [sys.executable, *command, "--user", "lin", "--db", str(chat)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stderr is not None
    assert b"\xe8" in running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait() == 0
