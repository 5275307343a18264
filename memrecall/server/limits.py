"""Limits: requests per second, recalls of a key that run at once or wait, and deadlines.

The deadline of a request is what its header asks for, or the default of its kind.
"""

import asyncio
import hashlib
import ipaddress
import math
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memrecall.server.errors import Problem, RequestError, invalid_field
from memrecall.text_length import cache_short_texts
from memrecall.timing import RequestDeadline, seconds_left

if TYPE_CHECKING:  # JSON-RPC over stdio uses this module without Prometheus
    from memrecall.server.metrics import Metrics

RETRY_SECONDS = 2
BURST_SECONDS = 10  # a caller that was silent may send as many requests as in this time at once
_MAX_CALLERS = 10_000  # that are remembered
_PREFIX = 64  # of an IPv6 address: whoever has one address has all of its network
DEADLINE_HEADER = "X-Memrecall-Deadline"  # seconds
QUICK_SECONDS = 5.0  # to read
WRITE_SECONDS = 10.0
GRACE_SECONDS = 5.0  # for what a recall or a turn does after its own budget
# Work that grows with the data of a user: only each of its waits is bounded.
_UNBOUNDED = re.compile(
    r"POST /v1/users/[^/]+/import|GET /v1/users/[^/]+/export"
    r"|DELETE /v1/(?:users|spaces)/[^/]+|POST /v1/sweep"
    r"|POST /v1/(?:memories/extract|extractions/[^/]+/undo)"
)
_READ = re.compile(r"GET .+|POST /v1/(?:messages/\w+_search|memories/search)")
_MODEL = re.compile(r"POST /v1/(?:memories|graph/extract|sessions/[^/]+/end)")
_SECONDS = re.compile(rb"[0-9]{1,4}(\.[0-9]{1,3})?")


class TokenBuckets:
    """A token bucket for each caller, filled with `rate` tokens a second; a rate of 0 is no limit.

    A bucket is the time at which it was empty. The bucket of the caller that was silent longest is
    forgotten first, which makes it full.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._empty_at: OrderedDict[str, float] = OrderedDict()

    def wait_seconds(self, caller: str) -> float:
        """Return the seconds until the caller has a token; 0 if it has one now."""
        if not self._rate:
            return 0.0
        return max(0.0, round((1.0 - self._tokens(caller)) / self._rate, 6))

    def take(self, caller: str, tokens: float = 1.0) -> None:
        """Take tokens from the bucket of a caller, down to an empty bucket."""
        if self._rate:
            left = max(0.0, self._tokens(caller) - tokens)
            _remember(self._empty_at, caller, self._clock() - left / self._rate)

    def _tokens(self, caller: str) -> float:
        most = max(1.0, self._rate * BURST_SECONDS)
        seconds = self._clock() - self._empty_at.get(caller, -math.inf)
        return min(most, seconds * self._rate)


def _remember(values: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """Set a caller's value; of too many callers, forget the one that was silent longest."""
    values[key] = value
    values.move_to_end(key)
    if len(values) > _MAX_CALLERS:
        values.popitem(last=False)


class RequestLimiter:
    """Bounds the requests of each key, and for each address those without a valid key.

    Strangers cannot use up the requests of a key: a key that was valid before is never refused
    because of its address.
    """

    def __init__(self, metrics: "Metrics", *, key_rate: float, address_rate: float) -> None:
        self._metrics = metrics
        self._keys = TokenBuckets(key_rate)
        self._addresses = TokenBuckets(address_rate)
        self._known: OrderedDict[bytes, None] = OrderedDict()  # digests of credentials

    def admit_stranger(self, address: str, credentials: bytes | None = None) -> None:
        """Raise RequestError if an address sent too many requests without a valid key."""
        seconds = self._addresses.wait_seconds(_network(address))
        if seconds and (credentials is None or _digest(credentials) not in self._known):
            raise self._refusal("address", seconds)

    def charge_stranger(self, address: str, tokens: float = 1.0) -> None:
        """Count a request without a valid key."""
        self._addresses.take(_network(address), tokens)

    def admit_key(self, key_id: str, credentials: bytes | None = None) -> None:
        """Count a request of a valid key; raise RequestError if there are too many."""
        if credentials is not None:
            _remember(self._known, _digest(credentials), None)
        if seconds := self._keys.wait_seconds(key_id):
            raise self._refusal("key", seconds)
        self._keys.take(key_id)

    def _refusal(self, caller: str, seconds: float) -> RequestError:
        self._metrics.limited.labels(caller).inc()
        message = f"too many requests from this {caller}; try again later"
        headers = {"Retry-After": str(math.ceil(seconds))}
        return RequestError(Problem("RESOURCE_EXHAUSTED", message, headers=headers))


