"""The service of this checkout beside that of another one: the same calls in turn, and ratios."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.calls import USER, Question, all_calls, post
from benchmarks.corpus import Corpus, Turn
from benchmarks.databases import Place
from benchmarks.load import Client, Connection, Load, put_load
from benchmarks.report import Report, Target, number, say
from benchmarks.service import Checkout, Service

OTHER, THIS = "other", "this"
POSTERS = SEARCHERS = 16
SLICES = 4  # in which both sides take turns, so that other load of the machine affects both
OTHER_USERS = 16
# The clients of the mixed load by call, 64 in all.
MIX = {"post": 16, "range read": 16, "neighbours": 8, "lexical": 16, "semantic": 8}
# What this checkout may take at most, relative to the other one, which took so many milliseconds.
LEXICAL_RATIO = 6 / 14
_days = itertools.count()

Loads = dict[str, Load]  # by side
Work = Callable[[Service, float], Awaitable[dict[str, Load]]]  # returns a load by name


def user_name(number: int) -> str:
    """Return one of the users with few messages."""
    return f"user-{number}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two services with the same messages."""

    services: Mapping[str, Service]
    report: Report
    table: Table
    seconds: float

    async def run(self, name: str, work: Work) -> dict[str, Loads]:
        """Put the same load on both sides in turn; return the loads by name and side."""
        say(name)
        loads: dict[str, Loads] = defaultdict(lambda: {OTHER: Load(), THIS: Load()})
        for _ in range(SLICES):
            for side, service in self.services.items():
                for part, load in (await work(service, self.seconds / SLICES)).items():
                    loads[part][side].add(load)
        for part, sides in loads.items():
            for side, load in sides.items():
                for reason, times in load.failures.items():
                    label = f"{name}, {part}" if part else name
                    self.report.notes.append(f"{label}, {side}: {times} failed ({reason})")
        return loads

    def show(self, name: str, other: float, this: float, bound: float = 0.0) -> None:
        """Add a row, and its target if there is a bound: at most below 1, at least above it."""
        figures = {OTHER: other, THIS: this, "this / other": this / other if other else 0.0}
        for side, value in figures.items():
            self.report.figures[f"{name}: {side}"] = value
        self.table.add_row(name, *map(number, figures.values()))
        if bound:
            ratio = figures["this / other"]
            target = Target(f"{name}: this / other", ratio, bound, at_most=bound < 1)
            self.report.targets.append(target)


async def compare_reads(comparison: Comparison, calls: dict[str, list[Question]]) -> None:
    """Compare reads of a user with many messages, by one client and by 16."""
    for kind, questions in calls.items():
        for count in (1, SEARCHERS):

            async def work(
                service: Service,
                seconds: float,
                questions: list[Question] = questions,
                count: int = count,
            ) -> dict[str, Load]:
                requests = [question.request(service.key) for question in questions]
                async with service.clients([requests], count) as clients:
                    await clients[0](0)  # loads the index after the other side's turn
                    return {"": await put_load(clients, seconds, service.cpu)}

            name = f"{kind}, {count} clients"
            sides = (await comparison.run(name, work))[""]
            bound = LEXICAL_RATIO if (kind, count) == ("lexical", 1) else 0.0
            medians = [sides[side].milliseconds(50) for side in (OTHER, THIS)]
            comparison.show(f"{name}, p50 ms", medians[0], medians[1], bound)


@asynccontextmanager
async def posters(service: Service, count: int) -> AsyncIterator[list[Client]]:
    """Yield clients that post a new message each time, each for its own user."""
    connections = [await Connection.open(service.url) for _ in range(count)]

    def client(user: str, connection: Connection) -> Client:
        async def send(_number: int) -> None:
            day = next(_days)
            text = f"On day {day} I bought {day * 7 % 1001} apples and saw a heron."
            await connection.ask(post(user, text).request(service.key))

        return send

    try:
        yield [client(user_name(n), connection) for n, connection in enumerate(connections)]
    finally:
        for connection in connections:
            await connection.close()


async def compare_posts(comparison: Comparison, searches: Sequence[Sequence[Question]]) -> None:
    """Compare posts per second: one poster, 16, and 16 beside 16 searchers."""
    rates: dict[str, float] = {}
    for name, count, beside in (
        ("1 poster", 1, 0),
        (f"{POSTERS} posters", POSTERS, 0),
        (f"{POSTERS} posters beside {SEARCHERS} searchers", POSTERS, SEARCHERS),
    ):

        async def work(
            service: Service, seconds: float, count: int = count, beside: int = beside
        ) -> dict[str, Load]:
            requests = [[q.request(service.key) for q in own] for own in searches]
            async with posters(service, count) as post, service.clients(requests, beside) as search:
                loads = await asyncio.gather(
                    put_load(post, seconds, service.cpu), put_load(search, seconds)
                )
            return {"posts": loads[0], "searches": loads[1]}

        loads = await comparison.run(name, work)
        rates[name] = loads["posts"][THIS].rate
        bound = 10.0 if count > 1 else 0.0
        comparison.show(
            f"{name}, posts a second", loads["posts"][OTHER].rate, loads["posts"][THIS].rate, bound
        )
        if beside:
            searched = loads["searches"]
            comparison.show(f"{name}, searches a second", searched[OTHER].rate, searched[THIS].rate)
    _, alone, beside_searchers = rates.values()
    share = beside_searchers / alone if alone else 0.0
    target = Target(f"{POSTERS} posters: beside searchers / alone", share, 0.5, at_most=False)
    comparison.report.targets.append(target)


