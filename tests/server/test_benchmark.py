"""The benchmark of the service: equal work for all peers, and failures are counted."""

import asyncio
import json
import socket
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.table import Table

import benchmarks.attack
import benchmarks.load
from benchmarks.attack import (
    ATTACKER,
    ROWS_ATTACKER,
    VICTIM,
    Attack,
    Victims,
    query_attacks,
    text_attacks,
    under_attack,
)
from benchmarks.calls import USER, all_calls, http_request, nothing
from benchmarks.comparison import OTHER, SLICES, THIS, Comparison
from benchmarks.corpus import load_corpus
from benchmarks.databases import write
from benchmarks.load import Connection, Failed, Load, put_load, put_pairs
from benchmarks.report import Report
from benchmarks.service import Service
from memrecall.server.runner import _bind
from tests.cases import check_each_async
from tests.waiting import wait_until

from .http_service import HttpService, make_message, write_messages

MISSING_FOLDER = Path("/nonexistent")


@pytest.mark.concurrent
async def test_benchmark_peers_do_the_same_work(sqlite_server: HttpService) -> None:
    sqlite_service = sqlite_server
    corpus = load_corpus(MISSING_FOLDER, MISSING_FOLDER)
    turns = list(corpus.turns(120))
    await write(sqlite_service.library, USER, turns)
    key = await sqlite_service.create_key(USER)
    connection = await Connection.open(sqlite_service.url)
    assert json.loads(await connection.ask(nothing().request(key)))["status"] == "ok"
    calls = all_calls(corpus, turns)
    assert set(calls) == {"range read", "neighbours", "lexical", "semantic"}
    for kind, questions in calls.items():
        count = 0
        for question in questions[:10]:
            response = json.loads(await connection.ask(question.request(key)))
            result: Any = await question.run(sqlite_service.library)
            ids = [getattr(item, "message", item).message_id for item in result.items]
            assert [item["message_id"] for item in response["items"]] == ids, kind
            count += len(ids)
        assert count, kind
    await connection.close()


@pytest.mark.concurrent
async def test_unexpected_response_counts_as_failure(sqlite_server: HttpService) -> None:
    connection = await Connection.open(sqlite_server.url)
    with pytest.raises(Failed, match="status 404"):
        await connection.ask(b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await connection.close()


class Clock:
    """A replacement of the module `time`, advanced by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    process_time = perf_counter

    async def advance(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(benchmarks.load, "time", fake_clock)
    return fake_clock


async def test_load_counts_requests_and_times(clock: Clock) -> None:
    async def succeed(number: int) -> None:
        await clock.advance(0.25 if number == 2 else 0.125)

    async def fail(number: int) -> None:
        if number > 3:
            raise Failed("status 503")

    load = await put_load([succeed, fail], 2.0, clock.perf_counter)
    assert load.failures == {"status 503": 1}
    assert len(load.times) == 15 + 2
    assert load.seconds == load.cpu == pytest.approx(2.0)
    assert load.rate == pytest.approx(8.5)
    assert load.milliseconds(50) == pytest.approx(125)
    assert 125 < load.milliseconds(99) < 250


async def test_pairs_alternate_both_sides(clock: Clock) -> None:
    async def slow(_: int) -> None:
        await clock.advance(0.375)

    async def fast(_: int) -> None:
        await clock.advance(0.125)

    slow_load, fast_load = await put_pairs(slow, fast, 1.0, lambda: 0.0)
    assert slow_load.times == pytest.approx([0.375] * 4)
    assert fast_load.times == pytest.approx([0.125] * 4)
    assert [slow_load.seconds, fast_load.seconds] == pytest.approx([1.5, 0.5])
    assert Load().rate == 0.0


async def test_comparison_alternates_and_shows_ratios(clock: Clock) -> None:
    order: list[Any] = []
    report = Report([10])
    table = Table("call", "other", "this", "this / other")
    services: Any = {OTHER: "old", THIS: "new"}

    async def work(service: Any, seconds: float) -> dict[str, Load]:
        order.append(service)
        rate = 4 if service == "new" else 1
        failures = Counter({"status 503": 1} if service == "old" else {})
        return {"": Load([0.25] * rate, failures, seconds=seconds)}

    comparison = Comparison(services, report, table, seconds=SLICES * 1.0)
    sides = (await comparison.run("posts", work))[""]
    comparison.show("posts", sides[OTHER].rate, sides[THIS].rate, bound=10.0)
    comparison.show("times", 8.0, 2.0, bound=0.5)
    assert order == ["old", "new"] * SLICES
    assert report.notes == [f"posts, other: {SLICES} failed (status 503)"]
    assert report.figures["posts: this / other"] == pytest.approx(4.0)
    assert [target.verdict for target in report.targets] == ["MISSED", "OK"]
    assert table.row_count == 2


@pytest.mark.concurrent
async def test_attack_measures_others(sqlite_server: HttpService) -> None:
    key = await sqlite_server.create_key()
    await write_messages(sqlite_server.client(key), VICTIM, make_message(1, "green tea"))
    service = Service(sqlite_server.url, psutil.Process(), key)
    victims = Victims(service)
    await victims.measure_quiet(0.05)
    request = http_request("GET", "/nowhere", key)
    async with under_attack(service, Attack("missing page", [request])) as outcomes:
        await wait_until(lambda: outcomes["404"])
        attacked = await victims.measure(0.05)
    assert set(attacked) == set(victims.quiet) == {"/healthz", "another user's search"}
    assert all(load.times and not load.failures for load in attacked.values())
    assert set(outcomes) == {"404"}


@pytest.mark.concurrent
async def test_attack_is_measured_until_each_request_was_answered(
    sqlite_server: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window that ends before would say nothing about the later requests."""
    key = await sqlite_server.create_key()
    await write_messages(sqlite_server.client(key), VICTIM, make_message(1, "green tea"))
    victims = Victims(Service(sqlite_server.url, psutil.Process(), key))
    answers = iter([False, False, True])
    await victims.measure_until(lambda: next(answers), 0.01)
    assert next(answers, None) is None
    monkeypatch.setattr(benchmarks.attack, "LONGEST_ATTACK", 0.0)
    assert (await victims.measure_until(lambda: False, 0.01))["/healthz"].times


@pytest.mark.concurrent
async def test_attacks_are_well_formed(
    sqlite_server: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in a request would measure the cost of refusing it."""
    monkeypatch.setattr(benchmarks.attack, "LONGEST_QUERY", 500)
    monkeypatch.setattr(benchmarks.attack, "LONGEST_TEXT", 2_000)
    key = await sqlite_server.create_key()
    for user in (ATTACKER, ROWS_ATTACKER):
        await write_messages(sqlite_server.client(key), user, make_message(1, "green tea"))
    attacks = [*query_attacks(key), *text_attacks(key)]
    requests = [r for attack in attacks if "statements" in attack.name for r in attack.requests]
    assert len(requests) == 2 * 4 + 4
    connection = await Connection.open(sqlite_server.url)

    async def check(request: bytes) -> None:
        response = await connection.exchange(request)
        assert response.status == 200, response.body

    await check_each_async(requests, check, lambda request: str(request[:80]))
    await connection.close()


def test_responses_are_not_delayed_by_nagle() -> None:
    """asyncio turns Nagle's algorithm off only for sockets with an explicit protocol."""
    with closing(_bind("127.0.0.1", 0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP
