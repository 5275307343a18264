"""The cost of a user's searches in a small and in a large database."""

import random
from collections.abc import Sequence

from benchmarks.corpus import Corpus, Turn
from benchmarks.databases import BATCH, Place, in_batches, new_place, opened
from benchmarks.probe import median_search
from benchmarks.report import Report, Stopwatch, Target, Time, percentile, say
from benchmarks.speed import USER, search_times
from benchmarks.vectors import StoredVectors
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import SearchEngine, SearchRequest
from memrecall.search.request import Mode
from memrecall.store import ScopedMessage
from memrecall.store.messages import write_messages
from memrecall.types import NewMessage, Role

OTHERS = 1_000
OWN = 1_000
GROWTH = "growth: a user's 1,000 messages among others'"
MILLION = "one database for 1,000 users, no embedding"
_BOUND = 1.5


async def measure_growth(
    report: Report,
    corpus: Corpus,
    embedder: StoredVectors,
    questions: Sequence[str],
    *,
    sizes: tuple[int, int],
    repeats: int,
    also_million: bool,
) -> None:
    """Measure a user's costs with few and with many messages of others, and their ratios."""
    costs: list[dict[str, float]] = []
    for others in sizes:
        with new_place() as place:
            await _fill(report, corpus, embedder, place, others)
            costs.append(await _measure_user(place, embedder, questions, repeats))
            if also_million and others == max(sizes):
                await _measure_million(report, place, questions, others)
    for name in costs[0]:
        small, large = costs[0][name], costs[1][name]
        for others, value in zip(sizes, (small, large), strict=True):
            report.add(GROWTH, f"{name}, {others:,} of others", value * 1000, "ms")
        report.targets.append(Target(f"growth: {name}, many / few", large / small, _BOUND))


async def measure_spaces(
    report: Report, corpus: Corpus, embedder: StoredVectors, questions: Sequence[str]
) -> None:
    """Compare a search over own data and three spaces with one over own data of the same size."""
    for size in (8_000, 60_000):
        say(f"writing {size:,} messages to one user, and to a user and three spaces")
        turns = list(corpus.turns(size))
        with new_place() as place:
            async with opened(place, embedder) as library:
                for name in (spaces := ("red", "green", "blue")):
                    await library.store.spaces.create(name, name=name, admin=USER)
                owners = [Scope(USER), *[Scope.of_owner(f"space:{name}") for name in spaces]]
                for part, scope in enumerate([Scope("whole"), *owners]):
                    own = turns[part - 1 :: 4] if part else turns
                    for batch in in_batches(enumerate(own)):
                        await library.add_messages(scope, [t.to_message(n) for n, t in batch])
                await library.vectors.settle()
                library.engine = SearchEngine(library.store, embedder.live, library.cache)
                times: dict[Scope, list[float]] = {
                    Scope("whole"): [],
                    Scope(USER, spaces=spaces): [],
                }
                for number, text in enumerate((*questions[:1], *questions)):
                    for scope in list(times)[:: 1 if number % 2 else -1]:  # caches help the second
                        watch = Stopwatch()
                        await library.search(scope, SearchRequest(text))
                        times[scope] += [watch.read().wall] if number else []
        whole, shared = (percentile(values, 50) for values in times.values())
        report.targets.append(Target(f"spaces: 1 + 3 / 1 at {size:,}", shared / whole, _BOUND))


async def measure_million(
    report: Report, corpus: Corpus, embedder: StoredVectors, questions: Sequence[str], count: int
) -> None:
    """Measure many users in one file: writing, size, searching."""
    with new_place() as place:
        await _fill(report, corpus, embedder, place, count)
        await _measure_million(report, place, questions, count)


