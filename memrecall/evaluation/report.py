"""The report of runs: a standalone HTML page, and the slices of one run as text."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from memrecall.evaluation.figures import PlottedRun, draw_figures, prepare_runs, swatch
from memrecall.evaluation.metrics import format_interval
from memrecall.evaluation.runs import EvaluationRun, RunPlan
from memrecall.text.html import NARROW, Html, cell, note, table, tag
from memrecall.types import cut_to_minute

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
