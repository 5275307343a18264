"""Evaluation runs of the runs folder, read in threads and cached, and the evaluation set."""

import asyncio
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from memrecall.dashboard.page import Page
from memrecall.errors import NotFound
from memrecall.evaluation.compare import (
    Change,
    QuestionChange,
    compare,
    question_changes,
    question_metrics,
    require_same_questions,
)
from memrecall.evaluation.metrics import MAIN_METRICS
from memrecall.evaluation.questions import Question
from memrecall.evaluation.runs import EvaluationRun, RunFolder, RunState, find_runs

FileVersion = tuple[Path, int, int]


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs and the questions whose results differ."""

    first: EvaluationRun
    second: EvaluationRun
    metric: str
    metrics: list[str]
    questions: list[QuestionChange]


async def list_runs(page: Page) -> list[tuple[str, RunState]]:
    """Return all runs, the latest first; requires an operator."""
    (await page.principal()).require_operator()
    runs = await asyncio.to_thread(find_runs, _folder(page))
    return [(path.name, state) for path, state in runs]


async def read_run(page: Page, name: str) -> tuple[EvaluationRun, dict[str, Any]]:
    """Return a run, complete or not, and its metrics."""
    (version,) = await _find(page, name)
    return await asyncio.to_thread(_read, version)


async def compare_runs(page: Page, first: str, second: str, metric: str) -> RunComparison:
    """Compare two runs by question; raise InvalidArgument if their questions differ."""
    return await asyncio.to_thread(_compare, await _find(page, first, second), metric)


async def read_changes(page: Page, first: str, second: str) -> list[Change]:
    """Return the changes of all metrics with intervals, which take seconds the first time."""
    return await asyncio.to_thread(_changes, await _find(page, first, second))


async def read_questions(page: Page) -> list[Question]:
    """Return the labelled questions of the users that the key may see, the latest first."""
    principal, store = await page.principal(), page.library.store
    labels = await store.feedback_list.labelled(principal.users, principal.agent_id)
    versions = {
        user: await store.feed(user).version() for user in {item.user_id for item in labels}
    }
    zones = {user: version.time_zone for user, version in versions.items() if version}
    return [Question.from_feedback(label, zones.get(label.user_id)) for label in labels]


def main_metric(state: RunState) -> str:
    """Return the most important metric of a run's mode."""
    return MAIN_METRICS[state.plan.mode][0]


def _folder(page: Page) -> Path:
    return Path(page.library.settings.runs_dir)


async def _find(page: Page, *names: str) -> tuple[FileVersion, ...]:
    """Return the current versions of runs, by names from the list: a path is never accepted."""
    known = {name for name, _ in await list_runs(page)}
    for name in names:
        if name not in known:
            raise NotFound(f"there is no run {name!r}")
    return tuple(_version(_folder(page) / name) for name in names)


def _version(path: Path) -> FileVersion:
    status = (path / "results.jsonl").stat()
    return path, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=16)
def _read(version: FileVersion) -> tuple[EvaluationRun, dict[str, Any]]:
    run = RunFolder(version[0]).read()
    metrics = run.state.metrics or run.summarize()
    return run, metrics


@lru_cache(maxsize=8)
def _changes(versions: tuple[FileVersion, ...]) -> list[Change]:
    first, second = (_read(version)[0] for version in versions)
    return compare(first, second, by_category=False)


def _compare(versions: tuple[FileVersion, ...], metric: str) -> RunComparison:
    first, second = (_read(version)[0] for version in versions)
    require_same_questions(first, second)
    metrics = question_metrics(first, second)
    defaults = [name for mode in (second.state.plan.mode, "search") for name in MAIN_METRICS[mode]]
    choices = [metric, *defaults, *metrics]
    selected = next(name for name in choices if name in metrics)
    questions = question_changes(first, second, selected)
    return RunComparison(first, second, selected, metrics, questions)
