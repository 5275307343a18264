"""The brief at the start of a session: where the project stands, told without a model.

It names the last requests and answers of the project's sessions, what the user prefers everywhere,
and what was committed since.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from memrecall.agent.blocks import json_line, wrap_block
from memrecall.agent.phrases import say
from memrecall.importers.projects import find_git_folder
from memrecall.integrations.hooks.events import CapturedEvent
from memrecall.library.library import Library
from memrecall.scope import Scope
from memrecall.store import MessageFilter
from memrecall.text.language import language_of_most
from memrecall.text.privacy import SECRETS_ONLY
from memrecall.types import Language, Message, Role, format_time

BRIEF_CHARACTERS = 1_500
_MESSAGES = 100  # of the project and of the user, the latest ones
_THREADS, _PREFERENCES, _COMMITS = 3, 5, 5
_LINE = 320  # characters
_PREFERRED = ("user_preference", "instruction")
_TAIL = 20_000  # bytes of git's log of HEAD
_COMMIT = re.compile(r"> (?P<time>\d+) [+-]\d{4}\t(?:commit|merge|pull)\b[^:]*: (?P<subject>.+)")


async def write_brief(library: Library, scope: Scope, event: CapturedEvent) -> tuple[str, int]:
    """Return the brief of a session's project and how many lines it has; "" if there is nothing.

    The session itself is a part of it only after a compaction: then its model has forgotten it.
    """
    page = await library.store.timeline(scope).page(MessageFilter(), page_size=_MESSAGES)
    is_known = event.session_id if not event.is_compacted else None
    messages = [
        message
        for message in page.items
        if message.project == event.project and message.session_id != is_known
    ]
    language = language_of_most(message.content for message in messages[:10])
    preferences = await _read_preferences(library, scope)
    since = messages[0].ts if messages else None
    commits = list(_read_commits(event.folder, since)) if since and event.folder else []
    changes = [{"committed": subject} for subject in commits[-_COMMITS:]]
    described = [_describe_thread(thread) for thread in _split_sessions(messages)]
    threads = list({each.get("asked"): each for each in reversed(described)}.values())[::-1]
    fields = [*threads[:_THREADS], *({"prefers": text} for text in preferences), *changes]
    return _write_lines(fields, language) if fields else ("", 0)


def _write_lines(fields: Sequence[Mapping[str, str]], language: Language) -> tuple[str, int]:
    lines = [say(language, "brief_open")]
    for each in fields:
        longest = max(each, key=lambda name: len(each[name]))
        line = json_line(dict(each), longest, _LINE)
        if len(wrap_block([*lines, line])) <= BRIEF_CHARACTERS:
            lines.append(line)
    return wrap_block(lines), len(lines) - 1


def _split_sessions(messages: list[Message]) -> list[list[Message]]:
    """Return the messages by session, the latest session first, each from its end."""
    sessions: dict[str | None, list[Message]] = {}
    for message in messages:
        sessions.setdefault(message.session_id, []).append(message)
    return list(sessions.values())


def _describe_thread(messages: list[Message]) -> dict[str, str]:
    """Return the last request of a session and the answer to it, which says what was decided."""
    fields = {"at": format_time(messages[0].ts)}
    for name, role in (("asked", Role.USER), ("answered", Role.ASSISTANT)):
        text = next((message.content for message in messages if message.role is role), "")
        if text:
            fields[name] = " ".join(text.split())[: _LINE // 2]
    return fields


async def _read_preferences(library: Library, scope: Scope) -> list[str]:
    """Return the memories of what the user prefers in all projects."""
    everywhere = replace(scope, session_id=None, all_projects=True)
    records = (await library.store.memories(everywhere).page(limit=_MESSAGES)).items
    texts = [
        record.content
        for record in records
        if record.memory_type in _PREFERRED and record.project is None
    ]
    return list(dict.fromkeys(texts))[:_PREFERENCES]


def _read_commits(folder: str, since: datetime) -> Iterator[str]:
    """Yield the subjects of commits that git's own log of this clone has after a time."""
    try:
        with open(os.path.join(find_git_folder(folder), "logs", "HEAD"), "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        match = _COMMIT.search(line)
        if match and int(match["time"]) > since.timestamp():
            yield SECRETS_ONLY.redact(match["subject"])
