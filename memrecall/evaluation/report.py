"""The report of one or more runs: figures, a standalone HTML page, and slices as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.charts import PALETTE, Axis, Series, category_chart, line_chart, log_axis
from memrecall.evaluation.metrics import (
    abstention_curve,
    confidence_outcomes,
    format_interval,
    has_probabilities,
    result_outcomes,
)
from memrecall.evaluation.runs import EvaluationRun, RunPlan
from memrecall.evaluation.statistics import calibration_bins
from memrecall.text.html import NARROW, TITLE, Html, Say, cell, labels, note, table, tag
from memrecall.text.language import language_of_most, read_phrases
from memrecall.types import cut_to_minute

_MAX_DEPTH = 50
_TEXTS = read_phrases(Path(__file__).with_name("report.json"))


def recall_by_depth(run: EvaluationRun) -> list[float]:
    """Return the share of the evidence among the first 1, 2, … keys."""
    depth = min(run.state.plan.depth, _MAX_DEPTH)
    is_hit = np.zeros((len(run.answers), depth))
    for row, (question, answer) in enumerate(run.pairs):
        for rank, key in enumerate(answer.keys[:depth]):
            is_hit[row, rank] = key in question.evidence
    counts = np.array([len(question.evidence) for question in run.questions])
    has_evidence = counts > 0
    if not has_evidence.any():
        return [0.0] * depth
    shares = is_hit[has_evidence].cumsum(axis=1) / counts[has_evidence, None]
    return [float(value) for value in shares.mean(axis=0)]


def calibration(run: EvaluationRun) -> tuple[str, list[tuple[float, float, int]]]:
    """Return the kind of prediction, and its bins: mean prediction, share true, size."""
    pairs = run.pairs
    if run.state.plan.mode == "recall":
        kind, (predicted, true) = "confidence", confidence_outcomes(pairs)
    elif has_probabilities(run.answers):
        kind = "probability"
        predicted, true = result_outcomes(pairs, lambda answer: answer.probabilities or ())
    else:
        kind = "score"
        predicted, true = result_outcomes(pairs, lambda answer: [s for _, s in answer.retrieved])
    is_present = ~np.isnan(predicted)
    return kind, calibration_bins(predicted[is_present], true[is_present])


@dataclass(frozen=True, slots=True)
class PlottedRun:
    """A run with its label, colour and metrics in a report."""

    name: str
    colour: str
    run: EvaluationRun
    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with heading and caption, displayed in notebooks."""

    name: str
    heading: str
    caption: str
    chart: Html
    runs: Sequence[PlottedRun]

    def __repr__(self) -> str:
        return f"<Figure {self.name}: {self.heading}>"

    def _repr_html_(self) -> str:
        legend = [tag("span", swatch(run.colour), run.name, " ") for run in self.runs]
        head = [tag("div", self.heading, style=TITLE), note(self.caption)]
        return str(tag("div", *head, *(legend if len(legend) > 1 else ()), self.chart))


def swatch(colour: str) -> Html:
    """Return a dot in the colour of a run."""
    return tag("span", "● ", style=f"color:{colour}")


def figures_of(*runs: EvaluationRun) -> dict[str, Figure]:
    """Return the figures of up to eight runs, by name: `recall_by_depth`, `by_category`, …"""
    language = language_of_most(question.query for run in runs for question in run.questions)
    return {figure.name: figure for figure in draw_figures(prepare_runs(runs), language)}


def prepare_runs(runs: Sequence[EvaluationRun]) -> list[PlottedRun]:
    """Give runs distinct labels and colours; reject runs without results."""
    if len(runs) > len(PALETTE):
        raise InvalidArgument(
            f"{len(runs)} runs do not fit one report", hint=f"Pass at most {len(PALETTE)}"
        )
    for run in runs:
        if not run.answers:
            raise InvalidArgument(f"{run.name} has no answers yet", hint="Run it first")
    names = [run.name for run in runs]
    return [
        PlottedRun(
            name if names.count(name) == 1 else f"{name} ({names[: at + 1].count(name)})",
            PALETTE[at],
            run,
            run.summarize(),
        )
        for at, (name, run) in enumerate(zip(names, runs, strict=True))
    ]


