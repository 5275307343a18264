"""What the leak filter recognises, its cost compared with copying, and its growth with the text.

    python benchmarks/leaks.py
    python benchmarks/leaks.py --size 100000        a quick look

The cases are those of fixtures/leaks: calls by family, and prose about tokens and tools.
Times are CPU times; a cost is the best of several runs. Exits with 1 if a limit is exceeded:
ordinary text in chunks of four characters costs less than 100 times copying it, and ten times the
text, ordinary or adversarial, at most ten times as much (plus 15 % for noise).
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from benchmarks.report import number, say  # noqa: E402
from memrecall.text import LeakFilter, filter_leaks  # noqa: E402
from memrecall.text.leaks import LeakMode  # noqa: E402
from tests.text.leak_texts import (  # noqa: E402
    ADVERSARIAL,
    CHUNK,
    MODES,
    TOOLS,
    fill,
    read_ordinary,
    stream,
)

MEGABYTE = 1_000_000
COST = 100.0  # times copying, at most
GROWTH = 10.0  # for ten times the text
NOISE = 1.15

CASE_TOOLS = ("search_memory", "is_mentioned")  # of fixtures/leaks


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one text; only ordinary texts have a limit on their cost."""

    name: str
    costs: tuple[float, ...]  # times copying, by mode
    growth: float  # for ten times the text
    whole: float  # milliseconds for all of it at once
    ordinary: bool

    @property
    def met(self) -> bool:
        """True if all limits are met."""
        return self.growth <= GROWTH * NOISE and (max(self.costs) < COST or not self.ordinary)


def copy(text: str) -> str:
    """Split a text into chunks and join them again."""
    pieces = []
    for at in range(0, len(text), CHUNK):
        pieces.append(text[at : at + CHUNK])  # noqa: PERF401  the loop that a filter needs
    return "".join(pieces)


def discard_filtered(text: str) -> str:
    """Filter the chunks and discard the result, because keeping a long text would cost more."""
    leaks = LeakFilter(TOOLS, reasoning="auto", mode="strict")
    for at in range(0, len(text), CHUNK):
        leaks.feed(text[at : at + CHUNK])
    return leaks.close()


def filter_whole(text: str) -> str:
    """Filter a text in one call."""
    return filter_leaks(text, TOOLS).visible


def seconds(function: Callable[[str], str], text: str, runs: int) -> float:
    """Return the CPU time of the fastest run."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        function(text)
        times.append(time.process_time() - start)
    return min(times)


def measure_cost(text: str, mode: LeakMode, runs: int = 5) -> float:
    """Return the cost of filtering a text as a multiple of copying it."""
    return seconds(partial(stream, mode=mode), text, runs) / seconds(copy, text, runs)


def read_lines(name: str) -> list[dict[str, str]]:
    """Return the cases of a file of fixtures/leaks."""
    lines = (REPOSITORY / "fixtures" / "leaks" / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def show_recognition() -> None:
    """Print how many calls of each family are recognised, and how much prose is unchanged."""
    leaks = [case for name in ("collected", "written") for case in read_lines(name) if case["leak"]]
    found: Counter[tuple[str, str]] = Counter()
    for case in leaks:
        for mode in MODES:
            found[case["family"], mode] += bool(
                filter_leaks(case["text"], CASE_TOOLS, reasoning="strip", mode=mode).leaks
            )
    table = Table(title="recognised calls in fixtures/leaks", title_justify="left")
    for heading in ("family", "cases", *MODES):
        table.add_column(heading, justify="left" if heading == "family" else "right")
    for family, count in sorted(Counter(case["family"] for case in leaks).items()):
        table.add_row(family, str(count), *(str(found[family, mode]) for mode in MODES))
    totals = (sum(found[case, mode] for case in {c["family"] for c in leaks}) for mode in MODES)
    table.add_row("all", str(len(leaks)), *map(str, totals), style="bold")
    texts = [case["text"] for case in read_lines("prose")]
    kept = (
        sum(filter_leaks(t, TOOLS, reasoning="auto", mode=mode).visible == t for t in texts)
        for mode in MODES
    )
    table.add_row("prose, unchanged", str(len(texts)), *map(str, kept))
    Console(width=None if sys.stdout.isatty() else 120).print(table, markup=False)


def measure_growth(pattern: str, size: int, runs: int = 3) -> float:
    """Return the median cost of ten times the text, as a multiple of ten runs."""
    small, large = fill(pattern, size), fill(pattern, 10 * size)
    ratios = []
    for _ in range(runs):
        mean = sum(seconds(discard_filtered, small, 1) for _ in range(10)) / 10
        ratios.append(seconds(discard_filtered, large, 1) / mean)
    return statistics.median(ratios)


def measure(name: str, pattern: str, size: int, *, ordinary: bool) -> Figures:
    """Return all figures of one text."""
    say(name)
    text = fill(pattern, size)
    return Figures(
        name,
        tuple(measure_cost(text, mode) for mode in MODES),
        measure_growth(pattern, size),
        seconds(filter_whole, text, 3) * 1000,
        ordinary,
    )


def show(all_figures: list[Figures], size: int) -> None:
    """Print the table."""
    table = Table(title=f"the leak filter, {size:,} characters", title_justify="left")
    table.add_column("text")
    costs = [f"4-character chunks / copying, {mode}" for mode in MODES]
    for heading in (*costs, "10 x the text", "at once", "verdict"):
        table.add_column(heading, justify="right")
    for figures in all_figures:
        table.add_row(
            figures.name if figures.ordinary else f"adversarial: {figures.name}",
            *(f"{number(cost)} x" for cost in figures.costs),
            f"{number(figures.growth)} x",
            f"{number(figures.whole)} ms",
            "OK" if figures.met else "MISSED",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table, markup=False)


def main() -> int:
    """Measure and print; return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description="Measure the leak filter.")
    parser.add_argument("--size", type=int, default=MEGABYTE, help="characters (default 1 MB)")
    size = parser.parse_args().size
    show_recognition()
    all_figures = [
        measure(name, text, size, ordinary=True) for name, text in read_ordinary().items()
    ]
    # These cost more and do not occur in such amounts: a tenth is enough to measure the growth.
    all_figures += [
        measure(name, pattern, size // 10, ordinary=False) for name, pattern in ADVERSARIAL.items()
    ]
    show(all_figures, size)
    return 0 if all(figures.met for figures in all_figures) else 1


if __name__ == "__main__":
    sys.exit(main())