async def _fill(
    report: Report, corpus: Corpus, embedder: StoredVectors, place: Place, others: int
) -> None:
    """Write others' messages in batches, with the user's messages evenly between them."""
    say(f"writing {others:,} messages of {OTHERS:,} users")
    own = list(enumerate(corpus.turns(OWN)))
    share = max(1, OWN * BATCH // others)
    spent = 0.0
    async with opened(place, embedder) as library:
        for batch in in_batches(enumerate(corpus.turns(others, seed=2))):
            watch = Stopwatch()
            await write_messages(library.store.database, [_of_others(n, turn) for n, turn in batch])
            spent += watch.read().wall
            await _write_own(library, own[:share])
            del own[:share]
            if batch[-1][0] % 100_000 == 99_999:
                say(f"{batch[-1][0] + 1:,} messages written")
        await _write_own(library, own)
    name = f"{others:,} messages of others"
    report.add(MILLION, f"ingest, {name}", others / spent, "messages/s")
    report.add(MILLION, f"disk, {name}", place.disk_bytes() / others, "bytes/message")


def _of_others(number: int, turn: Turn) -> ScopedMessage:
    """Yield batches of fifty users, one session each."""
    user = int(turn.session.removeprefix("s")) % OTHERS
    return ScopedMessage(Scope(f"other-{user}", session_id=turn.session), turn.to_message(number))


async def _write_own(library: Library, turns: Sequence[tuple[int, Turn]]) -> None:
    if turns:
        await library.add_entries(
            [ScopedMessage(Scope(USER, session_id=t.session), t.to_message(n)) for n, t in turns]
        )
        await library.vectors.settle()


async def _measure_user(
    place: Place, embedder: StoredVectors, questions: Sequence[str], repeats: int
) -> dict[str, float]:
    """Return the median of warm searches, and the CPU time of a first search in a new process."""
    say("searching one user among the others")
    costs: dict[str, float] = {}
    async with opened(place, embedder) as library:
        modes: tuple[Mode, ...] = ("keyword", "hybrid")
        for mode in modes:
            times = [
                t for _ in range(3) for t in await search_times(library, USER, questions, mode)
            ]
            costs[f"warm {mode} p50"] = percentile([t.wall for t in times], 50)
            costs[f"warm {mode} CPU p50"] = percentile([t.cpu for t in times], 50)
    for name, snapshots in (("with snapshot", True), ("no snapshot", False)):
        options = {"cache": place.folder, "model": embedder.model, "snapshots": snapshots}
        figures = median_search(repeats, place.location, USER, **options)
        costs[f"cold index load and search {name}, CPU"] = (
            figures["load_cpu"] + figures["search_cpu"]
        )
        costs[f"cold process {name}, CPU"] = figures["total_cpu"]
    async with opened(place, None) as library:
        times = [await _write_turn(library, number) for number in range(20)]
        costs["writing a question and its answer, CPU p50"] = percentile([t.cpu for t in times], 50)
    return costs


async def _write_turn(library: Library, number: int) -> Time:
    scope = Scope("growth-writer", session_id="now")
    messages = [
        NewMessage(content=f"{role} {number}", role=role) for role in (Role.USER, Role.ASSISTANT)
    ]
    watch = Stopwatch()
    await library.add_messages(scope, messages)
    return watch.read()


async def _measure_million(
    report: Report, place: Place, questions: Sequence[str], count: int
) -> None:
    """Search random users: the first search of each in this process, then another."""
    say("searching random users")
    users = random.Random(4).sample(range(OTHERS), min(100, len(questions)))
    async with opened(place, None) as library:
        first = [await _search(library, u, q) for u, q in zip(users, questions, strict=False)]
        repeated = [
            await _search(library, u, q) for u, q in zip(users, questions[::-1], strict=False)
        ]
    report.add_times(MILLION, f"first keyword search of a user among {count:,}", first)
    report.add_times(MILLION, f"warm keyword search of a user among {count:,}", repeated)


async def _search(library: Library, user: int, question: str) -> Time:
    watch = Stopwatch()
    await library.search(Scope(f"other-{user}"), SearchRequest(question, mode="keyword"))
    return watch.read()