def draw_figures(runs: Sequence[PlottedRun], language: str = "en") -> list[Figure]:
    """Return all figures that are defined for these runs."""
    say = labels(_TEXTS, language)
    summaries = {run.name: run.metrics for run in runs}
    recalls = [run for run in runs if run.run.state.plan.mode == "recall"]
    charts: dict[str, Html | None] = {
        "recall_by_depth": _depth_chart(runs, say),
        "by_category": category_chart(
            say("by_category"), say("recall_at_10"), "recall@10", summaries
        ),
        "handed_off": category_chart(say("handed_off"), say("f1"), "f1", summaries)
        if recalls
        else None,
        "abstention": _abstention_chart(recalls, say),
        "calibration": _calibration_chart(runs, say),
        "latency": _latency_chart(runs, say),
    }
    return [
        Figure(name, say(name), say(f"{name}_hint"), chart, runs)
        for name, chart in charts.items()
        if chart
    ]


def _depth_chart(runs: Sequence[PlottedRun], say: Say) -> Html:
    series = [
        Series(run.name, run.colour, list(enumerate(recall_by_depth(run.run), 1))) for run in runs
    ]
    deepest = max(len(line.points) for line in series)
    ticks = sorted({k for k in (1, 5, 10, 20, 30, 40) if k < deepest} | {deepest})
    up = Axis(say("evidence_share"))
    return line_chart(say("recall_by_depth"), Axis(say("k"), ticks), up, series)


def _abstention_chart(runs: Sequence[PlottedRun], say: Say) -> Html | None:
    """Draw the abstention curve, if some questions are unanswerable."""
    series = [
        Series(run.name, run.colour, points)
        for run in runs
        if (points := abstention_curve(run.run.pairs))
    ]
    if not series:
        return None
    axes = (Axis(say("wrongly")), Axis(say("rightly")))
    return line_chart(say("abstention"), *axes, series, diagonal=True)


def _calibration_chart(runs: Sequence[PlottedRun], say: Say) -> Html:
    series, kinds = [], []
    for run in runs:
        kind, bins = calibration(run.run)
        kinds.append(say(kind))
        points = [(mean, share) for mean, share, _ in bins]
        series.append(Series(f"{run.name}, {say(kind)}", run.colour, points, dots=True))
    across = Axis(" / ".join(dict.fromkeys(kinds)))
    return line_chart(say("calibration"), across, Axis(say("true_share")), series, diagonal=True)


def _latency_chart(runs: Sequence[PlottedRun], say: Say) -> Html:
    series = []
    for run in runs:
        latencies = sorted(1000 * seconds for seconds in run.run.seconds)
        points = [(ms, number / len(latencies)) for number, ms in enumerate(latencies, 1)]
        series.append(Series(run.name, run.colour, points))
    across = log_axis(say("milliseconds"), [ms for line in series for ms, _ in line.points])
    return line_chart(say("latency"), across, Axis(say("question_share")), series)


_NOTE = (
    "With 95 % bootstrap intervals over questions. Questions without evidence do not count for "
    "the metrics about evidence. Hover over a chart to see its values."
)
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{margin:0;font:15px/1.5 system-ui,'Noto Sans CJK SC',sans-serif}"
    "main{max-width:1120px;margin:0 auto;padding:24px 20px 60px;overflow-x:auto}"
    ".figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));"
    "gap:36px 32px;margin:32px 0}"
)
_SLICE_COLUMNS = {
    "search": ("recall@10", "hit@10", "mrr", "abstention_accuracy", "auroc"),
    "recall": ("f1", "recall@10", "hit@10", "mrr", "abstention_accuracy", "auroc"),
}


