"""Retries of requests, and the header Retry-After."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import pytest

from memrecall import retries
from memrecall.errors import RunError, StorageUnreachable
from memrecall.retries import NODE_SECONDS, DatabaseRetries, parse_retry_after, retry

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


class Outages:
    """A database whose nodes are lost at times, under a clock that only pauses move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.attempts = 0
        self.attempt_seconds = 0.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(retries, "time", clock)
        monkeypatch.setattr(retries, "asyncio", SimpleNamespace(sleep=self.sleep))
        self.retries = DatabaseRetries(10.0)

    def is_before(self, moment: float) -> bool:
        return self.now < moment

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def run(self, is_lost: Callable[[], bool], node: str | None) -> tuple[float, int]:
        """Return the seconds and the attempts of work, which fails while the node is lost."""
        begin, self.attempts = self.now, 0

        async def attempt() -> None:
            self.attempts += 1
            self.now += self.attempt_seconds
            if is_lost():
                error = StorageUnreachable("lost").mark_transient()
                error.lost_node = node
                raise error

        try:
            await self.retries.run(attempt)
        except StorageUnreachable:
            assert is_lost()
        return self.now - begin, self.attempts


async def test_a_lost_node_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    outages = Outages(monkeypatch)
    assert await outages.run(lambda: False, None) == (0.0, 1)
    seconds, attempts = await outages.run(lambda: True, "db1:5432")
    assert NODE_SECONDS <= seconds <= NODE_SECONDS + retries.LAST_PAUSE
    assert attempts > 5
    assert await outages.run(lambda: True, "db1:5432") == (0.0, 1)
    # Another node, and this one after it was back, may be restarting.
    seconds, _ = await outages.run(lambda: True, "db2:5432")
    assert seconds >= NODE_SECONDS
    outages.now += 60
    back = partial(outages.is_before, outages.now + 1)
    seconds, _ = await outages.run(back, "db1:5432")
    assert 1 <= seconds < NODE_SECONDS


async def test_a_node_that_does_not_answer_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outages = Outages(monkeypatch)
    await outages.run(lambda: False, None)
    outages.attempt_seconds = 5.0  # after which the coordinator gives up
    assert (await outages.run(lambda: True, "db1:5432"))[1] == 2
    for _ in range(3):
        assert (await outages.run(lambda: True, "db1:5432"))[1] == 1


async def test_a_server_that_restarts_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    outages = Outages(monkeypatch)
    await outages.run(lambda: False, None)
    for back in (8, 16):
        seconds, _ = await outages.run(partial(outages.is_before, back), None)
        assert 7 <= seconds < 10
    seconds, _ = await outages.run(lambda: True, None)
    assert 9 < seconds <= 10


async def test_a_server_that_was_never_reached_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outages = Outages(monkeypatch)
    for node in (None, "db1:5432"):
        assert await outages.run(lambda: True, node) == (0.0, 1)
