"""The report of runs: a standalone HTML page, and the slices of one run as text."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from memrecall.evaluation.figures import Figure, PlottedRun, draw_figures, prepare_runs
from memrecall.evaluation.plots import STYLE
from memrecall.evaluation.runs import EvaluationRun, RunPlan
from memrecall.types import cut_to_minute

_NOTE = (
    "With 95 % bootstrap intervals over questions. Questions without evidence do not count for "
    "the metrics about evidence. Hover over a plot to see its values."
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

    def html(self) -> str:
        """Return an HTML table."""
        rows = []
        for label, questions, values in self.rows:
            cells = "".join(f"<td>{value}</td>" for value in (questions, *values))
            rows.append(f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>')
        return _table(("slice", "questions", *self.columns), rows, "numbers")


def render_report(runs: Sequence[EvaluationRun]) -> str:
    """Return a standalone HTML page with the metrics, plots and settings of runs."""
    plotted = prepare_runs(runs)
    title = "Evaluation: " + ", ".join(run.name for run in plotted)
    figures = "".join(_figure(figure) for figure in draw_figures(plotted))
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body><main>\n"
        f"<h1>Evaluation</h1>\n{_runs_table(plotted)}\n"
        f'<div class="figures">{figures}</div>\n'
        f"<h2>Metrics</h2>\n<p>{_NOTE}</p>\n{_metrics_table(plotted)}\n"
        f"{''.join(map(_slices, plotted))}"
        "</main></body></html>\n"
    )


def _figure(figure: Figure) -> str:
    legend = ""
    if len(figure.runs) > 1:
        items = "".join(f"<li>{_swatch(run)}{escape(run.name)}</li>" for run in figure.runs)
        legend = f'<ul class="legend">{items}</ul>'
    return (
        f"<figure><figcaption><h2>{escape(figure.heading)}</h2><p>{escape(figure.caption)}</p>"
        f"</figcaption>{legend}{figure.plot}</figure>"
    )


def _swatch(run: PlottedRun) -> str:
    return f'<span class="swatch b{run.colour}"></span>'


def _runs_table(runs: Sequence[PlottedRun]) -> str:
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
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        label = f"{_swatch(plotted)}{escape(plotted.name)}"
        rows.append(f'<tr><th scope="row">{label}</th>{cells}</tr>')
    heads = ("run", "mode", "corpus", "questions", "unanswerable", "embedder", "model")
    return _table((*heads, "version", "started"), rows)


def _model(plan: RunPlan) -> str:
    if plan.mode == "search":
        return "–"
    return "replayed" if plan.replayed else plan.model or "offline rules"


def _metrics_table(runs: Sequence[PlottedRun]) -> str:
    metrics = [run.metrics["overall"] for run in runs]
    rows = []
    for name in dict.fromkeys(name for values in metrics for name in values):
        cells = "".join(f"<td>{_format_metric(values.get(name))}</td>" for values in metrics)
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    for name in ("p50", "p95"):
        times = [1000 * run.metrics["latency"][name] for run in runs]
        cells = "".join(f"<td>{milliseconds:,.1f}</td>" for milliseconds in times)
        rows.append(f'<tr><th scope="row">latency {name}, ms</th>{cells}</tr>')
    return _table(("", *(run.name for run in runs)), rows, "numbers")


def _slices(plotted: PlottedRun) -> str:
    table = SliceTable.of(plotted.metrics, plotted.run.state.plan.mode)
    if not table.rows:
        return ""
    return f"<h2>Slices: {_swatch(plotted)}{escape(plotted.name)}</h2>\n{table.html()}\n"


def _format_metric(metric: Mapping[str, float] | None) -> str:
    if metric is None:
        return "–"
    value, low, high = (
        f"{number:,.0f}" if abs(metric["value"]) >= 100 else f"{number:.3f}"
        for number in (metric["value"], metric["low"], metric["high"])
    )
    return f'{value} <span class="interval">{low} to {high}</span>'


def _table(heads: Sequence[str], rows: Sequence[str], kind: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
