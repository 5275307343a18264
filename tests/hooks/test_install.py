"""`memrecall hooks`: install, uninstall and status change nothing but the entries of memrecall."""

import json
import shlex
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from memrecall.integrations.hooks import client
from memrecall.integrations.hooks.bindings import Binding, read_binding
from memrecall.integrations.hooks.clients import CLIENTS
from memrecall.integrations.hooks.installation import Installation, locate
from tests.cases import check_each
from tests.cli.conftest import Shell, shell  # noqa: F401 -- a fixture

JSON_CLIENTS = [name for name, each in CLIENTS.items() if each.user_file.endswith(".json")]
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
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without settings."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setattr(Path, "home", lambda: folder)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    return folder


def bind(name: str, **fields: Any) -> Binding:
    return Binding(client=name, user="ann", **fields)


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
    def test_file_is_created_and_removed_again(self) -> None:
        def check(name: str) -> None:
            target = locate(name, None)
            target.install(bind(name))
            text = target.settings_path.read_text("utf-8")
            for event, command in installed_commands(name, text).items():
                assert command[-3:] == [event, "--config", str(target.binding_path)]
                assert command[:-3] == [sys.executable, "-I", "-S", client.__file__]
            assert target.describe()["installed"]
            target.remove()
            assert not target.settings_path.exists()
            assert list(target.binding_path.parent.iterdir()) == []
            assert not target.describe()["installed"]

        check_each(JSON_CLIENTS, check)

    def test_removal_restores_every_byte(self) -> None:
        def check(case: tuple[str, str]) -> None:
            client_name, name = case
            target = locate(client_name, None)
            target.settings_path.parent.mkdir(exist_ok=True)
            original = TEXTS[name].encode()
            target.settings_path.write_bytes(original)
            change = target.install(bind(client_name))
            assert change.after is not None
            assert target.settings_path.read_bytes() == change.after.encode() != original
            assert target.describe()["installed"]
            again = target.install(bind(client_name))
            assert again.is_empty
            target.remove()
            assert target.settings_path.read_bytes() == original

        check_each([(each, name) for each in JSON_CLIENTS for name in TEXTS], check)

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
                "Stop": [
                    {"hooks": [{"type": "command", "command": "say done"}]},
                    {"hooks": []},
                ],
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
        assert not target.install(bind("cursor")).is_empty
        installed_commands("cursor", target.settings_path.read_text("utf-8"))
        target.remove()
        assert not target.settings_path.exists()

    def test_unreadable_settings_are_refused_and_kept(self, shell: Shell) -> None:  # noqa: F811
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
            outcome = shell("hooks", "install", "claude-code", "--user", "ann")
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


class TestNotify:
    TEXTS = ("", 'model = "o3"\n', '# mine\r\nmodel = "o3" # why\r\n[tools]\r\nweb = true\r\n')

    def test_notify_line_is_added_and_removed(self) -> None:
        target = locate("codex-notify", None)
        target.settings_path.parent.mkdir()

        def check(text: str) -> None:
            target.settings_path.write_bytes(text.encode())
            target.install(bind("codex-notify"))
            settings = tomllib.loads(target.settings_path.read_bytes().decode())
            assert settings["notify"][-3:-1] == ["agent-turn-complete", "--config"]
            assert settings.get("model") == (tomllib.loads(text).get("model"))
            assert target.describe()["installed"]
            assert target.install(bind("codex-notify")).is_empty
            target.remove()
            assert target.settings_path.read_bytes() == text.encode()

        check_each(self.TEXTS, check)

    def test_other_notify_program_is_kept(self, shell: Shell) -> None:  # noqa: F811
        path = locate("codex-notify", None).settings_path
        path.parent.mkdir()
        for text in ('notify = ["say", "done"]\n', "notify = [\n"):
            path.write_text(text)
            outcome = shell("hooks", "install", "codex-notify", "--user", "ann")
            assert outcome.code == 2
            assert path.read_text() == text


def read(target: Installation) -> Binding:
    return read_binding(str(target.binding_path))


