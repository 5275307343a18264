"""Import of messages: valid ones in batches, invalid ones reported by line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memrecall.errors import CallerError
from memrecall.importers import jsonl
from memrecall.importers.jsonl import SCOPE_FIELDS, file_size
from memrecall.library.library import Library
from memrecall.progress import Advance, Progress, progress_bar
from memrecall.scope import DEFAULT_NAME
from memrecall.store import ScopedMessage

BATCH = 1_000

# Takes a file, the user of messages that name none, and a function that counts the bytes read.
# Yields line numbers, each with a message or with the reason why there is none.
Reader = Callable[[Path, str | None, Advance], Iterator[tuple[int, ScopedMessage | CallerError]]]


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of message files: how to recognise one and how to read it."""

    matches: Callable[[Path], bool]
    read: Reader


# The first format that matches a file reads it; JSON lines are read from any other file.
FORMATS: tuple[FileFormat, ...] = (FileFormat(lambda _: True, jsonl.read_messages),)


def find_format(path: Path) -> FileFormat:
    """Return the format of a file."""
    return next(candidate for candidate in FORMATS if candidate.matches(path))


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

    @property
    def usable(self) -> int:
        """The number of lines that are stored now, by this import or an earlier one."""
        return self.stored + self.repeated


@dataclass(frozen=True, slots=True)
class _NumberedEntry:
    line: int
    entry: ScopedMessage


class Importer:
    """An importer of message files into a library."""

    def __init__(self, library: Library, *, default_user: str | None = None) -> None:
        self._library = library
        self._default_user = default_user
        self.report = ImportReport()  # of the last run, also if it stopped half way

    async def run(
        self, path: Path, *, strict: bool = False, progress: Progress = None
    ) -> ImportReport:
        """Import a file; with `strict` all lines or none, in a distributed database of each user.

        `progress` is called with the bytes read; without it, a notebook shows a progress bar.
        """
        with progress_bar(progress, "importing", file_size(path), unit="bytes") as advance:
            return await self._run(path, strict, advance)

    async def _run(self, path: Path, strict: bool, advance: Advance) -> ImportReport:
        self.report = report = ImportReport()
        batch: list[_NumberedEntry] = []
        for number, entry in find_format(path).read(path, self._default_user, advance):
            report.lines += 1
            if isinstance(entry, CallerError):
                report.bad.append(BadLine(number, str(entry)))
            else:
                batch.append(_NumberedEntry(number, entry))
            if len(batch) == BATCH and not strict:
                await self._store_each(batch, report)
                batch = []
        await self._store_each(batch, report, strict=strict)
        if report.repeated:
            # An earlier import may have been interrupted before the vectors were stored.
            await self._library.vectors.embed_pending(report.users)
        return report

    async def _store_each(
        self, batch: list[_NumberedEntry], report: ImportReport, *, strict: bool = False
    ) -> None:
        """Store a batch at once; in a distributed database user by user.

        With `strict`, all lines of a transaction are stored or none.
        """
        if strict and report.bad:
            report.refused = True
            return
        users = {item.entry.scope.user_id for item in batch}
        for user in sorted(users) if self._library.store.is_distributed else [None]:
            part = [item for item in batch if user in (None, item.entry.scope.user_id)]
            await (self._store_all if strict else self._store)(part, report)
        report.refused = strict and bool(report.bad) and not report.usable

    async def _store(self, batch: list[_NumberedEntry], report: ImportReport) -> None:
        """Store a batch; if lines of it conflict, store the others without them."""
        while batch:
            try:
                result = await self._library.add_entries([item.entry for item in batch])
            except CallerError as error:
                bad_lines = _bad_lines(batch, error)
                report.bad.extend(bad_lines)
                numbers = {bad_line.line for bad_line in bad_lines}
                batch = [item for item in batch if item.line not in numbers]
                continue
            self._count(batch, result.stored, report)
            return

    async def _store_all(self, entries: list[_NumberedEntry], report: ImportReport) -> None:
        try:
            result = await self._library.add_entries([item.entry for item in entries])
        except CallerError as error:
            report.bad.extend(_bad_lines(entries, error))
            return
        self._count(entries, result.stored, report)

    def _count(self, batch: list[_NumberedEntry], stored: int, report: ImportReport) -> None:
        report.stored += stored
        report.repeated += len(batch) - stored
        report.users.update(item.entry.scope.user_id for item in batch)


def check_file(path: Path, default_user: str | None = None) -> ImportReport:
    """Return the report of a refused import: read a file and store nothing."""
    report = ImportReport(refused=True)
    for number, entry in find_format(path).read(path, default_user, lambda _: None):
        report.lines += 1
        if isinstance(entry, CallerError):
            report.bad.append(BadLine(number, str(entry)))
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
        and all(details.get(name) in (None, _scope_field(item, name)) for name in SCOPE_FIELDS)
    ]
    return [BadLine(item.line, str(error)) for item in matches or batch]


def _scope_field(item: _NumberedEntry, name: str) -> str:
    return getattr(item.entry.scope, name) or DEFAULT_NAME
