"""The cost of a distributed database: the same requests on a Citus cluster and on one PostgreSQL.

    python benchmarks/cluster.py                         1,000 and 100,000 users, 20 messages each
    python benchmarks/cluster.py --users 100 1000        a minute, to see that it runs
    python benchmarks/cluster.py --json FILE             the figures as JSON

Builds Citus from CITUS_SOURCE (once, into .citus) and starts a coordinator and two workers on
loopback; the plain database is on the server of the coordinator. Every request is sent to all
databases in turn, so that other load affects them equally; figures are medians. Exits with 1 if a
target is missed.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

import asyncpg  # noqa: E402
import numpy as np  # noqa: E402
from sqlalchemy import event  # noqa: E402
from sqlalchemy.engine import make_url  # noqa: E402

from benchmarks.report import Figures, Target, print_figures, say, write_figures  # noqa: E402
from memrecall.memory import Library  # noqa: E402
from memrecall.scope import Scope  # noqa: E402
from memrecall.search import SearchRequest  # noqa: E402
from memrecall.settings import Settings  # noqa: E402
from memrecall.store.database.distribution import distribute  # noqa: E402
from memrecall.store.texts import make_search_text  # noqa: E402
from memrecall.types import NewMessage, Role  # noqa: E402
from tests.cluster.nodes import Cluster, find_source, start_cluster  # noqa: E402

MESSAGES = 20
LOADED = 10  # users whose indexes are loaded
PLAIN, SMALL, LARGE = "one PostgreSQL", "cluster", "cluster, more users"
TOPICS = ("tea", "the dentist", "Lisbon", "running", "花生", "火锅", "the piano", "a new job")
MOST_SEARCH, MOST_WRITE = 1.3, 2.0
MOST_GROWTH = 1.15  # of a request with a hundred times as many users: noise
_USERS = """
INSERT INTO users (user_id, agent_id, version, epoch)
SELECT 'user' || n, 'default', 2 * $1::int, 'e' FROM generate_series($2::int, $3::int) n
"""
_SESSIONS = """
INSERT INTO sessions (user_id, session_id, agent_id, last_sequence_no, last_create_time)
SELECT 'user' || n, 'default', 'default', $1::int, '2026-01-01Z'::timestamptz + interval '1 day'
FROM generate_series($2::int, $3::int) n
"""
_MESSAGES = """
INSERT INTO messages (user_id, message_id, agent_id, session_id, role, content, ts, create_time,
                      sequence_no, search_text, change_no)
SELECT 'user' || n, 'm' || i, 'default', 'default', 'user', content,
       '2026-01-01Z'::timestamptz + i * interval '1 minute',
       '2026-01-01Z'::timestamptz + i * interval '1 minute', i, search_text, i
FROM generate_series($3::int, $4::int) n,
     unnest($1::text[], $2::text[]) WITH ORDINALITY AS said (content, search_text, i)
