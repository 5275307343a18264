"""Speed of writing and searching, compared with other libraries on the same texts.

    python benchmarks/search.py --quick              under a minute, small sizes
    python benchmarks/search.py                      10,000 and 100,000 messages of one user
    python benchmarks/search.py --growth --million   what a million messages of others cost one user

The first full run embeds the texts, which takes minutes; the vectors are cached in the temporary
folder for the next run.
"""

import argparse
import asyncio
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from benchmarks.corpus import Corpus, load_corpus  # noqa: E402
from benchmarks.databases import EMPTY_USER, new_place, opened  # noqa: E402
from benchmarks.growth import OWN, measure_growth, measure_million, measure_spaces  # noqa: E402
from benchmarks.ingest import SECTION as INGEST  # noqa: E402
from benchmarks.ingest import measure_ingest  # noqa: E402
from benchmarks.postgres import postgres  # noqa: E402
from benchmarks.probe import help_seconds  # noqa: E402
from benchmarks.report import Report, Target, number, say  # noqa: E402
from benchmarks.speed import (  # noqa: E402
    LOADING,
    MEMORY,
    MEMRECALL,
    PEERS,
    USER,
    measure_peers,
    measure_place,
)
from benchmarks.vectors import (  # noqa: E402
    Matrix,
    StoredVectors,
    made_up_vectors,
    stored_vectors,
)
from memrecall.embedding import Embedder, make_embedder  # noqa: E402

ON_POSTGRES = " on PostgreSQL"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run measures, and how often."""

    sizes: list[int]
    questions: int
    rounds: int
    repeats: int
    plain: int
    embedded: int
    growth: tuple[int, int]
    real_vectors: bool


FULL = Plan([10_000, 100_000], 90, 2, 3, 20_000, 3_000, (10_000, 1_000_000), True)
QUICK = Plan([2_000, 10_000], 60, 1, 1, 2_000, 200, (2_000, 20_000), False)


async def run(options: argparse.Namespace, plan: Plan) -> Report:
    """Measure everything that was requested."""
    report = Report(plan.sizes)
    corpus = load_corpus(options.data, REPOSITORY)
    say(f"corpus: {corpus.origin}")
    questions = corpus.questions(plan.questions)
    embedder = make_embedder("local")
    assert embedder is not None
    report.notes.append(_describe_machine(corpus, len(questions)))
    try:
        texts = list(corpus.texts(max(OWN, *plan.sizes)))
        matrix = await _vectors(texts, embedder, plan)
        cached_embedder = StoredVectors(texts, matrix, embedder)
        if not options.skip_sizes:
            report.add("command line", "memrecall --help, CPU", help_seconds(), "s")
            await measure_ingest(report, corpus, embedder, plan.plain, plan.embedded)
            await _measure_sizes(report, corpus, cached_embedder, matrix, questions, plan)
            _add_targets(report)
        if options.postgres is not None:
            await _measure_postgres(
                report, corpus, cached_embedder, questions, plan, options.postgres
            )
        await _measure_many(report, corpus, cached_embedder, questions, plan, options)
    finally:
        await embedder.close()
    return report


async def _vectors(texts: list[str], embedder: Embedder, plan: Plan) -> Matrix:
    if not plan.real_vectors:
        await embedder.embed(["dimensions"])
        return made_up_vectors(len(texts), embedder.dimensions)

    def progress(count: int, all_: int) -> None:
        if count % 10_000 == 0 or count == all_:
            say(f"vectors: {count:,} of {all_:,}")

    return await stored_vectors(texts, embedder, progress)


async def _measure_sizes(
    report: Report,
    corpus: Corpus,
    cached_embedder: StoredVectors,
    matrix: Matrix,
    questions: list[str],
    plan: Plan,
) -> None:
    query_vectors = await cached_embedder.embed(questions)
    for size in plan.sizes:
        turns = list(corpus.turns(size))
        with new_place() as place:
            await measure_place(
                report,
                place,
                turns,
                cached_embedder,
                questions,
                rounds=plan.rounds,
                repeats=plan.repeats,
            )
        measure_peers(
            report, [turn.text for turn in turns], matrix[:size], query_vectors, questions
        )


async def _measure_postgres(
    report: Report,
    corpus: Corpus,
    cached_embedder: StoredVectors,
    questions: list[str],
    plan: Plan,
    url: str,
) -> None:
    with postgres(url) as location:
        if location is None:
            report.show(MEMRECALL + ON_POSTGRES, "PostgreSQL", "not installed")
            return
        for size in plan.sizes:
            with new_place(location) as place:
                turns = list(corpus.turns(size))
                await measure_place(
                    report,
                    place,
                    turns,
                    cached_embedder,
                    questions,
                    rounds=plan.rounds,
                    repeats=plan.repeats,
                    label=ON_POSTGRES,
                )
                async with opened(place, cached_embedder) as library:
                    for user in (USER, EMPTY_USER):
                        await library.erase_user(user)


async def _measure_many(
    report: Report,
    corpus: Corpus,
    cached_embedder: StoredVectors,
    questions: list[str],
    plan: Plan,
    options: argparse.Namespace,
) -> None:
    if options.growth:
        await measure_growth(
            report,
            corpus,
            cached_embedder,
            questions,
            sizes=plan.growth,
            repeats=max(plan.repeats, 5),
            also_million=options.million,
        )
        await measure_spaces(report, corpus, cached_embedder, questions)
    elif options.million:
        await measure_million(report, corpus, cached_embedder, questions, max(plan.growth))


def _add_targets(report: Report) -> None:
    """Add the project's targets, by default at the largest size."""
    small, large = min(report.sizes), max(report.sizes)
    memory = report.get(MEMORY, "above empty, without a snapshot", large)
    loaded = report.get(LOADING, "index, with a snapshot", small)
    built = report.get(LOADING, "index, without a snapshot", small)
    short = report.get(INGEST, "40 characters, without embedding")
    share = report.get(INGEST, "with embedding / embedder alone")
    in_full = f" at {large:,}"
    report.targets += [
        _compare(report, "hybrid", "rank-bm25, scores alone", 0.25, large),
        *(_compare(report, "keyword", "tantivy, best 10", 10, size) for size in report.sizes),
        Target("ingest with embedding / embedder alone", share, 0.8, at_most=False),
        Target("ingest, 40 characters, no embedding", short, 3_000, at_most=False, unit=" /s"),
        Target(f"memory above empty, with vectors{in_full}", memory, 400, unit=" MB"),
        Target(f"index load with a snapshot at {small:,}, CPU", loaded, 0.5, unit=" s"),
        Target(f"index load without a snapshot at {small:,}, CPU", built, 5, unit=" s"),
        Target(
            "memrecall --help, CPU",
            report.get("command line", "memrecall --help, CPU"),
            0.5,
            unit=" s",
        ),
    ]


