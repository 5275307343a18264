"""Tables of cases in one test: every case is checked, and all failures are reported."""

import json
import traceback
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")
TABLES = Path(__file__).parents[1] / "fixtures" / "tables"
# pytest.fail raises an exception that does not derive from Exception.
FAILURES = (Exception, pytest.fail.Exception)


def read_lines(file: str, table: str) -> list[str]:
    """Return the lines of a table in `fixtures/tables`, which stand below its heading."""
    tables = (TABLES / f"{file}.txt").read_text("utf-8").split("\n== ")
    (lines,) = [part.splitlines()[1:] for part in tables if part.startswith(f"{table}\n")]
    return [line for line in lines if line and not line.startswith("# ")]


def read_rows(file: str, table: str) -> list[Any]:
    """Return the rows of a table of which every line is a JSON value."""
    return [json.loads(line) for line in read_lines(file, table)]


def check_each(
    cases: Iterable[Case], check: Callable[[Case], object], label: Callable[[Case], str] = repr
) -> None:
    """Call `check` with every case; fail with all cases for which it raised."""
    count, failures = 0, []
    for case in cases:
        count += 1
        try:
            check(case)
        except FAILURES as error:
            failures.append(_describe(label(case), error))
    _report(count, failures)


async def check_each_async(
    cases: Iterable[Case],
    check: Callable[[Case], Awaitable[object]],
    label: Callable[[Case], str] = repr,
) -> None:
    """Like `check_each`, for an async check."""
    count, failures = 0, []
    for case in cases:
        count += 1
        try:
            await check(case)
        except FAILURES as error:
            failures.append(_describe(label(case), error))
    _report(count, failures)


def _describe(label: str, error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{type(error).__name__}: {error}".strip()
    return f"{label}\n    {frame.name}:{frame.lineno}: {frame.line}\n    {message}"


def _report(count: int, failures: list[str]) -> None:
    assert count, "there is no case to check"
    if failures:
        pytest.fail(f"{len(failures)} of {count} cases:\n" + "\n".join(failures), pytrace=False)
