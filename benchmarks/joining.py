"""What clients notice when a service leaves a cluster and joins it again.

    python benchmarks/joining.py                      four services behind nginx, plain PostgreSQL
    python benchmarks/joining.py --proxy haproxy      … behind another proxy
    python benchmarks/joining.py --citus PG_FOLDER    … on three nodes with Citus

Starts `deploy/local-cluster`. Clients search for all users in turn, each as soon as the last answer
is there. The busiest service gets SIGTERM, drains, ends and is started again. Its users move to
the other services, which load their indexes from snapshots, and back. All of that and the clients
share the cores of one machine. Exits with 1 if a request fails.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

import psutil  # noqa: E402

from benchmarks.calls import http_request, words_of  # noqa: E402
from benchmarks.corpus import load_corpus  # noqa: E402
from benchmarks.load import FAILURES, Connection  # noqa: E402
from benchmarks.local_cluster import (  # noqa: E402
    PROXIES,
    LocalCluster,
    is_alive,
    postgresql_folder,
    run_local_cluster,
)
from benchmarks.report import Figures, percentile, print_figures, say  # noqa: E402

SEARCH = "/v1/messages/lexical_search"
BATCH = 500
PATIENCE = 120.0


@dataclass(slots=True)
class Log:
    """When each response arrived, how long it took, and what failed."""

    responses: list[tuple[float, float]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def figures(self, start: float, end: float) -> dict[str, float]:
        """Return the figures of the responses between two times."""
        times = [seconds for at, seconds in self.responses if start <= at < end] or [float("nan")]
        return {
            "seconds": end - start,
            "requests/s": len(times) / (end - start),
            "p50 ms": percentile(times, 50) * 1000,
            "p99 ms": percentile(times, 99) * 1000,
            "longest ms": max(times) * 1000,
        }


@dataclass(frozen=True, slots=True)
class Users:
    """Made-up users with the same number of messages each."""

    names: list[str]
    texts: list[str]

    async def fill(self, cluster: LocalCluster) -> None:
        """Store all messages through the proxy."""
        connection = await Connection.open(cluster.url)
        for name in self.names:
            for start in range(0, len(self.texts), BATCH):
                batch = [
                    {"role": "user", "content": text} for text in self.texts[start : start + BATCH]
                ]
                path = f"/v1/users/{name}/messages"
                body = {"messages": batch}
                await connection.ask(http_request("POST", path, cluster.key, body, name))
        await connection.close()

    def searches(self, cluster: LocalCluster) -> list[bytes]:
        """Return one search for each user."""
        queries = [query for query in map(words_of, self.texts) if query]
        bodies = [
            {"user_id": name, "query_text": query, "page_size": 10}
            for name, query in zip(self.names, queries, strict=False)
        ]
        return [
            http_request("POST", SEARCH, cluster.key, body, name)
            for name, body in zip(self.names, bodies, strict=True)
        ]


@asynccontextmanager
async def searching(cluster: LocalCluster, users: Users, clients: int) -> AsyncIterator[Log]:
    """Search for all users in turn while the block runs."""
    log, is_over, numbers = Log(), asyncio.Event(), count()
    requests = users.searches(cluster)

    async def ask() -> None:
        connection = await Connection.open(cluster.url)
        while not is_over.is_set():
            sent = time.perf_counter()
            try:
                async with asyncio.timeout(PATIENCE):
                    await connection.ask(requests[next(numbers) % len(requests)])
            except FAILURES as error:
                log.failures[str(error) or type(error).__name__] += 1
                connection = await Connection.open(cluster.url)
            else:
                now = time.perf_counter()
                log.responses.append((now, now - sent))
        await connection.close()

    tasks = [asyncio.create_task(ask()) for _ in range(clients)]
    try:
        yield log
    finally:
        is_over.set()
        await asyncio.gather(*tasks)


async def find_busiest(cluster: LocalCluster) -> int:
    """Return the service that has answered most searches."""
    counts = []
    for url in cluster.services:
        connection = await Connection.open(url)
        text = (await connection.ask(http_request("GET", "/metrics", cluster.key))).decode()
        await connection.close()
        lines = [line for line in text.splitlines() if f'route="{SEARCH}"' in line]
        counts.append(sum(float(x.split()[-1]) for x in lines if "requests_total" in x))
    return counts.index(max(counts))


async def is_ready(url: str) -> bool:
    """Return True if a service answers and is ready."""
    try:
        connection = await Connection.open(url)
        await connection.ask(http_request("GET", "/readyz", ""))
        await connection.close()
    except FAILURES:
        return False
    return True


async def has_ended(process: psutil.Process) -> bool:
    """Return True if a process does not run any more."""
    return not is_alive(process)


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds; fail after two minutes."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110 -- of another process
            await asyncio.sleep(0.05)


async def measure(cluster: LocalCluster, users: Users, options: argparse.Namespace) -> Log:
    """Let the busiest service leave and join under load; print the figures of each stage."""
    say(f"storing {len(users.texts):,} messages of each of {len(users.names)} users")
    await users.fill(cluster)
    connection = await Connection.open(cluster.url)
    for request in users.searches(cluster):
        await connection.ask(request)  # loads each index and saves its snapshot
    await connection.close()
    async with searching(cluster, users, options.clients) as log:
        marks = [time.perf_counter()]
        await asyncio.sleep(options.seconds)
        number = await find_busiest(cluster)
        marks.append(time.perf_counter())
        leaving = cluster.service_process(number)
        leaving.terminate()
        await wait_until(partial(has_ended, leaving))
        marks.append(time.perf_counter())
        await wait_until(partial(is_ready, cluster.services[number]))
        marks.append(time.perf_counter())
        await asyncio.sleep(options.seconds / 2)
        marks.append(time.perf_counter())
        await asyncio.sleep(options.seconds)
        marks.append(time.perf_counter())
    stages = ("before", "it drains and ends", "it is away and starts", "it has joined", "after")
    rows: Figures = {
        stage: log.figures(*ends) for stage, ends in zip(stages, pairwise(marks), strict=True)
    }
    title = f"{options.proxy}, {len(users.names)} users with {len(users.texts):,} messages"
    print_figures(f"{title}, {options.clients} clients", rows)
    print(f"requests {len(log.responses):,}, failed {sum(log.failures.values())} {log.failures}")
    return log


def main() -> int:
    """Measure; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--proxy", choices=PROXIES, default="nginx")
    parser.add_argument("--citus", type=Path, metavar="PG_FOLDER")
    parser.add_argument("--users", type=int, default=24)
    parser.add_argument("--messages", type=int, default=600, help="of each user")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15.0, help="before and after")
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data")
    options = parser.parse_args()
    texts = list(load_corpus(options.data, REPOSITORY).texts(options.messages))
    users = Users([f"user-{number}" for number in range(options.users)], texts)
    arguments = [options.citus] if options.citus else [postgresql_folder(), "--plain"]
    with run_local_cluster(*arguments, "--proxy", options.proxy) as cluster:
        log = asyncio.run(measure(cluster, users, options))
    return 1 if log.failures else 0


if __name__ == "__main__":
    sys.exit(main())
