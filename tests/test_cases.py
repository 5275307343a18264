"""The helper that tries every case of a table."""

import pytest

from tests.cases import check_each, check_each_async


def is_even(number: int) -> None:
    assert number % 2 == 0, f"{number} is odd"


async def is_even_later(number: int) -> None:
    is_even(number)


def test_all_failing_cases_are_named() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)2 of 4 cases:.*3 is odd.*5 is odd"):
        check_each([2, 3, 4, 5], is_even)


def test_a_case_that_should_raise_and_does_not_is_named() -> None:
    def refuse(number: int) -> None:
        with pytest.raises(ZeroDivisionError):
            assert 1 / number

    with pytest.raises(pytest.fail.Exception, match=r"(?s)1 of 2 cases:\n5.*DID NOT RAISE"):
        check_each([0, 5], refuse)


async def test_an_awaited_check_names_them_too() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)1 of 2 cases:\nseven.*7 is odd"):
        await check_each_async([2, 7], is_even_later, lambda n: {7: "seven"}.get(n, "?"))


def test_cases_that_pass_are_silent_and_none_at_all_is_a_failure() -> None:
    check_each([2, 4], is_even)
    with pytest.raises(AssertionError, match="no case"):
        check_each([], is_even)
