"""Rows of CSV files, whatever separates their columns."""

import csv
from collections.abc import Iterator

from memrecall.importers.records import Fault
from memrecall.importers.source import MAX_LINE, SourceFile
from memrecall.types import MESSAGE_LENGTH

_DELIMITERS = ",;\t|"
_MAX_FIELD = 4 * MESSAGE_LENGTH

TableRow = dict[str, str]


def read_header(file: SourceFile) -> list[str]:
    """Return the names of the columns, in lower case; none if the file is no table."""
    if file.suffix == ".json" or "\0" in file.sample[:1_000]:
        return []
    line = file.sample.lstrip("\ufeff").partition("\n")[0].strip("\r")
    try:
        row = next(csv.reader([line], delimiter=_delimiter(line)), [])
    except csv.Error:
        return []
    return [_name(cell) for cell in row] if len(row) > 1 else []


def read_rows(file: SourceFile) -> Iterator[tuple[int, TableRow | Fault]]:
    """Yield the rows below the header, by the names of the columns in lower case."""
    # The limit is the process's: one for a whole message must fit.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD))
    header = read_header(file)
    first = file.sample.lstrip("\ufeff").partition("\n")[0]
    reader = csv.reader(_lines(file), delimiter=_delimiter(first))
    next(reader, None)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, Fault(reader.line_num, f"not CSV: {error}")
            continue
        if any(row):
            yield reader.line_num, dict(zip(header, row, strict=False))


def _lines(file: SourceFile) -> Iterator[str]:
    for number, line in file.lines():
        if line is None:
            raise csv.Error(f"line {number} has more than {MAX_LINE:,} characters")
        yield line + "\n"


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _name(cell: str) -> str:
    return " ".join(cell.strip().strip('"').casefold().split())


def pick(row: TableRow, *names: str) -> str:
    """Return the first of these cells that is not empty."""
    return next((row[name].strip() for name in names if row.get(name, "").strip()), "")
