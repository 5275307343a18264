"""Import of the files that `export` writes: all data of one or more users."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from memrecall.errors import InvalidArgument, MemrecallError
from memrecall.importers.jsonl import read_lines
from memrecall.importers.records import Fault
from memrecall.importers.source import Source, SourceFile
from memrecall.json_objects import parse_json_line
from memrecall.library.library import Library
from memrecall.store.imports import label_import, new_import_id

_EXPORT_FIELDS = {"format", "table", "row"}


@dataclass(slots=True)
class ExportReport:
    """The counts of one import."""

    lines: int = 0
    users: tuple[str, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)  # of messages and memories
    skipped: dict[str, list[str]] = field(default_factory=dict)  # keys by table, of all users
    joined: list[str] = field(default_factory=list)  # sessions that were there already
    redacted: Counter[str] = field(default_factory=Counter)  # rows by what is not stored of them
    import_id: str = ""  # which `undo_import` takes


def is_export(source: Source) -> bool:
    """Return True if the first line of a single file is a record of an export."""
    if not source.is_single:
        return False
    for _, line in read_lines(source.files[0]):
        try:
            record = None if isinstance(line, Fault) else json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(record, dict) and record.keys() >= _EXPORT_FIELDS
    return False


async def import_export(
    library: Library, file: SourceFile, user_id: str | None = None
) -> ExportReport:
    """Import an export, each user's data completely or not at all, optionally as `user_id`.

    The whole file is read before anything is stored. Existing rows with the same keys are kept.
    """
    report, records = _read_records(file)
    report.import_id = new_import_id()
    label = label_import(report.import_id, file.name)
    if user_id is not None and len(records) > 1:
        raise InvalidArgument(
            f"{file.name} has {len(records)} users, who cannot be imported as one: {user_id!r}",
            hint="Leave out the user",
        )
    for owner, rows in records.items():
        try:
            counts = await library.import_user(user_id or owner, rows, label=label)
        except MemrecallError as error:
            error.details["imported_users"] = len(report.users)
            raise
        report.users += (user_id or owner,)
        report.redacted.update(counts.redacted)
        report.statuses.update(counts.statuses)
        report.joined.extend(counts.joined)
        for table, keys in counts.skipped.items():
            report.skipped.setdefault(table, []).extend(keys)
        for table, count in counts.items():
            report.rows[table] = report.rows.get(table, 0) + count
    return report


def preview_export(file: SourceFile) -> ExportReport:
    """Return the counts of an export without storing anything."""
    report, records = _read_records(file)
    report.users = tuple(records)
    report.rows = Counter(str(row.get("table")) for rows in records.values() for row in rows)
    return report


def _read_records(file: SourceFile) -> tuple[ExportReport, dict[str, list[dict[str, Any]]]]:
    report = ExportReport()
    records: dict[str, list[dict[str, Any]]] = {}
    for number, line in read_lines(file):
        report.lines += 1
        if isinstance(line, Fault):
            raise InvalidArgument(f"line {number}: {line.reason}")
        record = parse_record(number, line)
        records.setdefault(str(record["row"].get("user_id")), []).append(record)
    return report, records


def parse_records(lines: Iterable[str | bytes]) -> list[dict[str, Any]]:
    """Return the lines of an export; raise InvalidArgument if one is invalid."""
    return [parse_record(number, line) for number, line in enumerate(lines, 1)]


def parse_record(number: int, line: str | bytes) -> dict[str, Any]:
    """Return one line of an export; raise InvalidArgument with its number if it is invalid."""
    try:
        record = parse_json_line(line.encode() if isinstance(line, str) else line)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"line {number}: {error.message}", hint="Use a file that `memrecall export` wrote"
        ) from None
    if not isinstance(record.get("row"), dict):
        raise InvalidArgument(
            f"line {number}: not a record of an export",
            hint="Import messages from a separate file",
        )
    return record
