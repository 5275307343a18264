"""The cost of the HTTP service: the same calls over HTTP and in process.

    python benchmarks/http.py                            100,000 messages, 1, 16 and 64 clients
    python benchmarks/http.py --messages 5000 --seconds 1    half a minute, to see that it runs
    python benchmarks/http.py --postgres                 the same on PostgreSQL

Starts `memrecall serve` on loopback with a key. Each client sends its next request when the last
one is answered. Each figure is shown with that of the same work in this process; one client
alternates between both, so that other load affects both equally. Vectors are random (searching them
takes as long); after the warm-up each question's vector is cached on both sides. Exits with 1 if a
target is missed.
"""

import argparse
import asyncio
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

import psutil  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import track  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks.calls import USER, Question, all_calls, nothing  # noqa: E402
from benchmarks.corpus import Turn, load_corpus  # noqa: E402
from benchmarks.databases import Place, in_batches, new_place, opened, write  # noqa: E402
from benchmarks.load import Client, Connection, Load, put_load, put_pairs  # noqa: E402
from benchmarks.postgres import postgres  # noqa: E402
from benchmarks.report import Report, Target, number, say  # noqa: E402
from benchmarks.vectors import StoredVectors, made_up_vectors  # noqa: E402
from memrecall.embedding import make_embedder  # noqa: E402
from memrecall.memory import Library  # noqa: E402
from memrecall.store import Grant  # noqa: E402

CLIENTS = (1, 16, 64)
MOST_ADDED = 3.0  # milliseconds, at the median, with one client
_SERVE = "from memrecall.cli import main; main()"


@dataclass(frozen=True, slots=True)
class Sides:
    """The service, and the library in this process, over the same database."""

    url: str
    server: psutil.Process
    key: str
    library: Library

    def server_cpu(self) -> float:
        """Return the server's CPU time in seconds."""
        used = self.server.cpu_times()
        return float(used.user + used.system)

    @asynccontextmanager
    async def remote(
        self, questions: Sequence[Question], count: int
    ) -> AsyncIterator[list[Client]]:
        """Return clients with one connection each."""
        requests = [question.request(self.key) for question in questions]
        connections = [await Connection.open(self.url) for _ in range(count)]

        def client(connection: Connection) -> Client:
            async def ask(number: int) -> None:
                await connection.ask(requests[number % len(requests)])

            return ask

        try:
            yield [client(connection) for connection in connections]
        finally:
            for connection in connections:
                await connection.close()

    def local(self, questions: Sequence[Question], count: int) -> list[Client]:
        """Return the same clients without HTTP."""

        async def ask(number: int) -> None:
            await questions[number % len(questions)].run(self.library)

        return [ask] * count


async def measure(
    sides: Sides, questions: Sequence[Question], count: int, seconds: float
) -> tuple[Load, Load]:
    """Measure one row of the table: over HTTP and in process."""
    local = sides.local(questions, count)
    async with sides.remote(questions, count) as remote:
        if count == 1:
            await warm_up(remote[0], local[0], len(questions))
            return await put_pairs(remote[0], local[0], seconds, sides.server_cpu)
        return await put_load(remote, seconds, sides.server_cpu), await put_load(local, seconds)


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
                report.targets.append(Target(name, _added(there, here), MOST_ADDED, unit=" ms"))
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


async def fill(place: Place, turns: Sequence[Turn], embedder: StoredVectors) -> str:
    """Store the messages and create a key for their user."""
    async with opened(place, embedder) as library:
        batches = list(in_batches(enumerate(turns)))
        console = Console(stderr=True)
        for batch in track(batches, f"storing {len(turns):,} messages", console=console):
            await write(library, USER, [turn for _, turn in batch], batch[0][0])
        _, key = await library.store.keys.create(Grant(frozenset({USER})))
        return key


@asynccontextmanager
async def serving(place: Place) -> AsyncIterator[tuple[str, psutil.Process]]:
    """Start a server process; yield its address."""
    log = place.folder / "server.log"
    own = {
        "MEMRECALL_CONFIG": os.devnull,
        "MEMRECALL_EMBEDDER": "local",
        "MEMRECALL_MODEL": "",
        "MEMRECALL_KEY_RATE": "0",  # one key sends everything
    }
    with log.open("w") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _SERVE, "serve"),
            *("--db", place.location, "--port", "0", "--json"),
            env={**os.environ, **own, "MEMRECALL_CACHE_DIR": str(place.folder)},
            cwd=REPOSITORY,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        assert line, log.read_text("utf-8")
        yield json.loads(line)["url"], psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def run(options: argparse.Namespace, location: str | None) -> tuple[Report, Table]:
    """Fill a database, serve it, measure."""
    corpus = load_corpus(options.data, REPOSITORY)
    turns = list(corpus.turns(options.messages))
    live = make_embedder("local")
    assert live is not None
    report, table = Report([options.messages]), _table(options.messages, location)
    try:
        await live.embed(["dimensions"])
        matrix = made_up_vectors(len(turns), live.dimensions)
        known = StoredVectors([turn.text for turn in turns], matrix, live)
        with new_place(location) as place:
            key = await fill(place, turns, known)
            async with serving(place) as (url, server), opened(place, live) as library:
                sides = Sides(url, server, key, library)
                calls = {"nothing": [nothing()], **all_calls(corpus, turns)}
                await measure_all(report, table, sides, calls, options.seconds)
                memory = server.memory_info().rss / 1e6
                report.notes.append(f"the server holds {memory:,.0f} MB when all was asked")
                if location is not None:
                    await library.erase_user(USER)
    finally:
        await live.close()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    report.notes.append(
        f"{os.cpu_count()} cores, shared by server and clients; Python {platform.python_version()};"
        f" load after {load}; texts: {corpus.origin}"
    )
    return report, table


def _table(messages: int, location: str | None) -> Table:
    title = f"memrecall: HTTP, {messages:,} messages on {'PostgreSQL' if location else 'SQLite'}"
    table = Table(title=title, title_justify="left")
    table.add_column("call")
    headings = (
        "clients",
        "HTTP: a second",
        "p50 / p95 / p99 ms",
        "CPU ms",
        "in process: a second",
        "p50 / p95 / p99 ms",
        "CPU ms",
        "failed",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data")
    parser.add_argument("--messages", type=int, default=100_000, help="of one user")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each cell of the table")
    parser.add_argument("--postgres", nargs="?", const="", metavar="URL", help="instead of SQLite")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args()


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
    for target in report.targets:
        measured, bound, verdict = target.row()
        print(f"{verdict:<8} {target.name}: {measured}, target {bound}")
    print(*report.notes, sep="\n")
    if options.json:
        report.write(options.json)
    return int(any(target.verdict == "MISSED" for target in report.targets))


if __name__ == "__main__":
    sys.exit(main())