"""
_VECTORS = """
INSERT INTO vectors (user_id, kind, key, model, dimensions, vector, change_no)
SELECT 'user' || n, 'message', 'm' || i, $2, $3::int, packed, cardinality($1::bytea[]) + i
FROM generate_series($4::int, $5::int) n, unnest($1::bytea[]) WITH ORDINALITY AS v (packed, i)
"""
_PART = 2_000  # users of a transaction


@dataclass
class Side:
    """One database under measurement."""

    library: Library
    users: int
    strangers: Iterator[int]  # users whose indexes are not loaded
    seconds: dict[str, list[float]] = field(default_factory=dict)
    statements: dict[str, int] = field(default_factory=dict)

    async def measure(self, name: str, request: Callable[[Library, int], Awaitable[Any]]) -> None:
        """Send a request of any of the users and note how long it took."""
        user = next(self.strangers) if request is search else random.randint(1, self.users)
        begin = time.perf_counter()
        await request(self.library, user)
        self.seconds.setdefault(name, []).append(time.perf_counter() - begin)

    def median(self, name: str) -> float:
        """Return the median of a request in milliseconds."""
        return 1000 * statistics.median(self.seconds[name])


async def search(library: Library, user: int) -> None:
    """Search messages and memories."""
    await library.search(Scope(f"user{user}"), SearchRequest(f"{random.choice(TOPICS)}?", limit=5))


async def search_again(library: Library, user: int) -> None:
    """Search one of the first users, whose indexes are loaded after a few rounds."""
    await search(library, user % LOADED + 1)


async def write(library: Library, user: int) -> None:
    """Store one message."""
    message = NewMessage(role=Role.USER, content=f"I talked about {random.choice(TOPICS)}.")
    await library.add_messages(Scope(f"user{user}", session_id="default"), [message])


REQUESTS = {"first search": search, "search": search_again, "write": write}


async def fill(location: str, library: Library, users: int) -> None:
    """Store made-up users with their messages and vectors."""
    assert library.embedder is not None
    await library.vectors.prepare()
    await library.store.ensure_user(Scope("user0"))
    said = [f"I talked about {TOPICS[n % len(TOPICS)]} with friend {n}." for n in range(MESSAGES)]
    matrix = (await library.embedder.embed(said)).astype(np.float16)
    packed = [row.tobytes() for row in matrix]
    texts = [make_search_text(text) for text in said]
    model = (library.embedder.model, matrix.shape[1])
    url = make_url(location).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await asyncpg.connect(url)
    try:
        for first in range(1, users + 1, _PART):
            part = (first, min(first + _PART - 1, users))
            async with connection.transaction():
                await connection.execute(_USERS, MESSAGES, *part)
                await connection.execute(_SESSIONS, MESSAGES, *part)
                await connection.execute(_MESSAGES, said, texts, *part)
                await connection.execute(_VECTORS, packed, *model, *part)
            if first % (10 * _PART) == 1:
                say(f"{part[1]:,} of {users:,} users")
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


async def open_side(
    stack: AsyncExitStack, cluster: Cluster, users: int, *, distributed: bool
) -> Side:
    """Return a filled database, on the cluster or on its coordinator alone."""
    location = cluster.coordinator.location(cluster.create(distributable=distributed))
    settings = Settings(db=location, embedder="hash", snapshots=False)
    library = await stack.enter_async_context(await Library.open(settings))
    if distributed:
        await distribute(library.store.database)
    await fill(location, library, users)
    return Side(library, users, cycle(random.sample(range(LOADED + 1, users + 1), users - LOADED)))


async def count_statements(side: Side) -> None:
    """Count the statements of each request; the index is loaded before all but the first."""
    for name, request in REQUESTS.items():
        for _ in range(2):
            await search(side.library, 1)
            await side.library.vectors.settle()
        statements: list[str] = []

        def note(_c: Any, _u: Any, statement: str, *_: Any, into: list[str] = statements) -> None:
            into.append(statement)

        database = side.library.store.database
        engines = (database.read_engine, database.write_engine)
        for engine in engines:
            event.listen(engine, "before_cursor_execute", note)
        # `search_again` adds one to a number below the number of loaded users.
        user = {search: next(side.strangers), search_again: 0}.get(request, 1)
        await request(side.library, user)
        side.statements[name] = len(statements)
        for engine in engines:
            event.remove(engine, "before_cursor_execute", note)
        await side.library.vectors.settle()


async def measure(cluster: Cluster, counts: list[int], rounds: int) -> tuple[Figures, list[Target]]:
    """Fill the databases, send the requests in turn and return the figures."""
    async with AsyncExitStack() as stack:
        sides = {
            PLAIN: await open_side(stack, cluster, counts[0], distributed=False),
            SMALL: await open_side(stack, cluster, counts[0], distributed=True),
            LARGE: await open_side(stack, cluster, counts[1], distributed=True),
        }
        for side in sides.values():
            await count_statements(side)
        say("measuring")
        for number in range(rounds + 20):
            if number == 20:  # connections are open and statements prepared by now
                for side in sides.values():
                    side.seconds.clear()
            for name, request in REQUESTS.items():
                for side in random.sample(list(sides.values()), len(sides)):
                    await side.measure(name, request)
                    await side.library.vectors.settle()
    figures = {
        label: {
            "users": float(side.users),
            **{f"{name} ms": side.median(name) for name in REQUESTS},
            **{f"{name} statements": float(side.statements[name]) for name in REQUESTS},
        }
        for label, side in sides.items()
    }
    return figures, _judge(sides)


def _judge(sides: dict[str, Side]) -> list[Target]:
    targets: list[Target] = []
    for name, most in (
        ("first search", MOST_SEARCH),
        ("search", MOST_SEARCH),
        ("write", MOST_WRITE),
    ):
        ratio = sides[SMALL].median(name) / sides[PLAIN].median(name)
        targets.append(Target(f"{name}: cluster over one PostgreSQL", ratio, most))
        growth = sides[LARGE].median(name) / sides[SMALL].median(name)
        targets.append(Target(f"{name}: more users over fewer", growth, MOST_GROWTH))
        added = sides[SMALL].statements[name] - sides[PLAIN].statements[name]
        targets.append(Target(f"{name}: statements that the cluster adds", added, 0))
    return targets


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--users", type=int, nargs=2, default=[1_000, 100_000])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    source = find_source()
    if source is None:
        sys.exit("there is no Citus to build: set CITUS_SOURCE")
    with start_cluster(source) as cluster:
        figures, targets = asyncio.run(measure(cluster, options.users, options.rounds))
    print_figures("Medians of alternating requests", figures)
    if options.json:
        write_figures(options.json, {"cluster": figures})
    for target in targets:
        print(target.name, *target.row(), sep="  ")
    sys.exit(any(target.verdict == "MISSED" for target in targets))


if __name__ == "__main__":
    main()
