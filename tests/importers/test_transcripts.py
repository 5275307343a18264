"""Past sessions of coding assistants: what is stored of their transcripts, once, by project."""

import hashlib
import json
import os
import shutil
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memrecall.importers import ReadOptions, Record
from memrecall.importers.past_sessions import plan_past_sessions
from memrecall.importers.plan import ImportPlan, get_format
from memrecall.integrations.hooks.clients import CLIENTS
from memrecall.integrations.hooks.events import parse_payload
from memrecall.memory import Importer, Library, open_source
from memrecall.scope import Scope
from memrecall.store import MessageFilter
from memrecall.types import NewMessage
from tests.cli.conftest import Shell, db, shell
from tests.hooks.payloads import samples
from tests.importers.reading import FIXTURES, read

__all__ = ["db", "shell"]
LIN = Scope("lin")
RESUMED = "9e4b7f60-18c2-4b0e-8f67-2c9f5f1d7a22"
FIRST = "5d0c3c1e-7a54-4c37-9d0b-6f1f0a3f2b11"
TURN = "019c9f10-4b00-7d20-9b62-1d8e6c2f5a02"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with the transcripts of the fixtures."""
    for client, folder in {
        "claude-code": ".claude/projects",
        "codex": ".codex/sessions",
        "gemini-cli": ".gemini/tmp",
    }.items():
        shutil.copytree(FIXTURES / client, tmp_path / "home" / folder)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for number, file in enumerate(files):  # in the order of their sessions
        os.utime(file, (1_780_000_000 + number,) * 2)
    return tmp_path / "home"


def write_claude(home: Path, name: str, *entries: dict[str, Any] | str) -> Path:
    """Write a transcript of Claude Code; entries without a type are prompts."""
    file = home / ".claude" / "projects" / "p" / f"{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    defaults = {"type": "user", "sessionId": name, "timestamp": "2026-03-05T10:00:00Z"}
    lines = (e if isinstance(e, str) else json.dumps({**defaults, **e}) for e in entries)
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def prompt(uuid: str, parent: str | None, text: str, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "parentUuid": parent, "message": {"content": text}, **more}


def answer(uuid: str, parent: str | None, *blocks: dict[str, Any]) -> dict[str, Any]:
    message = {"content": list(blocks)}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": message}


def say(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


QUEUED = {"type": "queued_command", "commandMode": "prompt", "prompt": "typed meanwhile"}
CALL = {"type": "tool_use", "name": "Bash", "input": {}}


def records_of(plan: ImportPlan) -> list[Any]:
    return [item for _, item in plan.items() if isinstance(item, Record)]


def texts_of_claude() -> list[str]:
    """Return what would be imported of Claude Code's transcripts."""
    return [
        record.item.content for record in records_of(plan_past_sessions("lin", ["claude-code"]))
    ]