class TestCommands:
    def test_install_binds_user_and_project(self, shell: Shell, tmp_path: Path) -> None:  # noqa: F811
        project = tmp_path / "work" / "项目 a"
        project.mkdir(parents=True)
        options = ("--user", "ann", "--project", project, "--deadline", "1.5", "--no-capture")
        outcome = shell(
            *(
                "hooks",
                "install",
                "claude-code",
                *options,
                "--redact-pattern",
                "A+",
                "--db",
                "x.db",
            ),
            "--json",
        )
        assert outcome.code == 0, outcome
        target = locate("claude-code", project)
        assert outcome.json["settings_file"] == str(project / ".claude" / "settings.local.json")
        assert outcome.json["binding"] == str(target.binding_path)
        assert (outcome.json["changed"], outcome.json["injects"]) == (True, True)
        binding = read(target)
        assert (binding.user, binding.workspace) == ("ann", str(project))
        assert (binding.deadline, binding.capture, binding.redact_patterns) == (1.5, False, ("A+",))
        assert binding.db == str(Path("x.db").absolute())
        assert stat.S_IMODE(target.binding_path.stat().st_mode) == 0o600
        text = target.settings_path.read_text("utf-8")
        command = installed_commands("claude-code", text)["Stop"]
        assert command[-1] == str(target.binding_path)
        assert not locate("claude-code", None).describe()["installed"]

    def test_client_waits_longer_than_deadline(self, shell: Shell) -> None:  # noqa: F811
        units = {"claude-code": 1, "codex": 1, "gemini": 1_000}

        def check(name: str) -> None:
            path = locate(name, None).settings_path
            for deadline, seconds in ((2, 10), (30.5, 36), (60, 65), (2, 65)):
                command = ("hooks", "install", name, "--user", "ann", "--deadline", deadline)
                assert shell(*command).code == 0
                hooks = json.loads(path.read_text("utf-8"))["hooks"]
                timeouts = {
                    hook["timeout"] for (group,) in hooks.values() for hook in group["hooks"]
                }
                assert timeouts == {seconds * units[name]}, deadline  # a longer one may stay

        check_each(units, check)

    def test_uninstall_says_if_nothing_is_installed(self, shell: Shell) -> None:  # noqa: F811
        for name in ("gemini", "codex-notify"):
            outcome = shell("hooks", "uninstall", name)
            assert (outcome.code, "removed from" in outcome.out) == (0, False)
            assert outcome.out.startswith("nothing to remove: ")
            assert not shell("hooks", "uninstall", name, "--json").json["changed"]

    def test_dry_run_shows_diff_and_writes_nothing(self, shell: Shell) -> None:  # noqa: F811
        target = locate("cursor", None)
        outcome = shell("hooks", "install", "cursor", "--user", "ann", "--dry-run", "--create-key")
        assert outcome.code == 0, outcome
        assert outcome.out.startswith("--- /dev/null\n+++ ")
        assert "+{" in outcome.out
        assert "afterAgentResponse" in outcome.out
        assert not target.settings_path.exists()
        assert not target.binding_path.exists()
        assert shell("hooks", "install", "cursor", "--user", "ann").code == 0
        outcome = shell("hooks", "uninstall", "cursor", "--dry-run", "--json")
        assert outcome.json["changed"]
        assert "+++ /dev/null" in outcome.json["diff"]
        assert target.settings_path.exists()
        again = shell("hooks", "install", "cursor", "--user", "ann", "--dry-run")
        assert "stays as it is" in again.out

    def test_status_shows_every_client(self, shell: Shell) -> None:  # noqa: F811
        for name in ("codex-notify", "gemini"):
            assert shell("hooks", "install", name, "--user", "ann").code == 0
        rows = {row["client"]: row for row in shell("hooks", "status", "--json").json["items"]}
        assert rows.keys() == CLIENTS.keys()
        assert [name for name, row in rows.items() if row["installed"]] == [
            "codex-notify",
            "gemini",
        ]
        assert rows["gemini"]["user"] == "ann"
        assert rows["gemini"]["pending"] == 0
        assert "key" in rows["gemini"]
        text = shell("hooks", "status").out
        assert "gemini        user: capture and recall for ann" in text
        assert "codex-notify  user: capture for ann" in text
        assert "cursor        user: not installed" in text
        assert shell("hooks", "uninstall", "gemini").code == 0
        assert "gemini        user: not installed" in shell("hooks", "status").out

    def test_created_key_opens_one_user_and_survives_reinstallation(
        self,
        shell: Shell,  # noqa: F811
        tmp_path: Path,
    ) -> None:
        db = tmp_path / "chat.db"
        install = ("hooks", "install", "codex", "--user", "ann", "--agent", "work", "--db", db)
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
        status = shell("hooks", "status")
        assert key not in status.out + shell("hooks", "status", "--json").out

    def test_wrong_values_are_refused(self, shell: Shell, tmp_path: Path) -> None:  # noqa: F811
        cases: dict[str, tuple[object, ...]] = {
            "unknown client": ("emacs", "--user", "ann"),
            "empty user": ("codex", "--user", ""),
            "another machine": ("codex", "--user", "ann", "--url", "http://192.0.2.7:80"),
            "no address": ("codex", "--user", "ann", "--url", "localhost"),
            "broken pattern": ("codex", "--user", "ann", "--redact-pattern", "("),
            "no key": ("codex", "--user", "ann", "--key-file", tmp_path / "none"),
            "no project": ("codex", "--user", "ann", "--project", tmp_path / "none"),
            "no project file": ("codex-notify", "--user", "ann", "--project", tmp_path),
            "long deadline": ("codex", "--user", "ann", "--deadline", 61),
        }

        def check(name: str) -> None:
            outcome = shell("hooks", "install", *cases[name])
            assert outcome.code == 2, outcome
            assert outcome.err.startswith("error: ")
            assert not list(tmp_path.glob("xdg_config_home/**/*.json"))

        check_each(cases, check)
