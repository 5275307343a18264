"""Import of messages from JSON lines: valid lines in batches, invalid ones reported."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memrecall.errors import CallerError, InvalidArgument
from memrecall.library.library import Library
from memrecall.progress import Advance, Progress, progress_bar
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import ScopedMessage
from memrecall.types import NewMessage, describe_validation_error

BATCH = 1_000
_SCOPE_FIELDS = ("user_id", "agent_id", "session_id")
_MESSAGE_FIELDS = frozenset(NewMessage.model_fields)
_REQUIRED = ("message_id", "ts", "role", "content")


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was not imported, and the reason."""

    line: int
    reason: str


@dataclass(slots=True)
class ImportReport:
    """The counts and invalid lines of one import."""

    lines: int = 0
    stored: int = 0
    repeated: int = 0
    users: set[str] = field(default_factory=set)
    bad: list[BadLine] = field(default_factory=list)
    refused: bool = False  # in strict mode, a line was invalid and nothing was imported


@dataclass(frozen=True, slots=True)
class _NumberedEntry:
    line: int
    entry: ScopedMessage


class Importer:
    """An importer of message files into a library."""

    def __init__(self, library: Library, *, default_user: str | None = None) -> None:
        self._library = library
        self._default_user = default_user

    async def run(
        self, path: Path, *, strict: bool = False, progress: Progress = None
    ) -> ImportReport:
        """Import a file; with `strict` all lines or none.

        `progress` is called with the bytes read; without it, a notebook shows a progress bar.
        """
        with progress_bar(progress, "importing", file_size(path), unit="bytes") as advance:
            return await self._run(path, strict, advance)

    async def _run(self, path: Path, strict: bool, advance: Advance) -> ImportReport:
        report = ImportReport()
        batch: list[_NumberedEntry] = []
        for number, line in read_lines(path, advance):
            report.lines += 1
            try:
                batch.append(_NumberedEntry(number, read_entry(line, self._default_user)))
            except CallerError as error:
                report.bad.append(BadLine(number, str(error)))
            if len(batch) == BATCH and not strict:
                await self._store(batch, report)
                batch = []
        await (self._store_all if strict else self._store)(batch, report)
        if report.repeated:
            # An earlier import may have been interrupted before the vectors were stored.
            await self._library.vectors.embed_pending(report.users)
        return report

    async def _store(self, batch: list[_NumberedEntry], report: ImportReport) -> None:
        """Store a batch; if lines of it conflict, store the others without them."""
        while batch:
            try:
                written = await self._library.add_entries([item.entry for item in batch])
            except CallerError as error:
                bad_lines = _bad_lines(batch, error)
                report.bad.extend(bad_lines)
                numbers = {bad_line.line for bad_line in bad_lines}
                batch = [item for item in batch if item.line not in numbers]
                continue
            self._count(batch, written.stored, report)
            return

    async def _store_all(self, entries: list[_NumberedEntry], report: ImportReport) -> None:
        if report.bad:
            report.refused = True
            return
        try:
            written = await self._library.add_entries([item.entry for item in entries])
        except CallerError as error:
            report.bad.extend(_bad_lines(entries, error))
            report.refused = True
            return
        self._count(entries, written.stored, report)

    def _count(self, batch: list[_NumberedEntry], stored: int, report: ImportReport) -> None:
        report.stored += stored
        report.repeated += len(batch) - stored
        report.users.update(item.entry.scope.user_id for item in batch)


def check_file(path: Path, default_user: str | None = None) -> ImportReport:
    """Return the report of a refused import: read a file and store nothing."""
    report = ImportReport(refused=True)
    for number, line in read_lines(path):
        report.lines += 1
        try:
            read_entry(line, default_user)
        except CallerError as error:
            report.bad.append(BadLine(number, str(error)))
    return report


def _bad_lines(batch: list[_NumberedEntry], error: CallerError) -> list[BadLine]:
    """Return the lines that an error is about; all of them if it names none."""
    faults: dict[int, str] = error.details.get("faults", {})
    if faults:
        return [BadLine(batch[position].line, reason) for position, reason in faults.items()]
    details = error.details
    matches = [
        item
        for item in batch
        if details.get("message_id") in (None, item.entry.message.message_id)
        and all(details.get(name) in (None, _scope_field(item, name)) for name in _SCOPE_FIELDS)
    ]
    return [BadLine(item.line, str(error)) for item in matches or batch]


def _scope_field(item: _NumberedEntry, name: str) -> str:
    return getattr(item.entry.scope, name) or DEFAULT_NAME


def file_size(path: Path) -> int:
    """Return the size of a file in bytes; raise InvalidArgument if it cannot be read."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> InvalidArgument:
    return InvalidArgument(
        f"cannot read {path}: {error.strerror}", hint="Pass a readable file of JSON lines"
    )


def read_lines(path: Path, advance: Advance = lambda size: None) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of a file with their numbers."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                advance(len(line))
                if line.strip():
                    yield number, line
    except OSError as error:
        raise _unreadable(path, error) from None


def read_entry(line: bytes, default_user: str | None = None) -> ScopedMessage:
    """Return one line as a message with its scope; raise CallerError if it is invalid."""
    data = _parse_object(line)
    scope = {name: data.get(name) or None for name in _SCOPE_FIELDS}
    scope["user_id"] = scope["user_id"] or default_user
    for name, value in scope.items():
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{name} {value!r} is not a string", hint="Write it in quotes")
    missing = [name for name in _REQUIRED if data.get(name) is None]
    if not scope["user_id"]:
        missing.insert(0, "user_id")
    if missing:
        raise InvalidArgument(f"{missing[0]} is missing")
    fields = {name: data[name] for name in _MESSAGE_FIELDS & data.keys()}
    try:
        message = NewMessage.model_validate({k: v for k, v in fields.items() if v is not None})
    except ValidationError as error:
        raise InvalidArgument(describe_validation_error(error)) from None
    return ScopedMessage(
        Scope(str(scope["user_id"]), scope["agent_id"], scope["session_id"]), message
    )


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"{duplicate} is given twice")
    return data


def _parse_object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_reject_duplicates)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidArgument("JSON, but not an object")
    return data
