"""The runs of the runs folder, read aside from the event loop and kept until they change."""

import asyncio
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from memrecall.dashboard.session import Visit
from memrecall.errors import NotFound
from memrecall.evaluation.compare import (
    Change,
    QuestionChange,
    compare,
    question_changes,
    question_metrics,
    require_same_questions,
)
from memrecall.evaluation.metrics import MAIN_METRICS, summarize
from memrecall.evaluation.runs import EvaluationRun, RunFolder, RunState, find_runs


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs and what changed between them."""

    first: EvaluationRun
    second: EvaluationRun
    metric: str
    metrics: list[str]
    questions: list[QuestionChange]


async def list_runs(visit: Visit) -> list[tuple[str, RunState]]:
    """The runs there are, the latest first; for who may look at the service."""
    (await visit.principal()).require_operator()
    found = await asyncio.to_thread(find_runs, _folder(visit))
    return [(path.name, state) for path, state in found]


async def read_run(visit: Visit, name: str) -> tuple[EvaluationRun, dict[str, Any]]:
    """A run and its figures, also of one that has not come to its end."""
    path = await _find(visit, name)
    return await asyncio.to_thread(lambda: _read(path, _stamp(path)))


async def compare_runs(visit: Visit, first: str, second: str, metric: str) -> Comparison:
    """Two runs of the same questions; InvalidArgument if they were asked different ones."""
    paths = [await _find(visit, name) for name in (first, second)]
    stamps = tuple(map(_stamp, paths))
    return await asyncio.to_thread(_compare, tuple(paths), stamps, metric)


async def read_changes(visit: Visit, first: str, second: str) -> list[Change]:
    """What changed between two runs, with intervals: that takes seconds the first time."""
    paths = [await _find(visit, name) for name in (first, second)]
    return await asyncio.to_thread(_changes, tuple(paths), tuple(map(_stamp, paths)))


def main_metric(state: RunState) -> str:
    """The figure that a run is told by."""
    return MAIN_METRICS[state.plan.mode][0]


def _folder(visit: Visit) -> Path:
    return Path(visit.library.settings.runs_dir)


async def _find(visit: Visit, name: str) -> Path:
    """The folder of a run: a name of the list, never a path."""
    if name not in {known for known, _ in await list_runs(visit)}:
        raise NotFound(f"there is no run {name!r}")
    return _folder(visit) / name


def _stamp(path: Path) -> tuple[int, int]:
    """What changes when the run does."""
    told = (path / "results.jsonl").stat()
    return told.st_mtime_ns, told.st_size


@lru_cache(maxsize=16)
def _read(path: Path, _stamp: tuple[int, int]) -> tuple[EvaluationRun, dict[str, Any]]:
    run = RunFolder(path).read()
    figures = run.state.metrics or summarize(run.questions, run.answers, run.seconds)
    return run, figures


@lru_cache(maxsize=8)
def _changes(paths: tuple[Path, ...], stamps: tuple[tuple[int, int], ...]) -> list[Change]:
    first, second = (_read(path, stamp)[0] for path, stamp in zip(paths, stamps, strict=True))
    return compare(first, second, by_category=False)


def _compare(
    paths: tuple[Path, ...], stamps: tuple[tuple[int, int], ...], metric: str
) -> Comparison:
    first, second = (_read(path, stamp)[0] for path, stamp in zip(paths, stamps, strict=True))
    require_same_questions(first, second)
    metrics = question_metrics(first, second)
    usual = [name for mode in (second.state.plan.mode, "search") for name in MAIN_METRICS[mode]]
    usual = [name for name in usual if name in metrics]
    chosen = metric if metric in metrics else (usual or metrics)[0]
    questions = question_changes(first, second, chosen)
    return Comparison(first, second, chosen, metrics, questions)