def test_only_prompts_and_last_answers_are_read() -> None:
    claude, codex, gemini = (read(FIXTURES / n) for n in ("claude-code", "codex", "gemini-cli"))
    assert [(role, text[:24]) for role, _, text in claude.said] == [
        ("user", "The checkout tests fail "),
        ("assistant", "The collation version ch"),
        ("user", "连接池上限定为 20，测试机内存不够"),
        ("assistant", "好的，连接池上限是 20，写在 config/p"),
        ("user", "The staging password is:"),
        ("user", "Which port does staging "),
        ("user", "Write down why we refres"),
        ("assistant", "Noted in docs/postgres.m"),
    ]
    assert claude.survey.skipped == {
        "commands and added context": 6,
        "subagents": 3,
        "remarks before the last answer": 2,
        "other branches": 2,
        "copies in other files": 2,
        "lines that cannot be read": 1,
    }
    assert [text for _, _, text in codex.said] == [
        "Use Hugo for the blog, not Jekyll.",
        "The blog is built with Hugo now.",
        "Round VAT per line item, not per invoice.",
        "VAT is rounded for each line item now; the invoice total is their sum.",
        "德国的税率是多少？",
        "德国标准税率是 19%，减免税率是 7%。",
        "Add the Swiss rate too.",
        "Switzerland is 8.1% now.",
    ]
    assert codex.survey.skipped["copies in other files"] == 6
    assert (codex.survey.skipped["other branches"], codex.survey.skipped["subagents"]) == (2, 1)
    assert [text for _, _, text in gemini.said] == [
        "How do we deploy the map service?",
        "With deploy.sh, which applies k8s/map.yaml to the cluster in Frankfurt.",
        "瓦片缓存放在哪个区域？",
        "瓦片缓存在法兰克福（eu-central-1）。",
        "Name the map service Atlas.",
    ]
    assert {message.metadata["workspace"] for message in codex.messages} == {
        "/home/lin/shop",
        "/home/lin/blog",
    }
    assert {message.project for message in codex.messages} == {
        "github.com/Acme/shop",
        "/home/lin/blog",
    }
    times = [message.ts for message in codex.messages if message.ts]
    assert times == sorted(set(times))  # also where lines have no time
    assert claude.messages[0].metadata["branch"] == "main"
    assert "tulip" not in claude.messages[4].content  # whatever the policy of the database is


def test_branches_are_told_from_damage_and_from_calls_at_the_same_time(home: Path) -> None:
    shutil.rmtree(home / ".claude")
    write_claude(
        home,
        "s",
        prompt("u1", "lost", "before the gap"),
        answer("a1", "u1", say("kept")),
        prompt("u2", "never-written", "after the gap"),
        answer("a2", "u2", say("two calls"), CALL),
        answer("a3", "a2", say("said beside the second call")),
        answer("a4", "a2", say("done")),
        prompt("u3", "a4", "taken back"),
        answer("a5", "u3", say("taken back too")),
        prompt("u4", "a4", "and on", isSidechain=False),
        prompt("x1", "x2", "a circle"),
        prompt("x2", "x1", "of parents"),
        prompt("q1", "u4", "", type="attachment", attachment=QUEUED),
        prompt("u5", "q1", "the end"),
    )
    assert texts_of_claude() == [
        "before the gap",
        "kept",
        "after the gap",
        "done",
        "and on",
        "a circle",
        "of parents",
        "typed meanwhile",
        "the end",
    ]


async def import_all(library: Library) -> tuple[int, int]:
    report = await Importer(library).run(plan_past_sessions("lin"))
    assert not report.bad
    return report.stored, report.repeated


async def test_import_again_stores_only_what_is_new(library: Library, home: Path) -> None:
    assert await import_all(library) == (21, 0)
    assert await import_all(library) == (0, 21)
    write_claude(home, RESUMED, prompt("c3", "c2", "谢谢", cwd="/home/lin/shop"))
    fork = {"sessionId": FIRST, "messageUuid": "a1"}
    copy = prompt("a1", None, texts_of_claude()[0], forkedFrom=fork)
    file = write_claude(home, "fork", copy, prompt("f1", "a1", "go on", origin={"kind": "peer"}))
    os.utime(file, (0, 0))  # read before the session that it was copied from
    assert await import_all(library) == (1, 21)
    page = await library.store.timeline(LIN).page(MessageFilter(session_id=RESUMED))
    assert (page.items[0].content, page.items[0].project) == ("谢谢", "/home/lin/shop")
    shop = await library.store.timeline(Scope("lin", project="github.com/Acme/shop")).page()
    assert {message.session_id[:8] for message in shop.items} == {"019c9f10", "019ca200"}


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini"])
async def test_turn_of_the_hooks_is_not_stored_again(
    library: Library, home: Path, client: str
) -> None:
    plan = plan_past_sessions("lin", [client])
    records = records_of(plan)
    start = 2 if client == "codex" else 0  # the session before it has no ids of turns
    question, reply = records[start : start + 2]
    known, ids = CLIENTS[client], set()
    for sample in samples(question.item.content, reply.item.content):
        event = known.event(sample.event)
        if sample.client == client and event is not None:
            fields = {**sample.payload, known.session: question.session_id}
            fields |= {known.turn: TURN} if known.turn else {}
            for each in parse_payload(known, event, json.dumps(fields).encode()).messages:
                message = NewMessage(
                    content=each.content, role=each.role, message_id=each.message_id
                )
                await library.add_messages(Scope("lin", None, each.session_id), [message])
                ids.add(each.message_id)
    assert ids == {question.item.message_id, reply.item.message_id}
    report = await Importer(library).run(plan)
    assert (report.stored, report.repeated, report.bad) == (len(records) - 2, 2, [])


