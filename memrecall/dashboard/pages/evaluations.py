"""Evaluation runs of the runs folder, read in threads and cached, and the evaluation set."""

import asyncio
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from nicegui import background_tasks, ui

from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import ROWS_PER_PAGE, Page
from memrecall.dashboard.sample import evaluate_sample
from memrecall.dashboard.widgets import (
    card,
    dim_label,
    draw_button,
    draw_list,
    format_duration,
    row,
    show_code,
    show_empty,
    show_fact,
    show_title,
    time_chart,
)
from memrecall.errors import NotFound
from memrecall.evaluation.compare import OVERALL
from memrecall.evaluation.datasets import Question
from memrecall.evaluation.metrics import MAIN_METRICS, format_interval
from memrecall.evaluation.runs import EvaluationRun, RunFolder, RunState, find_runs
from memrecall.types import cut_to_minute

_QUESTION_FILE = "questions.jsonl"
_MAX_COMMANDS = 5
_MAX_RUNS = 100
_POLL_SECONDS = 0.5  # between two updates of the progress


def _folder(page: Page) -> Path:
    return page.library.settings.data_folder() / "runs"


async def _list_runs(page: Page) -> list[tuple[str, RunState]]:
    """Return all runs, the latest first; requires an operator."""
    (await page.principal()).require_operator()
    runs = await asyncio.to_thread(find_runs, _folder(page))
    return [(path.name, state) for path, state in runs]


async def _read_run(page: Page, name: str) -> EvaluationRun:
    """Return a run, complete or not, by a name from the list: a path is never accepted."""
    if name not in {known for known, _ in await _list_runs(page)}:
        raise NotFound(f"there is no run {name!r}")
    folder = _folder(page) / name
    version = (folder / "results.jsonl").stat().st_mtime_ns
    return await asyncio.to_thread(_read, folder, version)


@lru_cache(maxsize=16)
def _read(folder: Path, _version: int) -> EvaluationRun:
    return RunFolder(folder).read()


@register_page("/evaluations", "evaluations")
async def show_evaluations(page: Page) -> None:
    """Show all runs, the latest first."""
    show_title(page.text("evaluations"))
    runs = (await _list_runs(page))[:_MAX_RUNS]
    principal, store = await page.principal(), page.library.store
    feedback = await store.feedback_list.labelled(principal.users, principal.agent_id)
    versions = {
        user: await store.feed(user).version() for user in {item.user_id for item in feedback}
    }
    zones = {user: version.time_zone for user, version in versions.items() if version}
    labels = [Question.from_feedback(item, zones.get(item.user_id)) for item in feedback]
    _SampleRun(page).draw()  # its timer sends the page as it is at the next wait
    _draw_set(page, labels, page.database_file(principal))
    if not runs:
        with card():
            show_empty(page.text("no_runs", folder=_folder(page)))
        return
    if sum(bool(state.metrics) for _, state in runs) > 1:
        # The main metric of each mode, run by run.
        series: dict[str, list[Any]] = {}
        for name, state in reversed(runs):
            metric, measured = _main_metric(state)
            if measured:
                time = datetime.fromisoformat(state.started_at).timestamp() * 1000
                point = {"name": name, "value": [time, round(measured["value"], 4)]}
                series.setdefault(f"{state.plan.mode}: {metric}", []).append(point)
        lines = [
            {"type": "line", "name": name, "data": points, "symbolSize": 8}
            for name, points in series.items()
        ]
        with card(page.text("over_time")):
            time_chart(page.text("over_time"), lines)
    with card(page.text("runs")):
        for name, state in draw_list(runs):
            ui.link(name, page.link("/evaluations/run", name=name))
            metric, measured = _main_metric(state)
            if measured:
                ui.label(f"{metric} {format_interval(measured)}")
            if not state.complete:
                ui.label(page.text("incomplete")).classes("mr-badge mr-warn")
            questions = page.text("questions_count", count=state.counts.get("questions", 0))
            dim_label(f"{state.plan.mode} · {questions}")
            dim_label(cut_to_minute(state.started_at))


