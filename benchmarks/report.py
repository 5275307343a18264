"""Collected figures, printed as a table and written as JSON."""

import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

Figures = dict[str, dict[str, float]]  # rows of named figures

_BEGUN = time.perf_counter()


def say(text: str) -> None:
    """Print progress on stderr."""
    print(f"[{time.perf_counter() - _BEGUN:6.1f} s] {text}", file=sys.stderr, flush=True)


def print_figures(title: str, rows: Figures) -> None:
    """Print one row per name, one column per figure."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in next(iter(rows.values())):
        table.add_column(name, justify="right")
    for name, figures in rows.items():
        table.add_row(name, *(f"{value:.3f}" for value in figures.values()))
    # As wide as it needs to be, also where the output is a file.
    Console(width=None if sys.stdout.isatty() else 170).print(table)


def write_figures(file: Path, tables: Mapping[str, Figures]) -> None:
    """Write tables as JSON; figures that are undefined are null."""
    finite = {
        title: {
            row: {name: value if math.isfinite(value) else None for name, value in figures.items()}
            for row, figures in rows.items()
        }
        for title, rows in tables.items()
    }
    file.write_text(json.dumps(finite, indent=2, allow_nan=False) + "\n", "utf-8")


class Time(NamedTuple):
    """Wall-clock time and CPU time of all threads."""

    wall: float
    cpu: float


class Stopwatch:
    """A stopwatch that starts when it is created."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def read(self) -> Time:
        """Return the time since the start."""
        return Time(time.perf_counter() - self._wall, time.process_time() - self._cpu)


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, its limit and the verdict; no figure if a peer is missing."""

    name: str
    value: float | None
    bound: float
    at_most: bool = True
    unit: str = ""

    @property
    def verdict(self) -> str:
        """OK, MISSED, or why there is neither."""
        if self.value is None:
            return "not measured"
        met = self.value <= self.bound if self.at_most else self.value >= self.bound
        return "OK" if met else "MISSED"

    def row(self) -> tuple[str, str, str]:
        """Return the value, the limit and the verdict as text."""
        sign = "≤" if self.at_most else "≥"
        value = "—" if self.value is None else f"{number(self.value)}{self.unit}"
        return value, f"{sign} {self.bound:,g}{self.unit}", self.verdict


@dataclass(slots=True)
class Report:
    """All figures of one run. A figure belongs to a size, or to none."""

    sizes: Sequence[int]
    figures: dict[str, float] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _cells: dict[str, dict[str, dict[int | None, str]]] = field(default_factory=dict)

    def add(
        self, section: str, name: str, value: float, unit: str, size: int | None = None
    ) -> None:
        """Add one figure."""
        self.figures[_key(section, name, size)] = value
        self.show(section, name, f"{number(value)} {unit}".strip(), size)

    def add_times(
        self, section: str, name: str, times: Sequence[Time], size: int | None = None
    ) -> None:
        """Add the median and 95th percentile of times, and their median CPU time."""
        figures = {
            "p50 ms": percentile([time.wall for time in times], 50) * 1000,
            "p95 ms": percentile([time.wall for time in times], 95) * 1000,
            "CPU p50 ms": percentile([time.cpu for time in times], 50) * 1000,
        }
        for part, value in figures.items():
            self.figures[_key(section, f"{name} {part}", size)] = value
        self.show(section, name, " / ".join(map(number, figures.values())), size)

    def show(self, section: str, name: str, text: str, size: int | None = None) -> None:
        """Set a cell that is not a figure, such as "not installed"."""
        self._cells.setdefault(section, {}).setdefault(name, {})[size] = text

    def get(self, section: str, name: str, size: int | None = None) -> float | None:
        """Return a measured figure, or None."""
        return self.figures.get(_key(section, name, size))

    def print(self) -> None:
        """Print the table."""
        table = Table(title="memrecall: search", title_justify="left")
        table.add_column("measured")
        for heading in ("once", *(f"{size:,}" for size in self.sizes), "target", "verdict"):
            table.add_column(heading, justify="right")
        for section, rows in self._cells.items():
            table.add_section()
            table.add_row(f"[bold]{section}[/bold]")
            for name, cells in rows.items():
                values = [cells.get(size, "") for size in (None, *self.sizes)]
                table.add_row(f"  {name}", *values)
        table.add_section()
        table.add_row("[bold]targets[/bold]")
        for target in self.targets:
            value, bound, verdict = target.row()
            colour = {"OK": "green", "MISSED": "red"}.get(verdict, "yellow")
            blanks = [""] * len(self.sizes)
            styled = f"[{colour}]{verdict}[/{colour}]"
            table.add_row(f"  {target.name}", value, *blanks, bound, styled)
        # As wide as it needs to be, also where the output is a file.
        console = Console(width=None if sys.stdout.isatty() else 170)
        console.print(table)
        for note in self.notes:
            console.print(note, highlight=False)

    def finish(self, file: Path | None) -> int:
        """Print the targets and write the figures; return 1 if a target is missed."""
        for target in self.targets:
            measured, bound, verdict = target.row()
            print(f"{verdict:<8} {target.name}: {measured}, target {bound}")
        print(*self.notes, sep="\n")
        if file:
            self.write(file)
        return int(any(target.verdict == "MISSED" for target in self.targets))

    def write(self, file: Path) -> None:
        """Write the figures as JSON."""
        targets = [{**asdict(target), "verdict": target.verdict} for target in self.targets]
        content = {"figures": self.figures, "targets": targets, "notes": self.notes}
        file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def number(value: float) -> str:
    """Format a number with three significant digits and thousands separators."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile of the values."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _key(section: str, name: str, size: int | None) -> str:
    return f"{section}: {name}" + ("" if size is None else f" @ {size}")
