"""The cost of the HTTP service: the same calls over HTTP and in process.

    python benchmarks/http.py                            100,000 messages, 1, 16 and 64 clients
    python benchmarks/http.py --messages 5000 --seconds 1    half a minute, to see that it runs
    python benchmarks/http.py --postgres                 the same on PostgreSQL
    python benchmarks/http.py --attack                   others' responses during slow requests
    python benchmarks/http.py --bulk                     writes beside a backlog and searchers
    python benchmarks/http.py --attack --full            with 100,000 messages instead of 5,000

Starts `memrecall serve` on loopback with a key. Each client sends its next request when the last
one is answered. Each figure is shown with that of the same work in this process; one client
alternates between both, so that other load affects both equally. Vectors are random (searching them
takes as long); after the warm-up each question's vector is cached on both sides. Exits with 1 if a
target is missed.
"""

import argparse
import asyncio
import math
import os
import platform
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from rich.console import Console  # noqa: E402
from rich.table import Column, Table  # noqa: E402

from benchmarks.attack import ROWS_ATTACKER, VICTIM, measure_attacks, measure_bulk  # noqa: E402
from benchmarks.calls import USER, Question, all_calls, http_request, nothing  # noqa: E402
from benchmarks.corpus import Corpus, load_corpus  # noqa: E402
from benchmarks.databases import Place, new_place, opened  # noqa: E402
from benchmarks.fill import fill  # noqa: E402
from benchmarks.load import Client, Load, put_load, put_pairs  # noqa: E402
from benchmarks.postgres import new_databases, postgres  # noqa: E402
from benchmarks.report import Report, Target, number, say  # noqa: E402
from benchmarks.service import Checkout, Service  # noqa: E402
from memrecall.embedding import make_embedder  # noqa: E402
from memrecall.memory import Library  # noqa: E402

CLIENTS = (1, 16, 64)
# Milliseconds, at the median, with one client.
MOST_ADDED = {"range read": 1.5, "neighbours": 1.5}
MOST_ADDED_BY_SEARCH = 3.0
FULL, QUICK = 100_000, 5_000  # messages of one user
_SIDE = "p50 / p95 / p99 ms, CPU ms"
_OF_CALLS = f"clients, HTTP: a second, {_SIDE}, in process: a second, {_SIDE}, failed"
_OTHERS = "{}: quiet p99 ms, attacked, longest, ratio"
_OF_ATTACKS = f"{_OTHERS.format('/healthz')}, {_OTHERS.format('search')}, responses to the attack"
POSTERS, OWN_MESSAGES = [f"poster-{n}" for n in range(16)], 300


@dataclass(frozen=True, slots=True)
class Sides:
    """The service, and the library in this process, over the same database."""

    service: Service
    library: Library

    def local(self, questions: Sequence[Question], count: int) -> list[Client]:
        """Return the clients of the service without HTTP."""

        async def ask(number: int) -> None:
            await questions[number % len(questions)].run(self.library)

        return [ask] * count


async def measure(
    sides: Sides, questions: Sequence[Question], count: int, seconds: float
) -> tuple[Load, Load]:
    """Measure one row of the table: over HTTP and in process."""
    local = sides.local(questions, count)
    service = sides.service
    requests = [question.request(service.key) for question in questions]
    async with service.clients([requests], count) as remote:
        if count == 1:
            await warm_up(remote[0], local[0], len(questions))
            return await put_pairs(remote[0], local[0], seconds, service.cpu)
        return await put_load(remote, seconds, service.cpu), await put_load(local, seconds)


async def warm_up(there: Client, here: Client, questions: int) -> None:
    """Ask everything once, to load the indexes and cache the vectors of the questions."""
    for question in range(questions):
        await there(question)
        await here(question)


async def measure_all(
    report: Report, table: Table, sides: Sides, calls: dict[str, list[Question]], seconds: float
) -> None:
    """Measure every kind of call with every number of clients."""
    failed = 0
    for kind, questions in calls.items():
        table.add_section()
        for count in CLIENTS:
            say(f"{kind}, {count} clients")
            there, here = await measure(sides, questions, count, seconds)
            _tell(report, table, kind, count, there, here)
            failed += sum(there.failures.values()) if count == max(CLIENTS) else 0
            for reason, times in there.failures.items():
                report.notes.append(f"{kind}, {count} clients: {times} failed ({reason})")
            if count == 1:
                name = f"{kind}, one client: HTTP adds at the median"
                bound = MOST_ADDED.get(kind, MOST_ADDED_BY_SEARCH)
                report.targets.append(Target(name, _added(there, here), bound, unit=" ms"))
    report.targets.append(Target(f"failed requests with {max(CLIENTS)} clients", failed, 0))


def _added(there: Load, here: Load) -> float:
    """Return the milliseconds that HTTP adds, as the median of all questions."""
    pairs = zip(there.times, here.times, strict=True)
    return statistics.median([(far - near) * 1000 for far, near in pairs] or [math.nan])


