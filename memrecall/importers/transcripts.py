"""Transcripts of coding assistants: what is stored of a session, and for which project.

As with the hooks, that is each prompt and the last answer to it: no calls of tools, results or
reasoning, no remarks before the last answer, nothing that the client adds to a prompt. The same
words said again in a session are stored once.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import MAXYEAR, datetime, timedelta
from typing import Any, NamedTuple

from memrecall.importers.projects import find_project, is_ignored
from memrecall.importers.records import ReadItem, ReadOptions, Skipped, digest, message_record
from memrecall.importers.source import SourceFile
from memrecall.importers.turns import clean_turn, turn_id
from memrecall.json_objects import make_storable
from memrecall.text.privacy import SECRETS_ONLY
from memrecall.types import NAME_LENGTH, Role

DAMAGED = "lines that cannot be read"
UNREADABLE = "files that cannot be read"
SUBAGENTS = "subagents"
BRANCHES = "other branches"
ADDED = "commands and added context"
COPIES = "copies in other files"
_REMARKS = "remarks before the last answer"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")  # as the hooks take them


class SessionTurn(NamedTuple):
    """A prompt or an answer in a transcript."""

    line: int
    role: Role
    text: str
    ts: datetime | None
    session: str
    folder: str = ""
    turn: str = ""  # the client's id of the turn, if its hooks have it too
    origin: str = ""  # the client's id of the message, which copies in other files keep
    branch: str = ""  # of git


class Transcript:
    """The prompts in a file, each with the last answer to it."""

    def __init__(self, client: str, file: SourceFile) -> None:
        self.client = client  # as the hooks name it
        self.file = file
        self.remote = ""  # of the repository, if the file has it
        self.skipped: Counter[str] = Counter()
        self._turns: list[SessionTurn] = []
        self._answer: SessionTurn | None = None
        self._is_working = False

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the JSON objects of a file of lines; count others, such as a half-written one."""
        try:
            for number, line in self.file.byte_lines():
                if (data := _parse(line)) is not None:
                    yield number, data
                else:
                    self.skipped[DAMAGED] += 1
        except OSError:
            self.skipped[UNREADABLE] += 1

    def add(self, turn: SessionTurn) -> None:
        """Add a prompt, or an answer to the last one."""
        if turn.role is Role.USER:
            self.close()
            self._turns.append(turn)
        else:
            self.skipped[_REMARKS] += self._answer is not None
            self._answer, self._is_working = turn, False

    def call_tool(self) -> None:
        """Note that the answer so far is a remark before a call."""
        self._is_working = True

    def close(self) -> None:
        """End a turn. One that is interrupted or still being written has no last answer."""
        if self._answer is not None and not self._is_working:
            self._turns.append(self._answer)
        self.skipped[_REMARKS] += self._answer is not None and self._is_working
        self._answer, self._is_working = None, False

    def roll_back(self, prompts: int) -> None:
        """Remove the last prompts, which the user took back, and the answers to them."""
        self.close()
        while prompts > 0 and self._turns:
            prompts -= self._turns.pop().role is Role.USER
            self.skipped[BRANCHES] += 1

    def records(self, options: ReadOptions) -> Iterator[ReadItem]:
        """Yield the records of the turns, and what was skipped."""
        self.close()
        ts: datetime | None = None
        said: set[str] = set()
        for turn, before in zip(self._turns, [None, *self._turns], strict=False):
            # A message without a time of its own keeps its place behind the one before it.
            if ts is None or (turn.ts and (before is None or turn.ts != before.ts)):
                ts = turn.ts if turn.ts and turn.ts.year < MAXYEAR else None
            else:
                ts += timedelta(milliseconds=1)
            session = turn.session if _ID.fullmatch(turn.session) else digest(turn.session)
            text = clean_turn(turn.text)
            key = turn_id(self.client, session, "", turn.role, text)
            project, reason = self._find_project(turn.folder)
            if not reason and options.since and ts and ts < options.since:
                reason = "before --since"
            elif not reason and options.project not in (None, project):
                reason = "other projects"
            elif not reason and self._is_copy(turn.origin or key):
                reason = COPIES
            if reason or key in said:
                yield Skipped(turn.line, reason or "said again in the same session")
                continue
            said.add(key)
            yield message_record(
                turn.line,
                message_id=turn_id(self.client, session, turn.turn, turn.role, text),
                session_id=session,
                role=turn.role,
                text=SECRETS_ONLY.redact(text),
                ts=ts,
                is_turn=True,
                client=self.client,
                workspace=turn.folder,
                project=project,
                branch=turn.branch,
            )
        for reason, count in self.skipped.items():
            yield from [Skipped(0, reason)] * count

    def _is_copy(self, key: str) -> bool:
        owners: dict[str, str] = self.file.source.shared.setdefault("turns", {})
        return owners.setdefault(key, self.file.name) != self.file.name

    def _find_project(self, folder: str) -> tuple[str, str]:
        """Return the project of a folder, and why its sessions are left out."""
        known: dict[str, tuple[str, str]] = self.file.source.shared.setdefault("projects", {})
        if folder not in known:
            known[folder] = _find_project(folder)
        project, reason = known[folder]
        project = self.remote or project or f"{self.client}:{self.file.folder.name}"
        return make_storable(project)[:NAME_LENGTH], reason


def _parse(line: bytes | None) -> dict[str, Any] | None:
    try:
        data = {} if line and line.isspace() else json.loads(line or b"null")
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _find_project(folder: str) -> tuple[str, str]:
    if not os.path.isabs(folder) or "\0" in folder:  # of another system
        return folder, ""
    try:
        reason = "ignored folders" if is_ignored(folder) else ""
    except OSError:
        reason = "folders that cannot be read"
    return find_project(folder) if os.path.isdir(folder) else folder, reason


def cut_blocks(text: str, *tags: str) -> str:
    """Return a text without what stands between tags, which the client added."""
    for tag in tags:
        first, *others = text.split(f"<{tag}>")
        ends = (part.partition(f"</{tag}>") for part in others)
        text = first + "".join(rest if end else f"<{tag}>{part}" for part, end, rest in ends)
    return text


def text_of(value: object) -> str:
    """Return a value if it is a text, else nothing."""
    return value if isinstance(value, str) else ""


def dicts_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; none if it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
