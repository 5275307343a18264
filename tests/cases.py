"""Tables of cases in one test: every case is tried, and all that fail are reported together."""

import traceback
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import pytest

Case = TypeVar("Case")
# pytest.fail raises an exception that does not derive from Exception.
FAILURES = (Exception, pytest.fail.Exception)


def check_each(
    cases: Iterable[Case], check: Callable[[Case], object], label: Callable[[Case], str] = repr
) -> None:
    """Call `check` with every case; fail with all cases for which it raised."""
    tried, failures = 0, []
    for case in cases:
        tried += 1
        try:
            check(case)
        except FAILURES as error:
            failures.append(_describe(label(case), error))
    _report(tried, failures)


async def check_each_async(
    cases: Iterable[Case],
    check: Callable[[Case], Awaitable[object]],
    label: Callable[[Case], str] = repr,
) -> None:
    """Like `check_each`, for a check that is awaited, one case after the other."""
    tried, failures = 0, []
    for case in cases:
        tried += 1
        try:
            await check(case)
        except FAILURES as error:
            failures.append(_describe(label(case), error))
    _report(tried, failures)


def _describe(label: str, error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{type(error).__name__}: {error}".strip()
    return f"{label}\n    {where.name}:{where.lineno}: {where.line}\n    {message}"


def _report(tried: int, failures: list[str]) -> None:
    assert tried, "there is no case to check"
    if failures:
        pytest.fail(f"{len(failures)} of {tried} cases:\n" + "\n".join(failures), pytrace=False)
