"""Requests per second of a key, and of an address without a valid key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any

import httpx
import hypothesis.strategies as st
import pytest
from hypothesis import given

from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.server.errors import RequestError
from memrecall.server.limits import BURST_SECONDS, RequestLimiter, TokenBuckets
from memrecall.server.metrics import Metrics
from memrecall.settings import Settings
from tests.cases import check_each

from .http_service import (
    OPERATOR,
    Clock,
    HttpService,
    check_error,
    serve_in_process,
    serve_on_socket,
)

PATH = "/v1/users/ann/messages"
RATE = 0.001  # so low that no token is added during a test: each caller has one


@asynccontextmanager
async def limited(library: Library, **rates: Any) -> AsyncIterator[HttpService]:
    """Serve a library with these rates."""
    library.settings = replace(library.settings, **rates)
    async with serve_in_process(library, allow_keyless=False) as service:
        yield service


async def statuses(client: httpx.AsyncClient, *paths: str) -> list[int]:
    return [(await client.get(path)).status_code for path in paths]


@given(st.floats(0.1, 1000.0), st.lists(st.floats(0.0, 20.0), min_size=1, max_size=60))
def test_bucket_admits_the_rate_and_a_burst(rate: float, pauses: list[float]) -> None:
    clock = Clock()
    buckets = TokenBuckets(rate, clock)
    admitted = 0
    for pause in pauses:
        clock.now += pause
        seconds = buckets.wait_seconds("a")
        if not seconds:
            buckets.take("a")
            admitted += 1
        else:
            clock.now += seconds + 1e-6  # as Retry-After says
            assert not buckets.wait_seconds("a")
    assert admitted <= max(1.0, rate * BURST_SECONDS) + (clock.now - Clock.now) * rate + 1
    assert not buckets.wait_seconds("b")


def test_rate_of_zero_is_no_limit() -> None:
    buckets = TokenBuckets(0.0, Clock())
    for _ in range(1_000):
        buckets.take("a")
    assert buckets.wait_seconds("a") == 0.0


async def test_key_is_limited_on_its_own(sqlite_library: Library) -> None:
    async with limited(sqlite_library, key_rate=RATE) as service:
        ann, ben = await service.client_with_key("ann"), await service.client_with_key("ben")
        await ann.get(PATH)
        refusal = await ann.get(PATH)
        assert "this key" in check_error(refusal, 429, "RESOURCE_EXHAUSTED")["message"]
        assert 1 <= int(refusal.headers["retry-after"]) <= 1 / RATE
        assert await statuses(ben, "/v1/memories", "/v1/memories") == [200, 429]
        metrics = service.app.service.metrics.render().decode()
        assert 'memrecall_requests_limited_total{by="key"} 2.0' in metrics.splitlines()


async def test_strangers_are_limited_by_address_and_known_keys_are_not(
    sqlite_library: Library,
) -> None:
    async with limited(sqlite_library, address_rate=RATE) as service:
        known = await service.client_with_key("ann", permissions=OPERATOR)
        late = await service.client_with_key("ann")
        assert await statuses(known, "/metrics") == [200]
        stranger = service.client("mr_0123456789abcdef_guess")
        assert await statuses(stranger, PATH, PATH, "/docs", "/openapi.json") == [401, *[429] * 3]
        refusal = await stranger.get(PATH)
        assert "this address" in check_error(refusal, 429, "RESOURCE_EXHAUSTED")["message"]
        assert int(refusal.headers["retry-after"]) > 1
        # A key that was valid before is served, one that nobody has seen yet must wait.
        assert await statuses(known, "/metrics", "/metrics") == [200, 200]
        assert await statuses(late, "/v1/memories") == [429]
        assert await statuses(stranger, "/healthz", "/healthz") == [200, 200]


async def test_local_callers_without_a_key_are_not_limited(sqlite_library: Library) -> None:
    sqlite_library.settings = replace(sqlite_library.settings, key_rate=RATE, address_rate=RATE)
    async with serve_in_process(sqlite_library) as service:
        params = {"user_id": "ann"}
        answers = [await service.client().get("/v1/memories", params=params) for _ in range(5)]
        assert {answer.status_code for answer in answers} == {200}


async def test_guesses_of_the_dashboard_are_limited(sqlite_library: Library) -> None:
    pytest.importorskip("nicegui")
    sqlite_library.settings = replace(sqlite_library.settings, key_rate=RATE, address_rate=RATE)
    async with serve_in_process(sqlite_library, dashboard=True) as service:
        await service.create_key("ann")
        form = {"key": "guess", "next": "/"}
        answers = [await service.client().post("/sign-in", data=form) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [303, 429, 429]
        assert await statuses(service.client(), "/overview", "/sign-in") == [429, 429]


def test_owner_of_a_network_is_one_stranger() -> None:
    def check(case: tuple[str, str, bool]) -> None:
        first, second, is_same = case
        metrics = Metrics(lambda: 0.0, lambda: (0, 0))
        limiter = RequestLimiter(metrics, key_rate=1.0, address_rate=RATE)
        limiter.charge_stranger(first)
        refusal: Any = pytest.raises(RequestError) if is_same else nullcontext()
        with refusal:
            limiter.admit_stranger(second)

    check_each(
        [
            ("192.0.2.1", "192.0.2.1", True),
            ("192.0.2.1", "192.0.2.2", False),
            ("::ffff:192.0.2.1", "192.0.2.1", True),
            ("2001:db8::1", "2001:db8::ffff:1", True),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
            ("", "", True),
            ("unix", "192.0.2.1", False),
        ],
        check,
    )


@pytest.mark.concurrent
async def test_proxy_names_the_client_only_if_it_is_trusted(sqlite_library: Library) -> None:
    settings = replace(sqlite_library.settings, address_rate=RATE)

    async def ask(proxies: str, *forwarded: str) -> list[int]:
        sqlite_library.settings = replace(settings, trusted_proxies=proxies)
        async with serve_on_socket(sqlite_library, allow_keyless=False) as service:
            headers = [{"X-Forwarded-For": value} for value in forwarded]
            client = service.client("mr_0123456789abcdef_guess")
            return [(await client.get(PATH, headers=each)).status_code for each in headers]

    assert await ask("", "192.0.2.1", "192.0.2.2") == [401, 429]
    assert await ask("127.0.0.0/8", "192.0.2.1", "192.0.2.2", "192.0.2.1") == [401, 401, 429]
    # What the client itself wrote stands before what the proxy adds.
    assert await ask("127.0.0.1", "10.0.0.1, 192.0.2.1", "10.0.0.2, 192.0.2.1") == [401, 429]


def test_trusted_proxies_are_addresses_or_networks() -> None:
    names = Settings(trusted_proxies="10.0.0.7, 10.1.0.0/16 ,::1").proxy_networks()
    assert names == ["10.0.0.7", "10.1.0.0/16", "::1"]
    for value in ("*", "proxy.internal", "10.0.0.1/8"):
        with pytest.raises(InvalidArgument, match="not an address or a network"):
            Settings(trusted_proxies=value).proxy_networks()