async def compare_mix(comparison: Comparison, calls: Sequence[dict[str, list[Question]]]) -> None:
    """Compare the times of 64 clients that read and write, each for one of 64 users."""

    async def work(service: Service, seconds: float) -> dict[str, Load]:
        users = iter(range(sum(MIX.values())))
        async with AsyncExitStack() as stack:
            kinds: dict[str, list[Client]] = {}
            for kind, count in MIX.items():
                if kind == "post":
                    kinds[kind] = await stack.enter_async_context(posters(service, count))
                    continue
                own = [calls[next(users) % len(calls)][kind] for _ in range(count)]
                requests = [[question.request(service.key) for question in qs] for qs in own]
                kinds[kind] = await stack.enter_async_context(service.clients(requests, count))
            loads = await asyncio.gather(*(put_load(c, seconds) for c in kinds.values()))
        return dict(zip(kinds, loads, strict=True))

    name = f"{sum(MIX.values())} clients, mixed"
    for kind, sides in (await comparison.run(name, work)).items():
        for percent in (50, 99):
            figures = [sides[side].milliseconds(percent) for side in (OTHER, THIS)]
            comparison.show(f"{name}: {kind}, p{percent} ms", figures[0], figures[1])
        spread = sides[THIS].milliseconds(99) / sides[THIS].milliseconds(50)
        comparison.report.targets.append(Target(f"{name}: {kind}, p99 / p50", spread, 8.0))


async def compare_large_user(
    comparison: Comparison,
    calls: Sequence[dict[str, list[Question]]],
    large: dict[str, list[Question]],
) -> None:
    """Compare the p99 of other users beside a user with many messages with that without."""
    kinds = ("range read", "lexical")

    async def work(service: Service, seconds: float) -> dict[str, Load]:
        requests = [
            [question.request(service.key) for kind in kinds for question in own[kind]]
            for own in calls[:OTHER_USERS]
        ]
        heavy = [[q.request(service.key) for qs in zip(*large.values(), strict=False) for q in qs]]
        async with service.clients(requests, OTHER_USERS) as others:
            alone = await put_load(others, seconds)
            async with service.clients(heavy, 1) as heavy_clients:
                await heavy_clients[0](0)
                beside, _ = await asyncio.gather(
                    put_load(others, seconds), put_load(heavy_clients, seconds)
                )
        return {"without": alone, "beside": beside}

    name = f"{OTHER_USERS} other users"
    loads = await comparison.run(name, work)
    for part, sides in loads.items():
        figures = [sides[side].milliseconds(99) for side in (OTHER, THIS)]
        comparison.show(f"{name} {part} a large one, p99 ms", figures[0], figures[1])
    ratio = loads["beside"][THIS].milliseconds(99) / loads["without"][THIS].milliseconds(99)
    comparison.report.targets.append(
        Target(f"{name}: p99 beside a user with many messages / without", ratio, 1.5)
    )


async def compare(
    report: Report,
    table: Table,
    places: Mapping[str, Place],
    against: Path,
    corpus: Corpus,
    turns: Sequence[Turn],
    *,
    data: Path,
    own_messages: int,
    seconds: float,
) -> None:
    """Fill two databases, serve each by its checkout, and compare them."""
    checkouts = {OTHER: Checkout(against), THIS: Checkout()}
    small = {user_name(n): own_messages for n in range(sum(MIX.values()))}
    for side, checkout in checkouts.items():
        say(
            f"storing {len(turns):,} messages of one user, {own_messages} of each other one: {side}"
        )
        await checkout.fill(places[side], data, {USER: len(turns), **small})
    large_calls = all_calls(corpus, turns)
    small_calls = [all_calls(corpus, turns[:own_messages], user) for user in small]
    async with AsyncExitStack() as stack:
        services = {
            side: await stack.enter_async_context(checkout.serving(places[side]))
            for side, checkout in checkouts.items()
        }
        comparison = Comparison(services, report, table, seconds)
        await compare_reads(comparison, large_calls)
        await compare_posts(comparison, [own["lexical"] for own in small_calls])
        await compare_mix(comparison, small_calls)
        await compare_large_user(comparison, small_calls, large_calls)