def _digest(credentials: bytes) -> bytes:
    return hashlib.sha256(credentials).digest()


@cache_short_texts(_MAX_CALLERS, 100)
def _network(address: str) -> str:
    """Return what identifies the owner of an address: itself, or the network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]  # forwarded by a proxy as it was received
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _PREFIX), strict=False))


@dataclass(slots=True)
class _Queue:
    """The recalls of one key."""

    slots: asyncio.Semaphore
    waiting: int = 0
    running: int = 0


@dataclass(slots=True)
class RecallLimiter:
    """Bounds the running and the waiting recalls of each key."""

    metrics: "Metrics"
    max_running: int
    max_waiting: int
    wait_seconds: float
    _queues: dict[str, _Queue] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of recalls that run or wait."""
        return sum(queue.running + queue.waiting for queue in self._queues.values())

    @asynccontextmanager
    async def slot(self, key_id: str) -> AsyncIterator[None]:
        """Hold one slot of a key; raise RequestError if the queue is full or too slow."""
        queue = self._queues.setdefault(key_id, _Queue(asyncio.Semaphore(self.max_running)))
        try:
            if queue.slots.locked() and queue.waiting >= self.max_waiting:
                raise self._exhausted()
            queue.waiting += 1
            try:
                seconds = min(self.wait_seconds, seconds_left(self.wait_seconds))
                async with asyncio.timeout(seconds):
                    await queue.slots.acquire()
            except TimeoutError:
                raise self._exhausted() from None
            finally:
                queue.waiting -= 1
            queue.running += 1
            try:
                with self.metrics.running.track_inprogress():
                    yield
            finally:
                queue.running -= 1
                queue.slots.release()
        finally:
            if not queue.running and not queue.waiting:
                self._queues.pop(key_id, None)

    def _exhausted(self) -> RequestError:
        self.metrics.refused.inc()
        recalls = "1 recall" if self.max_running == 1 else f"{self.max_running} recalls"
        message = f"this key already has {recalls} running; try again"
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return RequestError(Problem("RESOURCE_EXHAUSTED", message, headers=headers))


class RequestSeconds:
    """The deadlines of requests: at most `most`, and longer where a model is asked."""

    def __init__(self, most: float, model_seconds: float = 0.0) -> None:
        self._most = most
        self._model_seconds = model_seconds

    def deadline_of(self, method: str, path: str, header: bytes | None) -> RequestDeadline | None:
        """Return the deadline of a request, if its kind has one; raise RequestError.

        A recall, a chat turn and a hook replace the default by their budgets, and each call in a
        message of JSON-RPC or MCP has its own.
        """
        call = f"{method} {path}"
        if header is not None and not (_SECONDS.fullmatch(header) and float(header)):
            reason = "must be a number of seconds above 0, such as 2.5"
            raise invalid_field(DEADLINE_HEADER, reason)
        if _UNBOUNDED.fullmatch(call):
            return None
        if header is not None:
            return RequestDeadline(min(float(header), self._most))
        if not path.startswith("/v1/"):
            return None
        seconds = QUICK_SECONDS if _READ.fullmatch(call) else WRITE_SECONDS
        model_seconds = self._model_seconds if _MODEL.fullmatch(call) else 0.0
        return RequestDeadline(seconds + model_seconds, is_default=True)
