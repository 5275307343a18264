"""What the settings of a client run: whatever is gone, it succeeds and prints nothing."""

import asyncio
import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from memrecall.integrations.hooks import client
from memrecall.integrations.hooks.clients import CLIENTS
from memrecall.integrations.hooks.installation import locate
from tests.cases import check_each_async
from tests.hooks.hook_process import NO_DEADLINE, bind
from tests.hooks.payloads import Sample, samples
from tests.server.server_process import make_environment

SAMPLES = {(each.client, each.event): each for each in samples("Which port?", "5544.")}
GONE = ("program", "interpreter", "installation", "modules", "database")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without settings."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "home"


def commands_of(name: str) -> dict[str, str]:
    """Return the command of each event, as the client's settings have it."""
    hooks = json.loads(locate(name, None).settings_path.read_text("utf-8"))["hooks"]
    return {event: entry.get("hooks", [entry])[0]["command"] for event, (entry,) in hooks.items()}


async def run(program: list[str], folder: Path, sample: Sample) -> tuple[int | None, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *program,
        env=make_environment(folder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate(json.dumps(sample.payload).encode())
    return process.returncode, output, errors


def take_away(what: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make one thing missing that hooks need; return the database of the installation."""
    if what == "program":
        monkeypatch.setattr(client, "__file__", str(folder / "moved" / "client.py"))
    if what == "interpreter":
        monkeypatch.setattr(sys, "executable", str(folder / "old venv" / "bin" / "python"))
    if what == "modules":  # one file was left behind
        file = folder / "left" / "integrations" / "hooks" / "client.py"
        file.parent.mkdir(parents=True)
        shutil.copy(client.__file__, file)
        monkeypatch.setattr(client, "__file__", str(file))
    return str(folder / "no" / "folder" / "chat.db") if what == "database" else ""


@pytest.mark.concurrent
@pytest.mark.parametrize("what", GONE)
async def test_hook_without_what_it_needs_succeeds_in_silence(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = take_away(what, tmp_path, monkeypatch)
    names = [name for name, each in CLIENTS.items() if each.events]
    programs: dict[tuple[str, str], str] = {}
    for name in names if what != "database" else names[:1]:
        binding = bind(tmp_path, name, db=db).read()
        target = locate(name, None)
        target.install(binding._replace(url="", deadline=NO_DEADLINE))
        programs |= {(name, event): command for event, command in commands_of(name).items()}
        if what == "installation":
            target.binding_path.unlink()

    async def check(key: tuple[str, str]) -> None:
        # A client gives the line to a shell, or its words to the system.
        for program in (["/bin/sh", "-c", programs[key]], shlex.split(programs[key])):
            assert await run(program, tmp_path, SAMPLES[key]) == (0, b"", b"")

    await check_each_async(programs, check)


@pytest.mark.concurrent
async def test_launcher_hands_the_event_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "it's here" / "client.py"
    program.parent.mkdir()
    program.write_text("import sys; print(sys.argv[1:], sys.stdin.read())", "utf-8")
    monkeypatch.setattr(client, "__file__", str(program))
    target = locate("codex", None)
    target.install(bind(tmp_path, "codex").read())
    sample = SAMPLES["codex", "Stop"]
    command = commands_of("codex")["Stop"]
    code, output, errors = await run(["/bin/sh", "-c", command], tmp_path, sample)
    arguments = ["Stop", "--config", str(target.binding_path)]
    assert (code, errors) == (0, b"")
    assert output.decode() == f"{arguments} {json.dumps(sample.payload)}\n"
