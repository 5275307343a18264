"""What other users notice while one user sends requests that are meant to be slow."""

import asyncio
import itertools
import random
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from benchmarks.calls import http_request
from benchmarks.load import FAILURES, PATIENCE, Connection, Load, put_load
from benchmarks.report import Report, Target, number, say
from benchmarks.service import Service

VICTIM, ATTACKER, ROWS_ATTACKER = "ann", "mallory", "mallory-with-rows"
MOST_SLOWER = 5.0  # p99 attacked / quiet
LONGEST_QUERY, LONGEST_TEXT = 10_000, 100_000
LONGEST_ATTACK = 90.0  # seconds until each request of an attack should have been answered once
_QUIET_SHARE = 0.5  # of the seconds of an attack, before each of them
_LORIS_SOCKETS, _LORIS_PAUSE = 100, 1.0
_PAUSE = 0.005  # between two requests of a victim
_SIZES, MOST_SLOWER_WRITE = (1, 64, 65, 500), 3.0  # messages of a write beside bulk writes
_SEARCHES = ("/v1/messages/lexical_search", "/v1/messages/semantic_search", "/v1/memories/search")

Bytes = Sequence[bytes]


def _repeat(text: str, length: int) -> str:
    return (text * (length // len(text) + 1))[:length]


def _hexadecimal(length: int) -> str:
    return "".join(random.Random(1).choices("0123456789ABCDEF", k=length))


def _capitals(length: int) -> str:
    chance = random.Random(2)
    names = ("".join(chance.choices("ABCDEFGHIJ", k=6)) for _ in range(length // 7 + 1))
    return " ".join(names)[:length]


TEXTS: dict[str, Callable[[int], str]] = {
    "dates": lambda length: _repeat("next monday 3 days ago 下周三 5pm ", length),
    "numbers of dates": lambda length: _repeat("2024-01-02 03:04 12月31日 ", length),
    "capitals": _capitals,
    "hexadecimal": _hexadecimal,
    "quoted phrases": lambda length: _repeat('"alpha beta alpha" ', length),
    "one long token": lambda length: "a" * length,
    "one Chinese character": lambda length: "我" * min(length, 99_990),
    "ligatures": lambda length: "\ufdfa" * length,  # each is 18 characters when normalised
    "brackets": lambda length: _repeat("([{<", length),
    "statements": lambda length: _repeat(
        "My name is Ann Lee and I live in Rome. 我叫李雷。", length
    ),
}


@dataclass(frozen=True, slots=True)
class Attack:
    """Requests that one user repeats as fast as they are answered."""

    name: str
    requests: Bytes


def query_attacks(key: str) -> list[Attack]:
    """Return attacks by queries, which are searched, recalled and answered."""
    attacks = []
    for name, text in TEXTS.items():
        query = text(LONGEST_QUERY - 10)
        requests = []
        for user in (ATTACKER, ROWS_ATTACKER):
            requests += [
                http_request("POST", path, key, {"user_id": user, field_name: query})
                for path, field_name in zip(
                    _SEARCHES, ("query_text", "query_text", "query"), strict=True
                )
            ]
            recall = {"query": query, "limits": {"seconds": 5.0}}
            requests.append(http_request("POST", f"/v1/users/{user}/recall", key, recall))
        attacks.append(Attack(f"query of {name}", requests))
    return attacks


def text_attacks(key: str) -> list[Attack]:
    """Return attacks by long texts: messages, memories, conversations and chat turns."""
    attacks = []
    for name, text in TEXTS.items():
        content = text(LONGEST_TEXT)
        message = {"role": "user", "content": content}
        short = {"role": "user", "content": content[: LONGEST_TEXT // 50]}
        paths: dict[str, object] = {
            f"/v1/users/{ATTACKER}/messages": {"messages": [message]},
            "/v1/memories": {"user_id": ATTACKER, "messages": [message]},
            f"/v1/users/{ATTACKER}/recall": {"messages": [short] * 50, "limits": {"seconds": 5.0}},
            f"/v1/users/{ATTACKER}/chat": {"message": content},
        }
        requests = [http_request("POST", path, key, body) for path, body in paths.items()]
        attacks.append(Attack(f"long text of {name}", requests))
    return attacks


def size_attacks(key: str) -> list[Attack]:
    """Return attacks by large requests and responses."""
    million = {"messages": [{"role": "user", "content": "\ufdfa" * 1_000_000}]}
    metadata = {str(n): _repeat("metadata ", 1_000) for n in range(8_000)}
    large = {"messages": [{"role": "user", "content": "hello", "metadata": metadata}]}
    many = {"messages": [{"role": "user", "content": "hello", "metadata": {"n": [1] * 2_000_000}}]}
    nested: object = 0
    for _ in range(60):
        nested = [nested, nested] if _ < 12 else [nested]
    messages = f"/v1/users/{ATTACKER}/messages"
    lexical = {"user_id": ATTACKER, "page_size": 200}
    return [
        Attack("a million ligatures", [http_request("POST", messages, key, million)]),
        Attack("8 MB of metadata", [http_request("POST", messages, key, large)]),
        Attack("two million values", [http_request("POST", messages, key, many)]),
        Attack("pages of long messages", [http_request("GET", f"{messages}?page_size=200", key)]),
        Attack(
            "nested values",
            [http_request("POST", messages, key, {"messages": [{"metadata": {"a": nested}}]})],
        ),
        Attack(
            "prefix of long tokens",
            [http_request("POST", _SEARCHES[0], key, {**lexical, "query_text": "aaaa*"})],
        ),
    ]


async def prepare(service: Service) -> None:
    """Store long messages and large metadata of the attacker, as far as the service takes them."""
    words = [_repeat(f"{'a' * (4 + n)}b{n} ", 60_000) for n in range(24)]
    metadata = {str(n): _repeat("metadata ", 1_000) for n in range(1_000)}
    bodies: list[object] = [{"messages": [{"role": "user", "content": text}]} for text in words]
    entry = {"role": "user", "content": "hello", "metadata": metadata}
    bodies += [{"messages": [{**entry, "message_id": f"large-{n}"}]} for n in range(24)]
    connection = await Connection.open(service.url)
    path = f"/v1/users/{ATTACKER}/messages"
    for body in bodies:
        await connection.exchange(http_request("POST", path, service.key, body))
    await connection.close()


@dataclass(slots=True)
class Victims:
    """A probe of `/healthz` and a user who searches, with pauses."""

    service: Service
    quiet: dict[str, Load] = field(default_factory=dict)

    async def measure(self, seconds: float) -> dict[str, Load]:
        """Measure both for some seconds; wait for pending responses."""
        probe = http_request("GET", "/healthz", "")

        async def ask_health(_number: int) -> None:
            connection = await Connection.open(self.service.url)  # as a new probe does
            try:
                await connection.ask(probe)
            finally:
                await connection.close()

        searcher = await Connection.open(self.service.url)

        async def search(question: int) -> None:
            body = {"user_id": VICTIM, "query_text": f"tea OR {question % 50}"}
            await searcher.ask(http_request("POST", _SEARCHES[0], self.service.key, body))

        try:
            loads = await asyncio.gather(
                put_load([ask_health], seconds, pause=_PAUSE),
                put_load([search], seconds, pause=_PAUSE),
            )
        finally:
            await searcher.close()
        return {"/healthz": loads[0], "another user's search": loads[1]}

    async def measure_until(
        self, outcomes: Counter[str], count: int, seconds: float
    ) -> dict[str, Load]:
        """Measure in windows of some seconds until all is answered, at most `LONGEST_ATTACK`."""
        loads: dict[str, Load] = {}
        end = time.monotonic() + LONGEST_ATTACK
        while not loads or (outcomes.total() < count and time.monotonic() < end):
            for name, load in (await self.measure(seconds)).items():
                loads.setdefault(name, Load()).add(load)
        return loads

    async def measure_quiet(self, seconds: float) -> None:
        """Measure without an attack; all such measurements count together."""
        for name, load in (await self.measure(seconds)).items():
            self.quiet.setdefault(name, Load()).add(load)


@asynccontextmanager
async def under_attack(service: Service, attack: Attack) -> AsyncIterator[Counter[str]]:
    """Repeat the requests of an attack; yield the counts of their responses."""
    outcomes: Counter[str] = Counter()

    async def keep_asking() -> None:
        for request in itertools.cycle(attack.requests):
            connection = await Connection.open(service.url)
            started = time.perf_counter()
            try:
                async with asyncio.timeout(PATIENCE):
                    outcomes[str((await connection.exchange(request)).status)] += 1
            except FAILURES as error:
                outcomes[type(error).__name__] += 1
                if time.perf_counter() - started < _PAUSE:
                    await asyncio.sleep(_PAUSE)
            finally:
                await connection.close()

    async with running(keep_asking()):
        yield outcomes


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something in the background while the block runs."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, *FAILURES):
            await task


@asynccontextmanager
async def slow_loris(service: Service) -> AsyncIterator[Counter[str]]:
    """Hold many connections that send a byte of their header now and then."""
    outcomes: Counter[str] = Counter()

    async def hold() -> None:
        connections = [await Connection.open(service.url) for _ in range(_LORIS_SOCKETS)]
        outcomes["connections"] = len(connections)
        try:
            while True:
                for connection in connections:
                    connection.send(b"G")
                await asyncio.sleep(_LORIS_PAUSE)
        finally:
            for connection in connections:
                with suppress(OSError):
                    await connection.close()

    async with running(hold()):
        yield outcomes


async def measure_attacks(report: Report, table: Table, service: Service, seconds: float) -> None:
    """Measure the victims quiet and under each attack."""
    await prepare(service)
    victims = Victims(service)
    await victims.measure(min(1.0, seconds))  # warms up
    key = service.key
    attacks = [*query_attacks(key), *text_attacks(key), *size_attacks(key)]
    attacked: dict[str, tuple[dict[str, Load], Counter[str]]] = {}
    for attack in attacks:
        say(attack.name)
        await victims.measure_quiet(_QUIET_SHARE * seconds)
        async with under_attack(service, attack) as outcomes:
            loads = await victims.measure_until(outcomes, len(attack.requests), seconds)
        attacked[attack.name] = loads, outcomes
        if outcomes.total() < len(attack.requests):
            sent = f"{outcomes.total()} of {len(attack.requests)} requests were answered"
            report.targets.append(Target(f"{attack.name}: {sent}", None, MOST_SLOWER))
    say("slow loris")
    async with slow_loris(service) as outcomes:
        attacked["slow loris"] = await victims.measure(seconds), outcomes
    for name, (loads, outcomes) in attacked.items():
        _show(report, table, name, victims.quiet, loads, outcomes)


def _show(
    report: Report,
    table: Table,
    name: str,
    quiet: dict[str, Load],
    attacked: dict[str, Load],
    outcomes: Counter[str],
) -> None:
    cells = []
    for victim, load in attacked.items():
        before, after = quiet[victim].milliseconds(99), load.milliseconds(99)
        longest = max(load.times, default=PATIENCE) * 1000
        report.figures[f"{name}: {victim}, p99 ms quiet"] = before
        report.figures[f"{name}: {victim}, p99 ms attacked"] = after
        report.figures[f"{name}: {victim}, longest ms attacked"] = longest
        compared = f"{name}: {victim}, p99 attacked / quiet"
        report.targets.append(Target(compared, after / before, MOST_SLOWER))
        cells += [number(before), number(after), number(longest), number(after / before)]
        for reason, times in load.failures.items():
            report.notes.append(f"{name}: {times} of {victim} failed ({reason})")
    answers = ", ".join(f"{count} × {outcome}" for outcome, count in sorted(outcomes.items()))
    table.add_row(name, *cells, answers)


async def measure_bulk(report: Report, service: Service) -> Table:
    """Measure writes alone, and after another user's, which leave 1,200 rows to embed."""
    table = Table("write", "alone ms", "beside a backlog ms", "ratio")
    connection = await Connection.open(service.url)
    by_meaning = {"user_id": VICTIM, "query_text": "letter"}
    search = http_request("POST", _SEARCHES[1], service.key, by_meaning)

    async def ask(path: str, body: object) -> float:
        begun = time.perf_counter()
        await connection.ask(http_request("POST", path, service.key, body))
        return (time.perf_counter() - begun) * 1000

    async def post(user: str, count: int, length: int) -> float:
        texts = (_repeat(f"{random.random()} my letter ", length) for _ in range(count))
        messages = [{"role": "user", "content": text} for text in texts]
        return await ask(f"/v1/users/{user}/messages", {"messages": messages})

    async def post_all(pause: float) -> dict[int, float]:
        times: dict[int, list[float]] = {size: [] for size in _SIZES}
        for size in _SIZES * 5:
            times[size].append(await post(VICTIM, size, 60))
            await asyncio.sleep(pause * size)
        return {size: statistics.median(values) for size, values in times.items()}

    _, quiet = [await post_all(0.01) for _ in range(2)]  # The first one warms up.
    for _ in range(2):
        await post(ATTACKER, 600, 400)
    beside = await post_all(0.0)
    for size in _SIZES:
        name, ratio = f"{size} messages", beside[size] / quiet[size]
        table.add_row(name, number(quiet[size]), number(beside[size]), number(ratio))
        report.targets.append(Target(f"{name}, beside / alone", ratio, MOST_SLOWER_WRITE))
    for user in (VICTIM, ATTACKER):
        milliseconds = await ask(_SEARCHES[2], {"user_id": user, "query": f"letter {user}?"})
        table.add_row(f"search by {user}", "", number(milliseconds), "")
    for write in (None, post(VICTIM, 600, 120)):  # first, what has been written before
        begun = time.perf_counter()
        await (write or asyncio.sleep(0))
        while b'"unembedded":0' not in await connection.ask(search):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    table.add_row("rows embedded a second", number(600 / (time.perf_counter() - begun)), "", "")
    await connection.close()
    return table
