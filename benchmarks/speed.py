"""Search times for one user and of other libraries; memory and loading of new processes."""

import gc
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.corpus import Turn
from benchmarks.databases import EMPTY_USER, Place, opened, write
from benchmarks.probe import first_search, median_search
from benchmarks.rankers import LEXICAL, question_tokens, scan, text_tokens, time_each
from benchmarks.report import Report, Stopwatch, Time, say
from benchmarks.vectors import Matrix, StoredVectors
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import SearchEngine, SearchRequest
from memrecall.search.ranking.lexical import bm25, query_terms
from memrecall.search.request import MODES, Mode

USER = "bench-user"
LOADING = "loading, CPU seconds in a new process"
MEMORY = "memory of a process"
PEERS = "peers, p50 / p95 / CPU p50, ms"
MEMRECALL = "memrecall, p50 / p95 / CPU p50, ms"
_WARM_UP = ("warm up 热身", "another question 另一个问题")


async def measure_place(
    report: Report,
    place: Place,
    turns: Sequence[Turn],
    embedder: StoredVectors,
    questions: Sequence[str],
    *,
    rounds: int,
    repeats: int,
    label: str = "",
) -> None:
    """Measure everything for one user in one database."""
    size = len(turns)
    say(f"{label or 'SQLite'}: writing {size:,} messages with their vectors")
    async with opened(place, embedder) as library:
        await write(library, EMPTY_USER, turns[:1])
        spent = await write(library, USER, turns)
        name = f"ingest{label}, vectors looked up"
        report.add(MEMRECALL + label, name, size / spent.wall, "messages/s", size)
        say(f"{label or 'SQLite'}: searching {size:,} messages")
        await measure_searches(report, library, questions, size, rounds, label)
    _measure_new_processes(report, place, embedder, turns, repeats, label)


async def measure_searches(
    report: Report, library: Library, questions: Sequence[str], size: int, rounds: int, label: str
) -> None:
    """Measure the three modes and their parts."""
    section = MEMRECALL + label
    for mode in MODES:
        times: list[Time] = []
        for _ in range(rounds):
            times += await search_times(library, USER, questions, mode)
        report.add_times(section, mode, times, size)
    assert library.embedder is not None
    parts: dict[str, list[Time]] = {"version": [], "vector": [], "bm25": []}
    feed = library.store.feed(USER)
    version = await feed.version()
    assert version is not None
    async with library.cache.open(feed, version) as columns:
        assert columns is not None
        alive = columns.alive(version.version)
        parts["bm25"] = time_each(lambda q: bm25(columns, query_terms(q), alive), questions)
    for text in questions:
        watch = Stopwatch()
        await feed.version()
        parts["version"].append(watch.read())
        watch = Stopwatch()
        await library.embedder.embed([text])
        parts["vector"].append(watch.read())
    report.add_times(section, "part: BM25 scores", parts["bm25"], size)
    report.add_times(section, "part: the user's version", parts["version"], size)
    report.add_times(section, "part: the query's vector", parts["vector"], size)


async def search_times(
    library: Library, user: str, questions: Sequence[str], mode: Mode
) -> list[Time]:
    """Return the time of each question; none was asked before."""
    # A new engine over the same indexes has no cached vectors of questions.
    engine = SearchEngine(library.store, library.embedder, library.cache)
    scope = Scope(user)
    for text in _WARM_UP:
        await engine.search(scope, SearchRequest(text, mode=mode))
    times: list[Time] = []
    for text in questions:
        watch = Stopwatch()
        await engine.search(scope, SearchRequest(text, mode=mode))
        times.append(watch.read())
    return times


def measure_peers(
    report: Report, texts: Sequence[str], matrix: Matrix, vectors: Matrix, questions: Sequence[str]
) -> None:
    """Ask the same questions of the peers, over the same tokens and vectors."""
    size = len(texts)
    report.add_times(PEERS, "numpy, best 10", time_each(lambda v: scan(matrix, v), vectors), size)
    tokens = [text_tokens(text) for text in texts]
    token_lists = [question_tokens(text) for text in questions]
    report.add(PEERS, "tokens a message", sum(map(len, tokens)) / size, "", size)
    report.add(PEERS, "tokens a question", median(map(len, token_lists)), "", size)
    for name, build in LEXICAL.items():
        say(f"{name}: {size:,} messages")
        try:
            rank = build(tokens)
        except ImportError:
            report.show(PEERS, name, "not installed", size)
            continue
        time_each(rank, map(question_tokens, _WARM_UP))
        report.add_times(PEERS, name, time_each(rank, token_lists), size)
        del rank
        gc.collect()


def _measure_new_processes(
    report: Report,
    place: Place,
    embedder: StoredVectors,
    turns: Sequence[Turn],
    repeats: int,
    label: str,
) -> None:
    """Measure loading and memory, with and without a snapshot."""
    size = len(turns)
    loading, memory = LOADING + label, MEMORY + label
    text_bytes = sum(len(turn.text.encode()) for turn in turns)
    report.add(memory, "snapshot on disk", place.snapshot_bytes() / 1e6, "MB", size)
    for name, snapshots in (("with a snapshot", True), ("without a snapshot", False)):
        say(f"{label or 'SQLite'}: loading {size:,} messages in new processes, {name}")
        options: dict[str, Any] = {
            "cache": place.folder,
            "model": embedder.model,
            "snapshots": snapshots,
        }
        cost = median_search(repeats, place.location, USER, **options)
        report.add(loading, f"index, {name}", cost["load_cpu"], "s", size)
        report.add(
            loading, f"whole process to the first hits, {name}", cost["total_cpu"], "s", size
        )
        figures = first_search(place.location, USER, empty=EMPTY_USER, searches=20, **options)
        _add_memory(report, memory, name, figures, text_bytes, size)
        report.add(
            memory, "empty process: library open, one search", figures["empty_mb"], "MB", size
        )
        report.add(memory, "what the index says it takes", figures["counted_mb"], "MB", size)
    figures = first_search(
        place.location,
        USER,
        cache=place.folder,
        snapshots=False,
        empty=EMPTY_USER,
        searches=20,
    )
    _add_memory(report, memory, "without vectors", figures, text_bytes, size)


def _add_memory(
    report: Report, section: str, name: str, figures: dict[str, float], text_bytes: int, size: int
) -> None:
    above = figures["full_mb"] - figures["empty_mb"]
    report.add(section, f"above empty, {name}", above, "MB", size)
    report.add(
        section, f"peak above empty, {name}", figures["peak_mb"] - figures["empty_mb"], "MB", size
    )
    report.add(section, f"a byte of message, {name}", above * 1e6 / text_bytes, "bytes", size)
