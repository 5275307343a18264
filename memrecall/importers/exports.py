"""Files of everything that users have stored: written by `export`, taken back by `import`."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.importers.jsonl import read_lines
from memrecall.library.library import Library

_MARKS = {"format", "table", "row"}


@dataclass(slots=True)
class ExportImported:
    """What the import of an export did."""

    lines: int = 0
    users: tuple[str, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)


def is_export(path: Path) -> bool:
    """Whether a file begins as an export does; a file of messages does not."""
    for _, line in read_lines(path):
        try:
            return isinstance(found := json.loads(line), dict) and found.keys() >= _MARKS
        except ValueError:
            return False
    return False


async def import_export(library: Library, path: Path, user_id: str | None = None) -> ExportImported:
    """Take an export into a database: each user whole or not at all, perhaps under another id.

    The whole file is read before anything is stored. What is there under the same key stays.
    """
    report = ExportImported()
    records: dict[str, list[dict[str, Any]]] = {}
    for number, line in read_lines(path):
        report.lines += 1
        record = _read(number, line)
        records.setdefault(str(record["row"].get("user_id")), []).append(record)
    if user_id is not None and len(records) > 1:
        raise InvalidArgument(
            f"{path} is of {len(records)} users, who cannot all be {user_id!r}",
            hint="Leave out the user",
        )
    for owner, rows in records.items():
        counts = await library.import_user(user_id or owner, rows)
        for table, count in counts.items():
            report.rows[table] = report.rows.get(table, 0) + count
    report.users = tuple(user_id or owner for owner in records)
    return report


def _read(number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InvalidArgument(f"line {number} is not JSON: {error}") from None
    if not isinstance(record, dict) or not isinstance(record.get("row"), dict):
        raise InvalidArgument(
            f"line {number} is not a line of an export", hint="Messages go in a file of their own"
        )
    return record
