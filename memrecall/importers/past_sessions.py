"""Past sessions of the coding assistants on this machine, for an import."""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from memrecall.errors import InvalidArgument
from memrecall.importers import coding_assistants
from memrecall.importers.coding_assistants import SUBAGENTS
from memrecall.importers.plan import ImportPlan, make_plan
from memrecall.importers.projects import find_project
from memrecall.importers.records import FileFormat, ReadOptions, Record
from memrecall.importers.source import Source, SourceFile, file_opener
from memrecall.types import NewMessage


class _Folder(NamedTuple):
    """Where a client keeps its transcripts."""

    file_format: FileFormat
    variable: str  # the environment variable that names another folder
    default: str  # in the home folder
    patterns: tuple[str, ...]


_FOLDERS = {
    "claude-code": _Folder(
        coding_assistants.CLAUDE_CODE, "CLAUDE_CONFIG_DIR", ".claude", ("projects/*/*.jsonl",)
    ),
    "codex": _Folder(
        coding_assistants.CODEX,
        "CODEX_HOME",
        ".codex",
        ("sessions/**/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl"),
    ),
    "gemini": _Folder(
        coding_assistants.GEMINI_CLI,
        "GEMINI_CLI_HOME",  # the home folder to it, in which it has its own
        ".gemini",
        ("tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl", "tmp/*/logs.json"),
    ),
}
_NAMED = 8  # characters of a session's id in the names of all clients
CLIENTS_WITH_SESSIONS = tuple(_FOLDERS)  # Cursor and OpenCode keep theirs in databases


def plan_past_sessions(
    user: str | None = None,
    clients: Iterable[str] | None = None,
    *,
    since: datetime | None = None,
    project: str | None = None,
    agent: str | None = None,
) -> ImportPlan:
    """Read the transcripts of some or all clients and return what would be imported.

    With `project`, a folder or the name of a project, only the sessions of that one.
    """
    source = Source("the transcript folder")
    names = _FOLDERS if clients is None else clients
    files = [pair for client in names for pair in _find_files(client, source, since)]
    only = find_project(project) if project and os.path.isdir(project) else project
    options = ReadOptions(user, agent=agent, since=since, project=only)
    return make_plan(source, options, files=files)


def read_session(client: str, session_id: str) -> list[NewMessage]:
    """Return the messages of one session, whose file a client names after its id."""
    if client not in _FOLDERS:
        return []
    source = Source("the transcript folder")
    return [
        item.item
        for file, file_format in _find_files(client, source, None)
        if session_id[:_NAMED] in file.name
        for item in file_format.read(file, ReadOptions())
        if isinstance(item, Record)
        and isinstance(item.item, NewMessage)
        and item.session_id == session_id
    ]


def _find_files(
    client: str, source: Source, since: datetime | None
) -> Iterator[tuple[SourceFile, FileFormat]]:
    if client not in _FOLDERS:
        raise InvalidArgument(
            f"past sessions of {client!r} cannot be read",
            hint=f"Use {', '.join(_FOLDERS)} or all",
        )
    folder = _FOLDERS[client]
    home = _find_home(folder)
    if client == "gemini":
        source.shared["gemini"] = _read_gemini_projects(home)
    found = [entry for pattern in folder.patterns for entry in _list_files(home, pattern)]
    # In the order of their last change: of two files with the same messages, the first has them.
    for changed, path, size in sorted(found):
        if path.name.startswith("agent-"):
            source.left_out[SUBAGENTS] += 1
        elif since is None or changed >= since.timestamp():
            name = f"{client}/{path.relative_to(home).as_posix()}"
            source.add(name, size, file_opener(path))
            yield source.files[-1], folder.file_format


def _find_home(folder: _Folder) -> Path:
    named = os.environ.get(folder.variable)
    if named and folder.variable != "GEMINI_CLI_HOME":
        return Path(named)
    return Path(named or Path.home()) / folder.default


def _list_files(home: Path, pattern: str) -> Iterator[tuple[float, Path, int]]:
    for path in home.glob(pattern):
        with suppress(OSError):  # the client has just deleted it
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield status.st_mtime, path, status.st_size


def _read_gemini_projects(home: Path) -> dict[str, str]:
    """Return the folders of projects by the names that they have in Gemini CLI."""
    try:
        projects = json.loads((home / "projects.json").read_bytes())["projects"]
        names = {str(name): str(folder) for folder, name in projects.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        names = {}
    for path in home.glob("tmp/*/.project_root"):
        with suppress(OSError):
            names[path.parent.name] = path.read_text("utf-8", "replace").strip()
    hashes = {hashlib.sha256(folder.encode()).hexdigest(): folder for folder in names.values()}
    return hashes | names
