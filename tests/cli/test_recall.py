"""`memrecall recall`, as a person or a program calls it."""

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

from memrecall.agent import Trace
from memrecall.testing import Script, ScriptedClient, call, call_raw, calls, fail, say, think
from tests.cases import check_each
from tests.cli.conftest import Shell

ROOT = Path(__file__).parent.parent.parent
NOW = "2026-04-21T09:00:00Z"
PEANUTS = "我对花生过敏，千万别放。"
GARAGE = "The spare key of the garage is with Joyce."
RESULT = {
    "handoff", "memories", "confidence", "abstained", "stop_reason", "iterations", "windows",
    "usage", "trace", "judged", "model", "language", "now", "queries", "withheld",
}  # fmt: skip


@pytest.fixture
def chat(shell: Shell, db: Path, tmp_path: Path) -> Path:
    """A database with some messages of lin and of maya."""
    said = {
        "lin": ["周五聚餐，大家有什么忌口？", PEANUTS, "好的，记下了。", "今天跑了十公里。"],
        "maya": ["Biscuit limps again.", GARAGE, "Good to know.", "Lentil stew tonight."],
    }
    lines = [
        {
            "user_id": user,
            "message_id": f"{user}-{n}",
            "ts": f"2026-03-0{n + 1}T09:00:00Z",
            "role": "assistant" if n == 2 else "user",
            "content": text,
            "session_id": "s1",
        }
        for user, texts in said.items()
        for n, text in enumerate(texts)
    ]
    file = tmp_path / "chat.jsonl"
    file.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), "utf-8")
    assert shell("import", file, "--db", db).code == 0
    return db


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets a scripted model answer instead of the one of the settings."""

    def play(*steps: Any, **options: Any) -> ScriptedClient:
        steps_: Script = steps
        client = ScriptedClient(steps_, **options)
        monkeypatch.setattr("memrecall.memory.client_of", lambda settings: client)
        return client

    return play


def look_for(query: str, **more: Any) -> Any:
    """A search whose hits do not depend on how few messages these are."""
    return call("search_memories", query=query, min_relevance_score=0.0, **more)


def finish(*keys: str, confidence: float = 0.8, **more: Any) -> Any:
    given = {"reason": "done", "search_summary": "what it is", "confidence": confidence, **more}
    return call("handoff", relevant_memory_keys=list(keys), **given)


@pytest.mark.parametrize(
    ("user", "asked", "key", "words"),
    [
        ("lin", "我对花生过敏吗？", "lin-1", PEANUTS),
        ("maya", "Who has the spare key of the garage?", "maya-1", GARAGE),
    ],
)
def test_a_recall_is_shown_from_the_question_to_the_evidence(
    shell: Shell, chat: Path, script: Any, user: str, asked: str, key: str, words: str
) -> None:
    script(look_for(asked), finish(key))
    done = shell("recall", asked, "--user", user, "--db", chat, "--now", NOW)
    assert (done.code, done.err) == (0, "")
    opening = [f"?  {asked}", "iteration 1, 1 message shown", "▸ search_memories “", "hybrid"]
    ending = ["▸ handoff", "── handoff", "━", key, f"│ {words}", "handoff, window 5"]
    parts = opening + ending
    places = [done.out.index(part) for part in parts]
    assert places[:6] == sorted(places[:6])
    assert places[-1] == max(places)
    assert "\x1b" not in done.out
    assert max(map(cell_len, done.out.splitlines())) <= 80


def test_json_is_one_object_that_is_the_result(shell: Shell, chat: Path, script: Any) -> None:
    script(look_for("花生"), finish("lin-1"))
    done = shell("recall", "花生过敏", "--user", "lin", "--db", chat, "--now", NOW, "--json")
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    assert done.json.keys() >= RESULT
    assert done.json["memories"][0]["memory_key"] == "lin-1"
    assert done.json["memories"][0]["content"] == PEANUTS
    assert (done.json["language"], done.json["now"]) == ("zh", NOW)
    kinds = [event["kind"] for event in done.json["trace"]["events"]]
    assert (kinds[0], kinds[-1]) == ("start", "handoff")


def test_now_hides_what_was_said_later(shell: Shell, chat: Path) -> None:
    base = ["recall", "花生过敏", "--user", "lin", "--db", chat, "--json"]
    assert "lin-1" in shell(*base, "--now", "2026-03-02T10:00:00Z").json["keys_seen"]
    early = shell(*base, "--now", "2026-03-01T10:00:00Z").json
    assert "lin-1" not in early["keys_seen"]


def test_unanswerable_request_ends_in_question(shell: Shell, chat: Path) -> None:
    for user, asked in (
        ("lin", "我的护照什么时候到期？"),
        ("maya", "When does my passport expire?"),
    ):
        base = ["recall", asked, "--user", user, "--db", chat, "--now", NOW]
        done = shell(*base, "--json")
        assert (done.code, done.json["abstained"], done.json["memories"]) == (0, True, [])
        question = done.json["handoff"]["follow_up_question"]
        drawn = shell(*base)
        assert drawn.code == 0
        assert "nothing handed off" in drawn.out
        assert question[:10] in drawn.out


def test_an_unknown_user_is_told_as_such(shell: Shell, chat: Path) -> None:
    done = shell("recall", "花生过敏", "--user", "nobody", "--db", chat)
    assert done.code == 0
    assert "stopped (nothing_stored)" in done.out
    told = shell("recall", "花生过敏", "--user", "nobody", "--db", chat, "--json").json
    assert (told["stop_reason"], told["abstained"]) == ("nothing_stored", True)


def test_a_disabled_user_is_refused(shell: Shell, chat: Path) -> None:
    shell("users", "disable", "lin", "--db", chat)
    done = shell("recall", "花生过敏", "--user", "lin", "--db", chat)
    assert (done.code, done.out) == (2, "")
    assert "PERMISSION_DENIED" in done.err
    assert shell("recall", "garage", "--user", "maya", "--db", chat).code == 0


def test_sensitive_memories_need_a_permission(shell: Shell, chat: Path, script: Any) -> None:
    shell("add", "the garage code is heron-quill", "--user", "maya", "--db", chat, "--sensitive",
          "--key", "code")  # fmt: skip
    base = ["recall", "What is the garage code?", "--user", "maya", "--db", chat]
    hidden = shell(*base, "--json").json
    assert hidden["withheld"] == 1
    assert "heron-quill" not in json.dumps(hidden)
    assert "1 sensitive memory withheld" in shell(*base).out
    script(look_for("garage code"), finish("code"))
    allowed = shell(*base, "--allow-sensitive", "--json").json
    assert (allowed["withheld"], allowed["memories"][0]["memory_key"]) == (0, "code")


def test_agent_option_restricts_recall(shell: Shell, chat: Path) -> None:
    base = ["recall", "花生过敏", "--user", "lin", "--db", chat, "--json"]
    assert "lin-1" in shell(*base, "--agent", "default").json["keys_seen"]
    assert shell(*base, "--agent", "other").json["keys_seen"] == []


SAID = [
    {"role": "user", "content": "晚上做宫保鸡丁", "name": "林晓", "ts": "2026-04-20T10:00:00Z"},
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": "要放花生吗？"},
]


def as_lines(said: list[Any]) -> str:
    return "\r\n".join(json.dumps(one, ensure_ascii=False) for one in said) + "\n\n"


def test_a_conversation_comes_from_a_file_or_from_standard_input(
    shell: Shell, chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "said.json"
    base = ["recall", "--user", "lin", "--db", chat, "--now", NOW, "--json", "--messages"]
    asks = {"role": "user", "content": "我花生过敏的事你还记得吗"}
    for text in (as_lines([*SAID, asks]), "\ufeff" + json.dumps([*SAID, asks], indent=1)):
        file.write_text(text, "utf-8")
        start = shell(*base, file).json["trace"]["events"][0]
        assert (start["asked"], start["given"]) == (asks["content"], 3)
    file.write_text(as_lines(SAID), "utf-8")
    start = shell(*base, file, "花生").json["trace"]["events"][0]
    assert (start["asked"], start["given"]) == ("花生", 3)
    given = io.TextIOWrapper(io.BytesIO(as_lines([*SAID, asks]).encode()))
    monkeypatch.setattr("sys.stdin", given)
    assert shell(*base, "-").json["trace"]["events"][0]["given"] == 3


BAD_FILES: list[tuple[str | bytes, str]] = [
    ("", "contains no message"),
    ("[]", "contains no message"),
    ('{"role": "user", "content": " "}', "contains no message"),
    ('{"role": "user", "content": "a"}\n{"role"', "line 2: not JSON"),
    ('[{"role": "user", "content": "a"},\n{"role"]', "line 2: not JSON"),
    ('{"role": "user", "content": "a"}\n[1]', "line 2: not an object"),
    ('[{"role": "user", "content": "a"}, 7]', "message 2: not an object"),
    ('\n\n{"content": "a"}', "line 3: role is missing"),
    ('{"role": "user"}', "line 1: content is missing"),
    ('{"role": "king", "content": "a"}', "line 1: role 'king' is not known"),
    ('{"role": ["user"], "content": "a"}', "line 1: role ['user'] is not known"),
    ('{"role": "user", "content": 7}', "line 1: content of type int is not text"),
    ('{"role": "user", "content": "a\\u0000"}', "line 1: the content of a message contains a NUL"),
    ('{"role": "user", "content": "a", "ts": "soon"}', "line 1: ts 'soon' is not a time"),
    ('{"role": "user", "content": "a", "name": 7}', "line 1: name 7 is not a text"),
    ('{"role": "assistant", "content": "a"}', "has role assistant, not user"),
    (b'{"role": "user", "content": "a"}\n\xff', "line 2: not UTF-8"),
]


def test_invalid_conversation_error_names_line(shell: Shell, chat: Path, tmp_path: Path) -> None:

    def check(case: tuple[str | bytes, str]) -> None:
        text, said = case
        file = tmp_path / "said.json"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        done = shell("recall", "--messages", file, "--user", "lin", "--db", chat)
        assert (done.code, done.out) == (2, "")
        assert said in done.err
        assert "said.json" in done.err
        assert done.err.count("\n") == 1
        assert done.err.endswith("[INVALID_ARGUMENT]\n")

    check_each(BAD_FILES, check)


WRONG = [
    ([], "there is no query"),
    ([" "], "the query is empty"),
    (["x", "--messages", "nowhere.json"], "cannot read nowhere.json"),
    (["x", "--now", "soon"], "'soon' is not a time"),
    (["x", "--max-iterations", "0"], "limit on iterations is 0"),
    (["x", "--seconds", "-1"], "limit on seconds is -1"),
    (["x", "--seconds", "nan"], "limit on seconds is nan"),
    (["x", "--record", "a", "--replay", "b"], "are mutually exclusive"),
    (["x", "--overwrite"], "--overwrite requires --record"),
    (["x", "--replay", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
    (["x", "--record", "nowhere/at/all.jsonl"], "cannot be written"),
    (["x", "--session", "tab\tbed"], "session_id"),
]


def test_what_is_wrong_is_said_in_one_line(shell: Shell, chat: Path) -> None:

    def check(case: tuple[list[str], str]) -> None:
        arguments, said = case
        done = shell("recall", *arguments, "--user", "lin", "--db", chat)
        assert (done.code, done.out) == (2, "")
        assert said in done.err
        assert done.err.count("\n") == 1

    check_each(WRONG, check)


def test_recall_does_not_create_database(shell: Shell, db: Path, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    done = shell("recall", "x", "--user", "lin", "--db", db, "--record", tape)
    assert done.code == 2
    assert not db.exists()
    assert not tape.exists()


@pytest.mark.parametrize(
    ("user", "asked"), [("lin", "我对花生过敏吗？"), ("maya", "Who has the spare key?")]
)
@pytest.mark.parametrize("given", [["--now", NOW], []])
def test_a_recorded_recall_is_replayed_to_the_same_trace(
    shell: Shell, chat: Path, tmp_path: Path, user: str, asked: str, given: list[str]
) -> None:
    tape = tmp_path / "tape.jsonl"
    base = ["recall", asked, "--user", user, "--db", chat, "--json"]
    recorded = shell(*base, *given, "--record", tape).json
    calls_made = [json.loads(line) for line in tape.read_text("utf-8").splitlines()]
    assert len(calls_made) == recorded["usage"]["model_calls"]
    replayed = shell(*base, "--replay", tape).json
    traces = [Trace.from_dict(result["trace"]).fixed() for result in (recorded, replayed)]
    assert traces[0] == traces[1]
    assert recorded["now"] == replayed["now"]
    assert recorded["memories"] == replayed["memories"]


def test_a_replay_needs_no_model(
    shell: Shell, chat: Path, tmp_path: Path, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = tmp_path / "tape.jsonl"
    base = ["recall", "花生", "--user", "lin", "--db", chat]
    script(look_for("花生"), finish("lin-1"))
    assert shell(*base, "--record", tape).code == 0

    def unreachable(settings: object) -> None:
        raise AssertionError("a replay has no model")

    monkeypatch.setattr("memrecall.memory.client_of", unreachable)
    assert "│ " + PEANUTS in shell(*base, "--replay", tape).out


def test_replay_difference_names_call_and_part(shell: Shell, chat: Path, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    base = ["recall", "花生过敏", "--user", "lin", "--db", chat]
    shell(*base, "--record", tape)
    other = shell("recall", "花生不过敏", "--user", "lin", "--db", chat, "--replay", tape)
    assert other.code == 2
    assert "call 1 of" in other.err
    assert "differs in messages" in other.err
    lines = [json.loads(line) for line in tape.read_text("utf-8").splitlines()]
    lines[1]["digests"]["tools"] = "something else"
    tape.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), "utf-8")
    changed = shell(*base, "--replay", tape)
    assert changed.code == 2
    assert "call 2 of" in changed.err
    assert "differs in tools" in changed.err
    as_json = shell(*base, "--replay", tape, "--json")
    error = json.loads(as_json.err)["error"]
    assert (as_json.out, error["code"]) == ("", "FAILED_PRECONDITION")
    assert (error["details"]["call"], error["details"]["part"]) == (2, "tools")


def test_incomplete_replay_is_an_error(shell: Shell, chat: Path, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    base = ["recall", "花生过敏", "--user", "lin", "--db", chat]
    shell(*base, "--record", tape)
    shell("users", "erase", "lin", "--db", chat, "--yes")
    done = shell(*base, "--replay", tape)
    assert done.code == 2
    assert "never made" in done.err


def test_a_replay_keeps_the_recorded_time(shell: Shell, chat: Path, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    base = ["recall", "花生过敏", "--user", "lin", "--db", chat]
    shell(*base, "--record", tape, "--now", NOW)
    assert shell(*base, "--replay", tape, "--now", NOW).code == 0
    other = shell(*base, "--replay", tape, "--now", "2026-05-01")
    assert other.code == 2
    assert "was recorded with now = 2026-04-21T09:00:00Z" in other.err


def test_record_does_not_overwrite_cassette(shell: Shell, chat: Path, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    base = ["recall", "花生过敏", "--user", "lin", "--db", chat, "--record", tape]
    assert shell(*base).code == 0
    before = tape.read_bytes()
    refused = shell(*base)
    assert refused.code == 2
    assert "--overwrite" in refused.err
    assert tape.read_bytes() == before
    assert shell(*base, "--overwrite").code == 0


def test_thoughts_steering_errors_and_dropped_keys_are_shown(
    shell: Shell, chat: Path, script: Any
) -> None:
    script(
        think("Let me [bold]look\x1b[31m.", look_for("garage", limit=3)),
        say("It is with Joyce."),
        calls(
            call("get_memory_detail", memory_key="nope"),
            call_raw("search_memories", '{"user_id": "lin"}'),
            call("extract_search_keywords", query="spare garage key"),
            call("expand_context_window", reason="more", current_size=5, requested_size=10),
        ),
        say('{"keywords": [{"keyword": "garage", "weight": 1, "type": "entity"}]}'),
        finish("maya-1", "made-up", reasoning="why"),
        tokens=(812, 96),
    )
    done = shell("recall", "the garage", "--user", "maya", "--db", chat, "--max-iterations", 1)
    assert done.code == 0
    assert "\x1b" not in done.out
    for part in (
        " 1  812 + 96 tokens",
        "Let me [bold]look�[31m.",
        "hybrid, limit 3, score ≥ 0.0",
        "! steered (text_answer): ",
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
        "4,540 tokens",
    ):
        assert part in done.out, part


def test_a_larger_window_is_a_new_iteration(
    shell: Shell, chat: Path, script: Any, tmp_path: Path
) -> None:
    file = tmp_path / "said.jsonl"
    said = [{"role": "user", "content": f"line {n}"} for n in range(9)]
    file.write_text(as_lines(said), "utf-8")
    script(
        call("expand_context_window", reason="more", current_size=5, requested_size=8),
        look_for("garage"),
        finish("maya-1"),
    )
    done = shell("recall", "go on", "--messages", file, "--user", "maya", "--db", chat)
    assert "10 messages passed" in done.out
    assert "iteration 1, 5 messages shown" in done.out
    assert "iteration 2, 8 messages shown" in done.out
    assert "window 5 → 8" in done.out


def test_failed_model_falls_back_to_rules(shell: Shell, chat: Path, script: Any) -> None:
    script(fail("authentication", "the key [sk] is wrong"))
    done = shell("recall", "Who has the spare key?", "--user", "maya", "--db", chat)
    assert done.code == 0
    assert "the model failed: the key [sk] is wrong" in done.out
    told, _, after = done.out.partition("the model cannot continue, falling back to rules")
    assert "▸" not in told
    assert "▸ search_memories “Who has the spare key?”" in after
    assert "model_failed, window 5" in done.out


def test_limit_hands_off_unjudged_results(shell: Shell, chat: Path, script: Any) -> None:
    script(look_for(GARAGE), say("a"), say("b"))
    done = shell("recall", "garage", "--user", "maya", "--db", chat)
    assert done.code == 0
    assert "stopped (text_answer)" in done.out
    assert "not judged" in done.out


def test_failed_search_exits_1(shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memrecall.errors import StorageError
    from memrecall.memory import Library

    async def broken(*_: object) -> None:
        raise StorageError("the disk is on fire")

    monkeypatch.setattr(Library, "search", broken)
    done = shell("recall", "garage", "--user", "maya", "--db", chat)
    assert done.code == 1
    assert "storage: " in done.out


def test_long_memory_is_truncated_in_output(shell: Shell, chat: Path, script: Any) -> None:
    shell("add", "garage " + "长" * 3_000, "--user", "maya", "--db", chat, "--key", "long")
    script(look_for("garage"), finish("long"))
    done = shell("recall", "garage", "--user", "maya", "--db", chat)
    assert "… 3,007 characters in all; --json shows them" in done.out
    assert len(done.out.splitlines()) < 60
    assert max(map(cell_len, done.out.splitlines())) <= 80


def test_times_are_in_user_time_zone(shell: Shell, chat: Path, script: Any) -> None:
    script(look_for("花生"), finish("lin-1"))
    shell("users", "zone", "lin", "Asia/Shanghai", "--db", chat)
    done = shell("recall", "花生过敏", "--user", "lin", "--db", chat, "--now", NOW)
    assert "2026-04-21 17:00" in done.out
    assert "2026-03-02 17:00  lin-1" in done.out


def test_ctrl_c_prints_one_line(shell: Shell, chat: Path, script: Any) -> None:
    def interrupt(request: object) -> Any:
        raise KeyboardInterrupt

    script(look_for("garage"), interrupt)
    done = shell("recall", "garage", "--user", "maya", "--db", chat)
    assert done.code == 130
    assert done.err == "stopped\n"
    assert "▸ search_memories “garage”" in done.out


@pytest.mark.concurrent
def test_a_terminal_gets_colours(chat: Path, tmp_path: Path) -> None:
    """In a process of its own, with a terminal that is one."""
    parent, child = pty.openpty()
    command = ["-c", "from memrecall.cli import main; main()", "recall", "花生过敏"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    running = subprocess.Popen(
        [sys.executable, *command, "--user", "lin", "--db", str(chat)],
        stdout=child, stderr=subprocess.DEVNULL, env=environment, cwd=ROOT,
    )  # fmt: skip
    os.close(child)
    shown = b""
    while True:
        try:
            read = os.read(parent, 65536)
        except OSError:
            break
        if not read:
            break
        shown += read
    os.close(parent)
    assert running.wait() == 0
    assert b"\x1b[" in shown
    assert PEANUTS in shown.decode()


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
