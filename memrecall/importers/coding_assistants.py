"""Transcripts of Claude Code, Codex and Gemini CLI, as these clients keep them.

Claude Code's entries form a tree (`uuid`, `parentUuid`; `logicalParentUuid` across a compaction):
a prompt that was taken back begins a branch that the last entry does not belong to. `isSidechain`
marks the work of subagents, `isMeta` and `isCompactSummary` what the client itself wrote. A prompt
that was typed while it worked is an attachment.

Codex's lines have `timestamp`, `type` and `payload`; those of 2025 are the payload alone. Messages
are `response_item`s, among them the context that Codex adds. A fork begins with a copy of the
session that it comes from.

Gemini CLI's sessions are a JSON object with `messages`, or, since 2026, lines: the session, then
messages, changes (`$set`) and what was taken back (`$rewindTo`). `logs.json` has the prompts of all
sessions, also of versions that kept nothing else.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import MAXYEAR, datetime, timedelta
from typing import Any, NamedTuple

from memrecall.errors import InvalidArgument
from memrecall.importers.projects import find_project, is_ignored, normalise_remote
from memrecall.importers.records import (
    FileFormat,
    ReadItem,
    ReadOptions,
    Skipped,
    current_branch,
    digest,
    from_iso,
    message_record,
)
from memrecall.importers.source import SourceFile, has_members, read_values
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


_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "gemini": Role.ASSISTANT}

_CLAUDE_MARKS = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage")
_CLAUDE_TAGS = ("system-reminder", "ide_opened_file", "ide_selection", "ide_diagnostics")
_CLAUDE_ADDED = re.compile(
    r"<(?:command-|local-command-|bash-|task-notification|user-memory-input|teammate-message)"
    r"|\[Request interrupted by user|Caveat: The messages below were generated by the user"
    r"|This session is being continued from a previous conversation"
)


def _read_claude_code(file: SourceFile) -> Transcript:
    transcript = Transcript("claude-code", file)
    parents: dict[str, str | None] = {}
    entries: list[SessionTurn | None] = []  # None: calls and results of tools
    for number, data in transcript.objects():
        role = _ROLES.get(text_of(data.get("type")))
        (attachment,) = _members(data, "attachment")
        if attachment.get("type") == "queued_command":
            role, data["message"] = Role.USER, {"content": attachment.get("prompt")}
            data["origin"] = attachment.get("origin")
        if data.get("isSidechain"):
            transcript.skipped[SUBAGENTS] += role is not None
            continue
        if uuid := text_of(data.get("uuid")):
            parent = data.get("logicalParentUuid") or data.get("parentUuid")
            parents[uuid] = text_of(parent) or None
        if role is not None:
            entries += _read_entry(transcript, number, role, data)
    others = _find_other_branches(parents, [entry for entry in entries if entry])
    for entry in entries:
        if entry is None:
            transcript.call_tool()
        elif entry.origin in others:
            transcript.skipped[BRANCHES] += 1
        else:
            transcript.add(entry)
    return transcript


def _read_entry(
    transcript: Transcript, number: int, role: Role, data: dict[str, Any]
) -> list[SessionTurn | None]:
    message, origin, fork = _members(data, "message", "origin", "forkedFrom")
    blocks = dicts_in(message.get("content"))
    is_call = any("tool" in str(block.get("type")) for block in blocks)
    calls: list[SessionTurn | None] = [None] if is_call else []
    texts = [text_of(block.get("text")) for block in blocks if block.get("type") == "text"]
    text = cut_blocks(text_of(message.get("content")) or "\n".join(texts), *_CLAUDE_TAGS).strip()
    if not text or (calls and role is Role.USER):
        return calls
    is_added = any(map(data.get, _CLAUDE_MARKS)) or message.get("model") == "<synthetic>"
    is_typed = data.get("promptSource") != "system" and origin.get("kind", "human") == "human"
    if is_added or (role is Role.USER and (not is_typed or _CLAUDE_ADDED.match(text))):
        transcript.skipped[ADDED] += 1
        return calls
    # What a fork has copied keeps the session in which it was said.
    ts, name = from_iso(data.get("timestamp")), text_of((fork or data).get("sessionId"))
    folder, branch = text_of(data.get("cwd")), text_of(data.get("gitBranch"))
    place = (ts, name or transcript.file.stem, folder, "", text_of(data.get("uuid")), branch)
    return [SessionTurn(number, role, text, *place), *calls]


def _members(data: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    """Return members that are objects; an empty one for any other."""
    values = map(data.get, names)
    return [value if isinstance(value, dict) else {} for value in values]


def _find_other_branches(parents: dict[str, str | None], turns: list[SessionTurn]) -> set[str]:
    """Return the messages that lead from the last one's branch over a prompt that is not on it.

    An entry whose parent is missing begins a part of its own, which is kept: some versions write
    parents that do not exist. Calls of tools at the same time make branches without a prompt.
    """
    last = current_branch(parents, turns[-1].origin if turns else None)
    prompts = {turn.origin for turn in turns if turn.role is Role.USER}
    is_other: dict[str | None, bool | None] = dict.fromkeys(last, False)  # None: not connected
    for turn in turns:
        path: dict[str, None] = {}
        node: str | None = turn.origin
        while node in parents and node not in is_other and node not in path:
            path[node] = None
            node = parents[node]
        state = is_other.get(node)
        for step in reversed(path):
            state = is_other[step] = None if state is None else state or step in prompts
    return {name for name, state in is_other.items() if name and state}


CLAUDE_CODE = FileFormat(
    "claude-code",
    lambda file: has_members(file.sample, "parentUuid", "sessionId"),
    lambda file, options: _read_claude_code(file).records(options),
)

_CODEX_REQUEST = "## My request for Codex:"  # in an editor, what stands before it is context
_CODEX_ADDED = re.compile(
    r"<(?:[a-z]+_[a-z_]+|skill|/?image)[ >](?:.*>)?|# AGENTS\.md instructions.*"
    r"|Warning: (?:apply_patch was|The maximum number of unified exec|Your account was flagged).*",
    re.DOTALL,
)
_CODEX_FOLDER = re.compile(r"<cwd>([^<]+)</cwd>")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_MADE = slice(13)  # of an id, which begins with the time at which it was made


class _Rollout:
    """A file of Codex, and the session and turn that its lines belong to."""

    def __init__(self, file: SourceFile) -> None:
        name = _UUID.search(file.stem)
        self.transcript = Transcript("codex", file)
        self.session = name[0] if name else file.stem
        self.meta: dict[str, Any] = {}
        self.folder = self.turn = self.branch = self.thread = ""

    def read(self) -> Transcript:
        """Return the transcript."""
        for number, data in self.transcript.objects():
            payload, ts = data.get("payload"), from_iso(data.get("timestamp"))
            kind = text_of(data.get("type"))
            if not self.meta and (kind == "session_meta" or (not kind and "id" in data)):
                self._begin(payload if isinstance(payload, dict) else data)
            elif not isinstance(payload, dict):
                self._read_item(number, data, ts or from_iso(self.meta.get("timestamp")))
            elif kind == "response_item":
                self._read_item(number, payload, ts)
            elif kind in ("turn_context", "event_msg"):
                self.folder = text_of(payload.get("cwd")) or self.folder
                self.turn = text_of(payload.get("turn_id")) or self.turn
                if isinstance(count := payload.get("num_turns"), int):  # thread_rolled_back
                    self.transcript.roll_back(count)
        return self.transcript

    def _begin(self, meta: dict[str, Any]) -> None:
        (git,) = _members(meta, "git")
        self.meta = meta
        self.thread = text_of(meta.get("id"))
        self.session = text_of(meta.get("session_id")) or self.thread or self.session
        self.folder = text_of(meta.get("cwd"))
        self.transcript.remote = normalise_remote(text_of(git.get("repository_url")))
        self.branch = text_of(git.get("branch"))

    def _read_item(self, number: int, item: dict[str, Any], ts: datetime | None) -> None:
        kind, role = text_of(item.get("type")), _ROLES.get(text_of(item.get("role")))
        if "call" in kind:
            self.transcript.call_tool()
        if kind not in ("message", "") or role is None or item.get("phase") == "commentary":
            return
        parts = [text_of(part.get("text")).strip() for part in dicts_in(item.get("content"))]
        if role is Role.USER:
            added = [part for part in parts if _CODEX_ADDED.fullmatch(part)]
            folder = _CODEX_FOLDER.search("".join(added))
            self.folder = self.folder or (folder[1].strip() if folder else "")
            self.transcript.skipped[ADDED] += len(added)
            parts = [part.rpartition(_CODEX_REQUEST)[2] for part in parts if part not in added]
        text = "\n".join(parts).strip()
        source = self.meta.get("source")
        if text and isinstance(source, dict) and "custom" not in source:
            self.transcript.skipped[SUBAGENTS] += 1
        elif text and self.meta.get("forked_from_id") and self.turn[_MADE] < self.thread[_MADE]:
            self.transcript.skipped[COPIES] += 1
        elif text:
            place = (self.session, self.folder, self.turn, "", self.branch)
            self.transcript.add(SessionTurn(number, role, text, ts, *place))


def _is_rollout(file: SourceFile) -> bool:
    is_named = file.stem.startswith("rollout-") and file.suffix == ".jsonl"
    return is_named or '"type":"session_meta"' in file.sample


CODEX = FileFormat(
    "codex", _is_rollout, lambda file, options: _Rollout(file).read().records(options)
)

_GEMINI_ADDED = ("/", "?", "<session_context>")
_GEMINI_FILES = "--- Content from referenced files ---"


def _read_gemini_cli(file: SourceFile) -> Transcript:
    transcript = Transcript("gemini", file)
    session: dict[str, Any] = {}
    messages: dict[object, dict[str, Any]] = {}
    for number, data in _gemini_values(transcript):
        change = data.get("$set")
        change = change if isinstance(change, dict) else data if "projectHash" in data else {}
        if "$rewindTo" in data:
            names = [*messages]
            start = names.index(data["$rewindTo"]) if data["$rewindTo"] in names else 0
            taken_back = [messages.pop(name) for name in names[start:]]
            transcript.skipped[BRANCHES] += sum(bool(_gemini_text(one)) for one in taken_back)
        elif change:
            if "$set" in data and "messages" in change:  # all of them anew
                messages.clear()
            session |= change
        for message in dicts_in(change.get("messages")) or ([] if change else [data]):
            # The log of prompts has a number instead of an id, in each session.
            key = message.get("id") or (message.get("sessionId"), message.get("messageId"))
            messages[str(key)] = {**message, "line": number}
    for message in messages.values():
        _add_gemini_message(transcript, session, message)
    return transcript


def _gemini_values(transcript: Transcript) -> Iterator[tuple[int, dict[str, Any]]]:
    if transcript.file.suffix == ".jsonl":
        yield from transcript.objects()
        return
    try:
        for number, value in read_values(transcript.file):
            if isinstance(value, dict):
                yield number, value
    except (InvalidArgument, OSError):  # the client is writing or deleting it
        transcript.skipped[UNREADABLE] += 1


def _add_gemini_message(
    transcript: Transcript, session: dict[str, Any], message: dict[str, Any]
) -> None:
    role, text = _ROLES.get(text_of(message.get("type"))), _gemini_text(message)
    if role is not None and text and session.get("kind") == "subagent":
        transcript.skipped[SUBAGENTS] += 1
    elif role is Role.USER and text.startswith(_GEMINI_ADDED):
        transcript.skipped[ADDED] += 1
    elif role is not None and text:
        ts, file = from_iso(message.get("timestamp")), transcript.file
        name = text_of(message.get("sessionId")) or text_of(session.get("sessionId")) or file.stem
        folder = _gemini_folder(file, text_of(session.get("projectHash")))
        transcript.add(SessionTurn(message["line"], role, text, ts, name, folder))
    if message.get("toolCalls"):
        transcript.call_tool()


def _gemini_text(message: dict[str, Any]) -> str:
    """Return the text of a message, without thoughts, calls, results and files."""
    content = message.get("displayContent") or message.get("content") or message.get("message")
    texts = (
        text_of(part.get("text")) if isinstance(part, dict) and not part.get("thought") else part
        for part in (content if isinstance(content, list) else [content])
    )
    text = "".join(map(text_of, texts))
    return cut_blocks(text, "hook_context").partition(_GEMINI_FILES)[0].strip()


def _gemini_folder(file: SourceFile, name: str) -> str:
    """Return the folder of a project, which the client names by a hash or a short name."""
    folders: dict[str, str] = file.source.shared.get("gemini", {})
    place = file.folder.parent.name if file.folder.name == "chats" else file.folder.name
    return folders.get(name) or folders.get(place) or f"gemini:{name or place}"


def _is_gemini_session(file: SourceFile) -> bool:
    is_log = file.stem == "logs" and has_members(file.sample, "sessionId", "messageId", "message")
    return is_log or has_members(file.sample, "sessionId", "projectHash")


GEMINI_CLI = FileFormat(
    "gemini-cli",
    _is_gemini_session,
    lambda file, options: _read_gemini_cli(file).records(options),
)