def test_since_project_ignored_folders_and_secrets(
    home: Path, shell: Shell, db: Path, tmp_path: Path
) -> None:
    shop, notes = tmp_path / "shop", tmp_path / "private" / "notes"
    (shop / ".git").mkdir(parents=True)
    (shop / ".git" / "config").write_text('[remote "origin"]\nurl = git@example.org:a/b.git\n')
    notes.mkdir(parents=True)
    (tmp_path / "private" / ".memrecallignore").write_text("notes\n")
    key = "AKIA" + "ABCDEFGHIJKLMNOP"
    write_claude(
        home,
        "mine",
        prompt("m1", None, "旧的", cwd=str(shop), timestamp="2026-01-01T00:00:00Z"),
        prompt("m2", "m1", f"the key is {key}", cwd=str(shop)),
        prompt("m3", "m2", "never stored", cwd=str(notes)),
    )
    arguments = ("import", "--client", "claude-code", "--user", "lin", "--db", db)
    preview = shell(*arguments, "--project", shop, "--dry-run", "--json").json
    assert preview["projects"] == {"example.org/a/b": {"sessions": 1, "messages": 2}}
    assert (preview["skipped"]["ignored folders"], preview["skipped"]["other projects"]) == (1, 10)
    assert not db.exists()
    outcome = shell(*arguments, "--project", shop, "--since", "2026-02-01")
    assert outcome.out.splitlines()[:2] == [
        "1 message of 1 user imported; redacted: api key 1",
        "project        example.org/a/b (sessions: 1, messages: 1)",
    ]
    stored = shell("messages", "--user", "lin", "--db", db, "--json").json["items"]
    assert [item["content"] for item in stored] == ["the key is [redacted: api key]"]
    none = shell(*arguments, "--since", "1d")
    assert (none.code, none.out) == (0, "no past sessions to import\n")
    assert shell(*arguments, "--since", "1d", "--json").json["skipped"]["before --since"] == 2
    for file in home.glob(".claude/projects/*/*.jsonl"):
        os.utime(file, (0, 0))
    assert not plan_past_sessions("lin", ["claude-code"], since=datetime.now(UTC)).files
    for wrong in (("--client", "cursor"), (), ("x.json", "--client", "all")):
        assert shell("import", *wrong, "--user", "lin").code == 2


def test_transcripts_are_found_where_the_clients_keep_them(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".codex" / "sessions" / "rollout-link.jsonl").symlink_to(tmp_path)
    plan = plan_past_sessions("lin")
    assert plan.survey.formats == {"claude-code": 2, "codex": 4, "gemini-cli": 3}
    assert plan.source.left_out == {"subagents": 1}
    monkeypatch.setenv("CODEX_HOME", str((home / ".codex").rename(tmp_path / "codex")))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("GEMINI_CLI_HOME", str(home.rename(tmp_path / "other")))
    assert plan_past_sessions("lin").survey.formats == {"codex": 4, "gemini-cli": 3}