class SliceTable(NamedTuple):
    """The main metrics of every slice of a run: the label, the questions, and a cell for each."""

    columns: list[str]
    rows: list[tuple[str, str, list[str]]]

    @classmethod
    def of(cls, metrics: Mapping[str, Any], mode: str) -> "SliceTable":
        """Take the metrics that any slice has."""
        groups = [
            (f"{name.replace('_', ' ')}: {label}", group)
            for name, labels in metrics["slices"].items()
            for label, group in labels.items()
        ]
        defined = {name for _, group in groups for name in group["metrics"]}
        columns = [name for name in _SLICE_COLUMNS[mode] if name in defined]
        rows = []
        for label, group in groups:
            values = [group["metrics"].get(name, {}).get("value") for name in columns]
            cells = ["–" if value is None else format(value, ".3f") for value in values]
            rows.append((label, f"{group['questions']:,}", cells))
        return cls(columns, rows)

    def lines(self) -> list[str]:
        """Return the lines of a text table, whose label comes last: it may be of any length."""
        if not self.rows:
            return []
        heads = [f"{name:>5}" for name in self.columns]
        lines = ["  ".join(["questions", *heads, "slice"])]
        for label, questions, cells in self.rows:
            padded = [f"{cell:>{len(head)}}" for cell, head in zip(cells, heads, strict=True)]
            lines.append("  ".join([f"{questions:>9}", *padded, label]))
        return lines


def render_report(runs: Sequence[EvaluationRun]) -> str:
    """Return a standalone HTML page with the metrics, charts and settings of runs."""
    plotted = prepare_runs(runs)
    title = "Evaluation: " + ", ".join(run.name for run in plotted)
    figures = "".join(figure._repr_html_() for figure in draw_figures(plotted))
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head>\n<body><main>\n"
        f"<h1>Evaluation</h1>\n{_runs_table(plotted)}\n"
        f'<div class="figures">{figures}</div>\n'
        f"<h2>Metrics</h2>\n{note(_NOTE)}\n{_metrics_table(plotted)}\n"
        f"{''.join(map(_slices, plotted))}"
        "</main></body></html>\n"
    )


def _runs_table(runs: Sequence[PlottedRun]) -> Html:
    rows = []
    for plotted in runs:
        run, state, plan = plotted.run, plotted.run.state, plotted.run.state.plan
        values = (
            plan.mode,
            state.corpus,
            f"{len(run.answers):,}" + ("" if state.complete else ", incomplete"),
            f"{run.unanswerable:,}",
            plan.embedder,
            _model(plan),
            plan.version,
            cut_to_minute(state.started_at),
        )
        rows.append([_run_cell(plotted), *map(cell, values)])
    heads = ("run", "mode", "corpus", "questions", "unanswerable", "embedder", "model")
    return table(rows, (*heads, "version", "started"))


def _run_cell(plotted: PlottedRun) -> Html:
    return tag("td", swatch(plotted.colour), tag("strong", plotted.name), style=NARROW)


def _model(plan: RunPlan) -> str:
    if plan.mode == "search":
        return "–"
    return "replayed" if plan.replayed else plan.model or "offline rules"


def _metrics_table(runs: Sequence[PlottedRun]) -> Html:
    metrics = [run.metrics["overall"] for run in runs]
    rows = [
        [cell(name), *(cell(format_interval(values.get(name))) for values in metrics)]
        for name in dict.fromkeys(name for values in metrics for name in values)
    ]
    for name in ("p50", "p95"):
        times = [1000 * run.metrics["latency"][name] for run in runs]
        rows.append([cell(f"latency {name}, ms"), *(cell(f"{ms:,.1f}") for ms in times)])
    return table(rows, ("metric", *(run.name for run in runs)))


def _slices(plotted: PlottedRun) -> str:
    slices = SliceTable.of(plotted.metrics, plotted.run.state.plan.mode)
    if not slices.rows:
        return ""
    rows = [[cell(value) for value in (label, n, *values)] for label, n, values in slices.rows]
    heading = tag("h2", "Slices: ", swatch(plotted.colour), plotted.name)
    return f"{heading}\n{table(rows, ('slice', 'questions', *slices.columns))}\n"