class _SampleRun:
    """Runs the sample evaluation, one at a time, and shows how far it is."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def draw(self) -> None:
        """Draw the button and the progress; when a run ends, the page shows its row."""
        page = self._page
        with card(page.text("sample_run")):
            dim_label(page.text("sample_run_hint"))
            with row():
                self._button = draw_button(page, "start_sample_run", self._start, "play_arrow")
            self._bar = ui.linear_progress(show_value=False)
            self._bar.props["aria-label"] = page.text("sample_run")
        self._timer = ui.timer(_POLL_SECONDS, self._update, active=False)
        self._show(self._is_running)

    @property
    def _is_running(self) -> bool:
        task = self._page.service.evaluation
        return task is not None and not task.done()

    def _show(self, is_running: bool) -> None:
        self._button.set_enabled(not is_running)
        self._bar.set_visibility(is_running)
        self._timer.active = is_running

    async def _start(self) -> None:
        page, principal = self._page, await self._page.principal()
        principal.require_operator()
        principal.require_write()
        if not self._is_running:
            name = f"sample-{datetime.now(UTC):%Y%m%d-%H%M%S}"
            work = evaluate_sample(page.library.settings, _folder(page) / name)
            page.service.evaluation = background_tasks.create(work, name=name)
        self._show(True)

    async def _update(self) -> None:
        task = self._page.service.evaluation
        if task is not None and self._is_running:
            if state := dict(await _list_runs(self._page)).get(task.get_name()):
                self._bar.set_value(state.counts["answered"] / state.counts["questions"])
            return
        self._show(False)
        if task is None or task.cancelled() or task.exception() is not None:
            ui.notify(self._page.text("failed"), type="negative")
        else:
            ui.navigate.reload()


def _main_metric(state: RunState) -> tuple[str, dict[str, Any] | None]:
    """Return the most important metric of a run's mode, and its value if there is one yet."""
    name = MAIN_METRICS[state.plan.mode][0]
    return name, state.metrics.get("overall", {}).get(name)


def _draw_set(page: Page, questions: Sequence[Question], database: str | None) -> None:
    """Draw the labelled questions, and how to evaluate with them."""

    def download() -> None:
        lines = "".join(question.to_line() for question in questions)
        ui.download.content(lines, _QUESTION_FILE, "application/jsonl")

    with card(page.text("evaluation_set")):
        if not questions:
            show_empty(page.text("no_labels"))
            return
        users = sorted({question.user_id for question in questions})
        with row():
            ui.label(page.text("labels_count", questions=len(questions), users=len(users)))
            draw_button(page, "download_questions", download, "download")
        with ui.expansion(page.text("questions")).classes("mr-expansion").props("dense"):
            for question in questions[:ROWS_PER_PAGE]:
                with ui.element("div").classes("mr-item"):
                    link = {"user": question.user_id, "id": question.query_id}
                    ui.link(question.query[:200], page.link("/recalls/trace", **link))
                    dim_label(f"{question.user_id} · {len(question.evidence)}")
        dim_label(page.text("evaluation_commands"))
        option = f" --db {shlex.quote(database)}" if database else ""
        commands = [
            f"memrecall export --user {shlex.quote(user)}{option} >> corpus.jsonl"
            for user in users[:_MAX_COMMANDS]
        ]
        if len(users) > _MAX_COMMANDS:
            commands.append("…")
        files = f"--corpus corpus.jsonl --queries {_QUESTION_FILE}"
        commands.append(f"memrecall eval run {files} --mode recall --out feedback")
        show_code(page, "\n".join(commands))


@register_page("/evaluations/run", "run")
async def show_run(page: Page) -> None:
    """Show the metrics of one run with intervals, by category."""
    evaluation = await _read_run(page, page.query.get("name", ""))
    plan = evaluation.state.plan
    metrics = evaluation.state.metrics or await asyncio.to_thread(evaluation.summarize)
    ui.link(page.text("evaluations"), "/evaluations")
    show_title(evaluation.name)
    with row():
        show_fact(page.text("mode"), plan.mode)
        show_fact(page.text("questions"), str(len(evaluation.answers)))
        show_fact(page.text("embedder"), plan.embedder)
        show_fact(page.text("model"), plan.model or page.text("no_model"))
        show_fact(page.text("version"), plan.version)
        for name in ("p50", "p95"):
            if metrics:
                show_fact(name, format_duration(metrics["latency"][name]))
    if not metrics:
        show_empty(page.text("no_answers"))
        return
    # One row per metric, one column per category.
    categories = {OVERALL: metrics["overall"], **metrics["categories"]}
    columns = [{"name": "metric", "label": page.text("figure"), "field": "metric", "align": "left"}]
    columns += [
        {"name": name, "label": name, "field": name, "align": "right"} for name in categories
    ]
    rows = []
    for metric in metrics["overall"]:
        values = {name: format_interval(of.get(metric)) for name, of in categories.items()}
        rows.append({"metric": metric, **values})
    with card(page.text("figures")):
        table = ui.table(columns=columns, rows=rows, row_key="metric")
        table.props("flat dense").classes("mr-table")