def test_gemini_projects_are_named_by_their_folders(home: Path) -> None:
    gemini = home / ".gemini"
    (folder,) = (gemini / "tmp").iterdir()
    maps = "/home/lin/maps"

    def projects() -> set[str]:
        return set(plan_past_sessions("lin", ["gemini"]).survey.projects)

    assert projects() == {f"gemini:{folder.name}"}
    (gemini / "projects.json").write_text(json.dumps({"projects": {maps: "maps"}}))
    by_hash = folder.rename(folder.with_name(hashlib.sha256(maps.encode()).hexdigest()))
    assert projects() == {maps}
    by_name = by_hash.rename(by_hash.with_name("maps"))
    assert projects() == {maps}
    (by_name / ".project_root").write_text("/home/lin/atlas\n")
    (gemini / "projects.json").write_text("[")
    assert projects() == {"/home/lin/atlas"}


HOSTILE = (
    "",
    "   ",
    "[]",
    "null",
    "1" * 5_000,
    "[" * 100_000,
    '{"type": "user", "uuid": ["a"], "parentUuid": {}, "message": [], "sessionId": 1}',
    '{"type": "user", "uuid": "a", "message": {"content": [1, {"type": "text", "text": 2}]}}',
    '{"type": "user", "message": {"content": "\\ud800"}, "cwd": "/\\u0000", "sessionId": "../.."}',
    '{"type": "assistant", "message": {"content": {"text": "x"}}, "timestamp": "soon"}',
    '{"type": "user", "message": {"content": "y"}, "timestamp": "9999-12-31T23:59:59.9999Z"}',
    '{"type": "session_meta", "payload": {"id": 7, "git": {"repository_url": "https://["}}}',
    '{"type": "response_item", "payload": {"type": "message", "role": "user", "content": "x"}}',
    '{"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": -1}}',
    '{"sessionId": {}, "projectHash": 3, "messages": [{"id": null, "type": "user"}]}',
    '{"$rewindTo": ["x"]}',
    '{"$set": {"messages": 3}}',
    '{"id": {"a": 1}, "type": "user", "content": [{"text": 5}], "timestamp": 1}',
)


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini-cli"])
def test_hostile_lines_never_end_an_import(name: str, tmp_path: Path) -> None:
    good = {
        "claude-code": prompt("g", None, "good", cwd="relative", sessionId="s" * 500, type="user"),
        "codex": {"type": "message", "role": "user", "content": [{"text": "good"}]},
        "gemini-cli": {"id": "g", "type": "user", "content": "good", "sessionId": "s"},
    }[name]
    file = tmp_path / "x.jsonl"
    file.write_text("\n".join((*HOSTILE, json.dumps(good), '{"half": "wri')), "utf-8")
    result = read(file, name)
    assert result.said[-1] == ("user", None, "good")
    assert result.survey.skipped["lines that cannot be read"] == 5
    for record in result.records:
        Scope("lin", None, record.session_id)
    with open_source(file) as source:
        file.unlink()  # by the client, after it was found
        assert not list(get_format(name).read(source.files[0], ReadOptions()))[1:]


def test_results_of_tools_take_no_memory(home: Path) -> None:
    result = {"type": "tool_result", "content": "x" * 1_000_000}
    lines = [answer(f"a{n}", f"a{n - 1}", result) for n in range(30)]
    file = write_claude(home, "large", prompt("p", None, "read it all"), *lines)
    tracemalloc.start()
    try:
        assert "read it all" in texts_of_claude()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < file.stat().st_size / 3


def test_what_clients_add_to_prompts_is_cut(home: Path) -> None:
    shutil.rmtree(home / ".claude")
    texts = {
        "<bash-input>ls</bash-input>": None,
        "<task-notification>done</task-notification>": None,
        "[Request interrupted by user for tool use]": None,
        "<system-reminder>a</system-reminder>问一下<system-reminder>b</system-reminder>": "问一下",
        "an <system-reminder> without end": "an <system-reminder> without end",
        "<div> is not closed, why?": "<div> is not closed, why?",
    }
    for number, text in enumerate(texts):
        write_claude(home, f"s{number}", prompt(f"u{number}", None, text))
    assert sorted(texts_of_claude()) == sorted(text for text in texts.values() if text)
