"""`memrecall connect` and `disconnect` change nothing but the entries of memrecall."""

import io
import json
import shlex
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memrecall.integrations.hooks import client, helper
from memrecall.integrations.hooks.bindings import Binding, read_binding
from memrecall.integrations.hooks.clients import CLIENTS
from memrecall.integrations.hooks.installation import Installation, find_clients, installed, locate
from tests.cases import check_each
from tests.cli.conftest import Shell, shell
from tests.importers.test_transcripts import prompt, write_claude

__all__ = ["shell"]
JSON_CLIENTS = [name for name, each in CLIENTS.items() if each.user_file.endswith(".json")]
CONNECT = ("connect", "--yes", "--no-import", "--user", "ann", "--client")
OTHER = '{"hooks": [{"type": "command", "command": "echo done"}]}'
# Settings files as people have them; each must come back byte for byte.
TEXTS: dict[str, str] = {
    "empty object": "{}",
    "empty object on lines": "{\n}\n",
    "one line": '{"model": "opus", "env": {"A": "1"}}',
    "indented": '{\n  "model": "opus",\n  "env": {\n    "A": "1"\n  }\n}\n',
    "tabs and CRLF": '{\r\n\t"model": "opus"\r\n}\r\n',
    "no final newline": '{\n  "model": "opus"\n}',
    "byte order mark": '\ufeff{\n  "model": "模型"\n}\n',
    "comments": '// mine\n{\n  "model": "opus", // why\n  /* z */ "b": [1, 2] // end\n}\n// x\n',
    "trailing comma": '{\n  "model": "opus",\n}\n',
    "empty hooks": '{\n  "hooks": {}\n}\n',
    "empty events": '{"hooks": {"Stop": [], "UserPromptSubmit": [ ], "BeforeAgent": [\n]}}',
    "other hooks": '{\n  "hooks": {\n    "Stop": [\n      ' + OTHER + "\n    ]\n  }\n}\n",
    "other hooks on one line": '{"hooks": {"Stop": [' + OTHER + ', {"hooks": []}]}}',
    "other events": '{"hooks": {"PreToolUse": [' + OTHER + ']}, "z": null}',
    "escapes": '{"a\\"b": "\\u00e9\\\\", "n": -1.5e3, "t": true, "f": [false, {}]}',
    "version": '{"version": 1, "hooks": {"stop": [{"command": "a"}]}}',
    "other servers": '{"mcpServers": {\n "a": {"url": "a"} // mine\n}, "mcp": {"servers": {}}}',
}
# The TOML file that has the same name in a test.
CONFIGS = dict.fromkeys(TEXTS, 'model = "o3" # why\n\n[mcp_servers.docs]\ncommand = "docs"\n')
CONFIGS |= {"no final newline": 'model = "o3"', "tabs and CRLF": '# mine\r\nmodel = "o3"\r\n'}
CONFIGS |= {"empty object": "", "byte order mark": "\ufeff# 模型\n"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without settings."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setattr(Path, "home", lambda: folder)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "MEMRECALL_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no client is installed
    monkeypatch.setattr(helper, "warm_helper", lambda *_: None)  # test_helper.py starts it
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    return folder


def bind(name: str, **fields: Any) -> Binding:
    return Binding(**{"client": name, "user": "ann", "mcp": True, **fields})


def installed_commands(name: str, text: str) -> dict[str, list[str]]:
    """Return the command of memrecall for each event, read as the client would."""
    commands = {}
    for event, entries in json.loads(text)["hooks"].items():
        for entry in entries:
            for hook in entry.get("hooks", [entry]):
                if "memrecall" in hook.get("command", ""):
                    assert event not in commands
                    commands[event] = shlex.split(hook["command"])
    assert set(commands) == {event.name for event in CLIENTS[name].events}
    return commands


class TestSettingsFile:
    def test_file_is_created_and_removed_again(self, home: Path) -> None:
        def check(name: str) -> None:
            target = locate(name, None)
            target.install(bind(name))
            text = target.settings_path.read_text("utf-8")
            for event, command in installed_commands(name, text).items():
                assert command[-3:] == [event, "--config", str(target.binding_path)]
                assert command[-7:-3] == [sys.executable, "-I", "-S", client.__file__]
            assert target.describe()["installed"]
            target.remove()
            assert not target.settings_path.exists()
            assert not [path for path in home.rglob("*") if path.is_file()]
            assert list(target.binding_path.parent.iterdir()) == []
            assert not target.describe()["installed"]

        check_each(JSON_CLIENTS, check)

    def test_removal_restores_every_byte(self) -> None:
        def check(case: tuple[str, str]) -> None:
            client_name, name = case
            target = locate(client_name, None)
            original = TEXTS[name].encode()
            files = [change.path for change in target.plan(bind(client_name))]
            for file in files:
                text = CONFIGS[name] if file.suffix == ".toml" else TEXTS[name]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text.encode())
            before = [file.read_bytes() for file in files]
            for change in target.install(bind(client_name)):
                assert change.after is not None
                assert change.path.read_bytes() == change.after.encode() != original
            assert target.describe()["installed"]
            again = target.install(bind(client_name))
            assert all(change.is_empty for change in again)
            # Another user and program: the entries are replaced, and still removed as a whole.
            assert not all(c.is_empty for c in target.install(bind(client_name, user="bob")))
            target.remove()
            assert [file.read_bytes() for file in files] == before

        check_each([(each, name) for each in CLIENTS for name in TEXTS], check)

    def test_server_of_the_same_name_that_somebody_added_stays(self) -> None:
        texts = {"cursor": '{"mcpServers": {"memrecall": {"url": "http://a/mcp"}}}'}
        texts |= {"opencode": '{"mcp": {"memrecall": {"type": "remote", "url": "http://a/mcp"}}}'}
        texts |= {"codex": '[mcp_servers.memrecall]\nurl = "http://a/mcp"\n'}

        def check(name: str) -> None:
            target = locate(name, None)
            path = target.plan(bind(name))[-1].path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[name])
            target.install(bind(name))
            assert path.read_text() == texts[name]
            target.remove()
            assert path.read_text() == texts[name]

        check_each(texts, check)

    def test_changed_table_of_codex_stays_whole_and_is_named(self, shell: Shell) -> None:
        changes: dict[str, Callable[[str], str]] = {
            "key added": lambda text: f"{text}startup_timeout_sec = 20\n",
            "key that the table before has": lambda text: f'{text}cwd = "x"\n',
            "table added": lambda text: f'{text}[mcp_servers.memrecall.env]\nA = "1"\n',
            "reformatted": lambda text: text.replace(" = ", "="),
            "other line ends": lambda text: text.replace("\n", "\r\n"),
        }
        path = locate("codex", None).plan(bind("codex"))[-1].path
        path.parent.mkdir(parents=True)
        before = '[mcp_servers.docs]\ncommand = "docs"\ncwd = "d"\n'

        def check(name: str) -> None:
            path.write_text(before, "utf-8")
            assert shell(*CONNECT, "codex").code == 0
            changed = changes[name](path.read_text("utf-8"))
            path.write_bytes(changed.encode())
            assert shell(*CONNECT, "codex", "--agent", "x", "--url", "").code == 0
            assert path.read_bytes() == changed.encode()
            outcome = shell("disconnect", "--yes", "--client", "codex")
            assert outcome.code == 0, outcome
            assert path.read_bytes() == changed.encode()
            assert f"{path} keeps the entry memrecall" in outcome.out.replace("\n", " ")
            assert not locate("codex", None).settings_path.exists()

        check_each(changes, check)
        path.write_text(before, "utf-8")
        assert shell(*CONNECT, "codex").code == 0
        path.write_text(path.read_text("utf-8") + '[profiles.a]\nmodel = "o3"\n', "utf-8")
        outcome = shell("disconnect", "--yes", "--client", "codex")
        assert "keeps" not in outcome.out
        assert path.read_text("utf-8") == before + '[profiles.a]\nmodel = "o3"\n'

    def test_other_settings_stay_where_file_was_changed_since(self) -> None:
        target = locate("claude-code", None)
        target.install(bind("claude-code"))
        settings = json.loads(target.settings_path.read_text("utf-8"))
        settings["model"] = "opus"
        settings["hooks"]["Stop"][0]["hooks"].insert(0, {"type": "command", "command": "say done"})
        settings["hooks"]["Stop"].append({"hooks": []})
        settings["hooks"]["PreToolUse"] = [json.loads(OTHER)]
        target.settings_path.write_text(json.dumps(settings, indent=4), "utf-8")
        target.remove()
        assert json.loads(target.settings_path.read_text("utf-8")) == {
            "hooks": {
                "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}, {"hooks": []}],
                "PreToolUse": [json.loads(OTHER)],
            },
            "model": "opus",
        }

    def test_moved_program_replaces_its_former_entry(self) -> None:
        target = locate("cursor", None)
        target.install(bind("cursor"))
        text = target.settings_path.read_text("utf-8")
        moved = installed_commands("cursor", text)["beforeSubmitPrompt"][0]
        target.settings_path.write_text(text.replace(moved, "/old/bin/memrecall"), "utf-8")
        assert not target.install(bind("cursor"))[0].is_empty
        installed_commands("cursor", target.settings_path.read_text("utf-8"))
        target.remove()
        assert not target.settings_path.exists()

    def test_unreadable_settings_are_refused_and_kept(self, shell: Shell) -> None:
        cases = {
            "cut off": '{"hooks": {',
            "no JSON": "model = 1",
            "empty": "",
            "a list": "[]",
            "hooks are a list": '{"hooks": []}',
            "event is an object": '{"hooks": {"Stop": {}}}',
            "single quotes": "{'a': 1}",
            "two values": "{} {}",
            "bad escape": '{"a": "\\x"}',
            "bad number": '{"a": 1.2.3}',
            "deep": "[" * 100_000,
        }
        path = locate("claude-code", None).settings_path
        path.parent.mkdir()

        def check(name: str) -> None:
            path.write_text(cases[name], "utf-8")
            outcome = shell(*CONNECT, "claude-code")
            assert outcome.code == 2, outcome
            assert str(path) in outcome.err
            assert path.read_text("utf-8") == cases[name]
            assert not locate("claude-code", None).binding_path.exists()

        check_each(cases, check)

    def test_link_and_mode_of_file_stay(self, tmp_path: Path) -> None:
        target = locate("gemini", None)
        target.settings_path.parent.mkdir()
        real = tmp_path / "dotfiles.json"
        real.write_text("{}")
        real.chmod(0o640)
        target.settings_path.symlink_to(real)
        target.install(bind("gemini"))
        assert target.settings_path.is_symlink()
        assert target.settings_path.resolve() == real
        assert stat.S_IMODE(real.stat().st_mode) == 0o640
        assert "BeforeAgent" in real.read_text("utf-8")


