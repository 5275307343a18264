"""The helper that checks every case of a table."""

import pytest

from tests.cases import check_each, check_each_async


def is_even(number: int) -> None:
    assert number % 2 == 0, f"{number} is odd"


async def is_even_later(number: int) -> None:
    is_even(number)


def test_all_failing_cases_are_reported() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)2 of 4 cases:.*3 is odd.*5 is odd"):
        check_each([2, 3, 4, 5], is_even)


def test_missing_exception_is_reported() -> None:
    def refuse(number: int) -> None:
        with pytest.raises(ZeroDivisionError):
            assert 1 / number

    with pytest.raises(pytest.fail.Exception, match=r"(?s)1 of 2 cases:\n5.*DID NOT RAISE"):
        check_each([0, 5], refuse)


async def test_async_check_reports_failing_cases() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)1 of 2 cases:\nseven.*7 is odd"):
        await check_each_async([2, 7], is_even_later, lambda n: {7: "seven"}.get(n, "?"))


def test_passing_cases_are_silent_and_empty_table_fails() -> None:
    check_each([2, 4], is_even)
    with pytest.raises(AssertionError, match="no case"):
        check_each([], is_even)