def _compare(report: Report, mode: str, peer: str, bound: float, size: int) -> Target:
    """Compare a mode's median with a peer's; in brackets by CPU time, which is less noisy."""

    def ratio(part: str) -> float | None:
        memrecall_value = report.get(MEMRECALL, f"{mode} {part}", size)
        peer_value = report.get(PEERS, f"{peer} {part}", size)
        return memrecall_value / peer_value if memrecall_value and peer_value else None

    cpu = ratio("CPU p50 ms")
    name = f"{mode} p50 / {peer} p50 at {size:,}"
    note = "" if cpu is None else f" (CPU: {number(cpu)})"
    return Target(name + note, ratio("p50 ms"), bound)


def _describe_machine(corpus: Corpus, questions: int) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; load before {load}; {questions} questions; texts: "
        f"{corpus.origin}. Times are wall clock unless they say CPU; searches include reading the "
        "hits from the store, peers score and sort only."
    )


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data")
    parser.add_argument("--sizes", help="messages of one user, such as 10000,100000")
    parser.add_argument(
        "--skip-sizes", action="store_true", help="only what the options below ask for"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, made-up vectors")
    parser.add_argument("--growth", action="store_true", help="one user among ever more others")
    parser.add_argument("--million", action="store_true", help="a million messages of 1,000 users")
    parser.add_argument("--postgres", nargs="?", const="", metavar="URL", help="PostgreSQL too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args()


def main() -> None:
    """Measure, print the table, write the file."""
    options = _read_options()
    plan = QUICK if options.quick else FULL
    if options.sizes:
        plan.sizes[:] = sorted(int(size) for size in options.sizes.split(","))
    report = asyncio.run(run(options, plan))
    report.print()
    if options.json is not None:
        report.write(options.json)


if __name__ == "__main__":
    main()