def read(target: Installation) -> Binding:
    return read_binding(str(target.binding_path))


class TestCommands:
    def test_connect_binds_user_and_project(self, shell: Shell, tmp_path: Path, home: Path) -> None:
        project = tmp_path / "work" / "项目 a"
        project.mkdir(parents=True)
        options = ("--project", project, "--deadline", "1.5", "--no-capture", "--all-projects")
        more = ("--redact-pattern", "A+", "--db", "x.db", "--json")
        outcome = shell(*CONNECT, "claude-code", *options, *more)
        assert outcome.code == 0, outcome
        target = locate("claude-code", project)
        (item,) = outcome.json["items"]
        assert item["settings_file"] == str(project / ".claude" / "settings.local.json")
        assert item["binding"] == str(target.binding_path)
        assert (item["changed"], item["injects"]) == (True, True)
        servers = json.loads((home / ".claude.json").read_text("utf-8"))
        command = servers["projects"][str(project)]["mcpServers"]["memrecall"]
        assert command["args"][-4:] == ["--user", "ann", "--db", str(Path("x.db").absolute())]
        binding = read(target)
        assert (binding.user, binding.workspace) == ("ann", str(project))
        assert (binding.deadline, binding.capture, binding.redact_patterns) == (1.5, False, ("A+",))
        assert binding.db == str(Path("x.db").absolute())
        assert stat.S_IMODE(target.binding_path.stat().st_mode) == 0o600
        text = target.settings_path.read_text("utf-8")
        command = installed_commands("claude-code", text)["Stop"]
        assert command[-1] == str(target.binding_path)
        assert not locate("claude-code", None).describe()["installed"]

    def test_client_waits_longer_than_deadline(self, shell: Shell) -> None:
        units = {"claude-code": 1, "codex": 1, "gemini": 1_000}

        def check(name: str) -> None:
            path = locate(name, None).settings_path
            for deadline, seconds in ((2, 10), (30.5, 36), (60, 65), (2, 65)):
                assert shell(*CONNECT, name, "--deadline", deadline).code == 0
                hooks = json.loads(path.read_text("utf-8"))["hooks"]
                timeouts = {
                    hook["timeout"] for (group,) in hooks.values() for hook in group["hooks"]
                }
                assert timeouts == {seconds * units[name]}, deadline  # a longer one may stay

        check_each(units, check)

    def test_clients_are_found_shown_and_connected_after_one_confirmation(
        self, shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "no coding assistant was found" in shell("connect").err
        for folder in (".claude", ".gemini", ".config/opencode"):
            (home / folder).mkdir(parents=True)
        questions: list[str] = []
        monkeypatch.setattr("typer.confirm", lambda text, **_: questions.append(text))
        monkeypatch.setattr("getpass.getuser", lambda: "lin")
        outcome = shell("connect", "--no-import")
        assert outcome.code == 0, outcome
        assert questions == ["Connect Claude Code, Gemini CLI, OpenCode?"]
        for name in (".claude/settings.json", ".claude.json", ".gemini/settings.json"):
            assert f"+++ {home / name}\n" in outcome.out
        assert [each.client.name for each in installed()] == ["claude-code", "gemini", "opencode"]
        assert {read(each).user for each in installed()} == {"lin"}
        server = json.loads((home / ".config/opencode/opencode.json").read_text())["mcp"]
        assert server["memrecall"]["command"][-2:] == ["--project", "."]
        assert shell("connect", "--json").code == 2  # nobody to ask
        assert shell("disconnect").code == 0
        assert questions[1:] == ["Disconnect Claude Code, Gemini CLI, OpenCode?"]
        assert not [path for path in home.rglob("*") if path.is_file()]
        assert "no client is connected" in shell("disconnect").out

    def test_one_question_connects_and_imports_past_sessions(
        self, shell: Shell, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = datetime.now(UTC).isoformat()
        write_claude(home, "s1", prompt("m1", None, "The key is blue.", timestamp=now))
        monkeypatch.setattr("memrecall.cli.connect.find_spec", lambda name: name != "mcp" or None)
        connect = ("connect", "--user", "ann", "--db", tmp_path / "chat.db")
        for answer in ("n\n", "", "y\n", "y\n"):  # the second is an end of input
            monkeypatch.setattr("sys.stdin", io.StringIO(answer))
            outcome = shell(*connect)
            assert (outcome.code, bool(installed())) == ((0, True) if "y" in answer else (2, False))
            assert "no MCP server, as mcp is missing: pip install" in outcome.err
            assert "mport 1 message of the last 90 days" in outcome.err
            assert outcome.err.count("[y/N]") == 1
        assert "0 messages of 1 user imported, 1 already stored" in outcome.out
        assert not (home / ".claude.json").exists()

    def test_dry_run_shows_diff_and_writes_nothing(self, shell: Shell, home: Path) -> None:
        target = locate("cursor", None)
        outcome = shell(*CONNECT, "cursor", "--dry-run", "--create-key")
        assert outcome.code == 0, outcome
        assert outcome.out.startswith("--- /dev/null\n+++ ")
        assert "afterAgentResponse" in outcome.out
        assert "mcpServers" in outcome.out
        assert not list(home.iterdir())
        assert not target.binding_path.exists()
        assert shell(*CONNECT, "cursor").code == 0
        outcome = shell("disconnect", "--client", "cursor", "--dry-run", "--json")
        assert outcome.json["items"][0]["changed"]
        assert "+++ /dev/null" in outcome.json["items"][0]["diff"]
        assert target.settings_path.exists()
        assert "stays as it is" in shell(*CONNECT, "cursor", "--dry-run").out

    def test_status_sums_receipts_of_every_client(self, shell: Shell) -> None:
        for name in ("codex", "gemini"):
            assert shell(*CONNECT, name).code == 0
        path = str(locate("gemini", None).binding_path)
        cost = {"tokens": 210, "model_calls": 0, "milliseconds": 41}
        client.write_log(path, "BeforeAgent", recalled=2, stored=1, **cost)
        client.write_log(path, "AfterAgent", recalled=0, stored=1, milliseconds=21)
        client.write_log(path, "AfterAgent", problem="the service answered 503")
        items = {row["client"]: row for row in shell("connect", "--status", "--json").json["items"]}
        assert items.keys() == CLIENTS.keys()
        assert [n for n, row in items.items() if row["installed"]] == ["codex", "gemini"]
        assert (items["gemini"]["user"], items["gemini"]["pending"]) == ("ann", 0)
        activity = items["gemini"]["activity"]
        sums = ("events", "recalled", "stored", "errors", "last_event")
        assert [activity[name] for name in sums] == [3, 2, 2, 1, "AfterAgent"]
        lines = shell("connect", "--status").out.splitlines()
        assert lines[0].split() == ["client", "events", "last", "event", *sums[1:4]]
        row = next(n for n, line in enumerate(lines) if line.startswith("gemini"))
        assert lines[row].split()[-3:] == ["2", "2", "1"]
        assert "recalled 2 memories, 210 tokens added, 0 model calls, 31 ms" in lines[row + 1]
        assert "the service answered 503" in lines[row + 2]
        assert any(line.startswith("cursor") and "not connected" in line for line in lines)

    def test_created_key_opens_one_user_and_survives_reinstallation(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        db = tmp_path / "chat.db"
        install = (*CONNECT, "codex", "--agent", "work", "--db", db)
        refused = shell(*install)
        assert refused.code == 2
        assert "--create-key" in refused.err
        assert shell(*install, "--create-key").code == 0
        key = read(locate("codex", None)).key
        (item,) = shell("keys", "list", "--db", db, "--json").json["items"]
        assert key.startswith(f"mr_{item['key_id']}_")
        assert (item["users"], item["agent_id"]) == (["ann"], "work")
        assert shell(*install, "--deadline", "1").code == 0
        assert read(locate("codex", None)).key == key
        status = shell("connect", "--status")
        assert key not in status.out + shell("connect", "--status", "--json").out

    def test_disconnecting_leaves_no_folder_of_a_client_that_was_not_there(
        self, shell: Shell
    ) -> None:
        assert shell("connect", "--all", "--yes", "--no-import", "--user", "ann").code == 0
        assert len(find_clients()) == len(CLIENTS)
        assert shell("disconnect", "--yes").code == 0
        assert find_clients() == []

    def test_failed_write_leaves_the_file_and_nothing_else(
        self, shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = locate("gemini", None).settings_path
        path.parent.mkdir()
        path.write_text("{}")

        def fail(*_: object) -> None:
            raise PermissionError("immutable")

        monkeypatch.setattr(Path, "replace", fail)
        outcome = shell(*CONNECT, "gemini")
        assert (outcome.code, "immutable" in outcome.err) == (2, True)
        assert [file.name for file in home.rglob("*") if file.is_file()] == ["settings.json"]

    def test_wrong_values_are_refused(self, shell: Shell, tmp_path: Path) -> None:
        cases: dict[str, tuple[object, ...]] = {
            "unknown client": ("emacs",),
            "empty user": ("codex", "--user", ""),
            "another machine": ("codex", "--url", "http://192.0.2.7:80"),
            "no address": ("codex", "--url", "localhost"),
            "broken pattern": ("codex", "--redact-pattern", "("),
            "no key": ("codex", "--key-file", tmp_path / "none"),
            "no project": ("codex", "--project", tmp_path / "none"),
            "long deadline": ("codex", "--deadline", 61),
        }

        def check(name: str) -> None:
            outcome = shell(*CONNECT, *cases[name])
            assert outcome.code == 2, outcome
            assert outcome.err.startswith("error: ")
            assert not list(tmp_path.glob("xdg_config_home/**/*.json"))

        check_each(cases, check)
