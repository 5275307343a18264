"""Retries of requests, and the header Retry-After."""

from datetime import UTC, datetime

import pytest

from memrecall import retries
from memrecall.errors import RunError
from memrecall.retries import parse_retry_after, retry

from .cases import check_each

NOW = datetime(2026, 1, 26, 10, 47, tzinfo=UTC)
HEADERS: list[tuple[str, float | None]] = [
    ("0", 0),
    ("1.5", 1.5),
    ("3600", 3600),
    ("9" * 400, None),
    ("", None),
    ("soon", None),
    ("-1", None),
    ("nan", None),
    ("²", None),
    ("Mon, 26 Jan 2026 10:47:30 GMT", 30),
    ("Mon, 26 Jan 2026 12:47:30 +0200", 30),
    ("Mon, 26 Jan 2026 10:47:30 -0000", 30),
    ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
    ("Wed, 99 Oct 2015 07:28:00 GMT", None),
    (f"Wed, 21 Oct {'9' * 30} 07:28:00 GMT", None),
]


def test_retry_after_is_seconds_or_a_date() -> None:
    def check(case: tuple[str, float | None]) -> None:
        header, seconds = case
        assert parse_retry_after(header, NOW) == seconds

    check_each(HEADERS, check)


async def test_only_transient_failures_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSES", (0.0, 0.0))
    failures = [RunError("busy"), RunError("broken"), RunError("busy")]
    attempts = iter(failures)

    async def attempt() -> None:
        raise next(attempts)

    with pytest.raises(RunError, match="broken"):
        await retry(attempt, lambda failure: failure.message == "busy")
    assert list(attempts) == failures[2:]