def _tell(report: Report, table: Table, kind: str, count: int, there: Load, here: Load) -> None:
    cells = [kind if count == CLIENTS[0] else "", str(count)]
    for side, load in (("HTTP", there), ("in process", here)):
        figures = {f"p{p} ms": load.milliseconds(p) for p in (50, 95, 99)}
        figures |= {"requests/s": load.rate, "CPU ms": load.cpu_milliseconds}
        for name, value in figures.items():
            report.figures[f"{kind}, {count} clients, {side}: {name}"] = value
        times = " / ".join(number(load.milliseconds(p)) for p in (50, 95, 99))
        cells += [number(load.rate), times, number(load.cpu_milliseconds)]
    failed = sum(there.failures.values())
    report.figures[f"{kind}, {count} clients, HTTP: failed"] = failed
    table.add_row(*cells, str(failed))


async def measure_http(
    report: Report, place: Place, options: argparse.Namespace, corpus: Corpus
) -> Table:
    """Compare the service with calls in this process."""
    table = _table(options, "", "call", _OF_CALLS)
    turns = list(corpus.turns(options.messages))
    live = make_embedder("local")
    assert live is not None
    await fill(place, corpus, {USER: len(turns)})
    async with Checkout().serving(place) as service, opened(place, live) as library:
        calls = {"nothing": [nothing()], **all_calls(corpus, turns)}
        await measure_all(report, table, Sides(service, library), calls, options.seconds)
        report.notes.append(f"the server holds {service.megabytes():,.0f} MB when all was asked")
    await live.close()
    return table


async def attack(
    report: Report, place: Place, options: argparse.Namespace, corpus: Corpus
) -> Table:
    """Measure what others notice of adversarial requests."""
    table = _table(options, ", under attack", "attack", _OF_ATTACKS)
    users = {VICTIM: min(300, options.messages), ROWS_ATTACKER: options.messages}
    await fill(place, corpus, users)
    async with Checkout().serving(place) as service:
        await measure_attacks(report, table, service, options.seconds)
    return table


async def measure_posts(service: Service, corpus: Corpus, seconds: float) -> float:
    """Return the rate of posts beside as many searchers as posters, as a share of that alone."""
    turns, posts, searches = list(corpus.turns(OWN_MESSAGES)), [], []
    for user in POSTERS:
        path, asked = f"/v1/users/{user}/messages", all_calls(corpus, turns, user)["lexical"]
        bodies = [{"messages": [{"role": "user", "content": turn.text}]} for turn in turns]
        posts.append([http_request("POST", path, service.key, body) for body in bodies])
        searches.append([question.request(service.key) for question in asked])
    rates = {0: 0.0, len(POSTERS): 0.0}
    for beside in [0, len(POSTERS)] * 3:
        async with (
            service.clients(posts, len(posts)) as post,
            service.clients(searches, beside) as search,
        ):
            load, _ = await asyncio.gather(put_load(post, seconds), put_load(search, seconds))
        rates[beside] += load.rate
    return rates[len(POSTERS)] / rates[0]


@asynccontextmanager
async def new_database(server: str | None) -> AsyncIterator[Place]:
    """Yield a place with a new database: a SQLite file, or a database of a PostgreSQL server."""
    async with AsyncExitStack() as stack:
        location = None
        if server is not None:
            names = [f"memrecall_benchmark_{os.getpid()}"]
            (location,) = await stack.enter_async_context(new_databases(server, names))
        yield stack.enter_context(new_place(location))


async def run(options: argparse.Namespace, server: str | None) -> tuple[Report, Table]:
    """Measure what the options ask for."""
    corpus = load_corpus(options.data, REPOSITORY)
    report = Report([options.messages])
    async with new_database(server) as place:
        if options.attack:
            table = await attack(report, place, options, corpus)
        elif options.bulk:
            await fill(place, corpus, dict.fromkeys(POSTERS, OWN_MESSAGES))
            async with Checkout().serving(place) as service:
                table = await measure_bulk(report, service)
                share = await measure_posts(service, corpus, options.seconds)
            name, bound = "16 posters, beside searchers / alone", 0.5 if server is None else 1 / 3
            report.targets.append(Target(name, share, bound, at_most=False))
        else:
            table = await measure_http(report, place, options, corpus)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    report.notes.append(
        f"{os.cpu_count()} cores, shared by server and clients; Python {platform.python_version()};"
        f" load after {load}; texts: {corpus.origin}"
    )
    return report, table


def _title(options: argparse.Namespace) -> str:
    database = "SQLite" if options.postgres is None else "PostgreSQL"
    return f"memrecall: HTTP, {options.messages:,} messages on {database}"


def _table(options: argparse.Namespace, subject: str, first: str, headings: str) -> Table:
    columns = [Column(heading, justify="right") for heading in headings.split(", ")]
    title = f"{_title(options)}{subject}"
    return Table(first, *columns, title=title, title_justify="left")


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--attack", action="store_true", help="measure others beside an attacker")
    kinds.add_argument("--bulk", action="store_true", help="measure writes beside a backlog")
    parser.add_argument("--full", action="store_true", help=f"with {FULL:,} messages of one user")
    parser.add_argument("--messages", type=int, help="of one user")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each cell of the table")
    parser.add_argument("--postgres", nargs="?", const="", metavar="URL", help="instead of SQLite")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    if options.messages is None:
        is_quick = (options.attack or options.bulk) and not options.full
        options.messages = QUICK if is_quick else FULL
    return options


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    options = _read_options()
    if options.postgres is None:
        report, table = asyncio.run(run(options, None))
    else:
        with postgres(options.postgres) as location:
            if location is None:
                print("PostgreSQL is not installed")
                return 1
            report, table = asyncio.run(run(options, location))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
