"""HTML of runs and comparisons: standalone reports and notebook displays."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from memrecall.evaluation.compare import OVERALL, Change, MetricChanges, worst_question_changes
from memrecall.evaluation.figures import Figure, PlottedRun, draw_figures, prepare_runs
from memrecall.evaluation.metrics import SUMMARY_METRICS
from memrecall.evaluation.plots import STYLE, render_inline
from memrecall.evaluation.runs import EvaluationRun, RunPlan
from memrecall.text.html import (
    AMBER,
    DIM,
    GREEN,
    NARROW,
    RED,
    TITLE,
    WIDE,
    Html,
    Say,
    box,
    cell,
    folded,
    labels,
    note,
    table,
    tag,
)
from memrecall.text.language import language_of_most
from memrecall.text_length import single_line

_MAX_QUESTIONS = 10  # listed by a comparison
_LABELS = {
    "questions": ("questions", "个问题"),
    "unanswerable": ("without an answer", "个没有答案"),
    "incomplete": ("incomplete", "未完成"),
    "none": ("no answers yet", "还没有回答"),
    "metric": ("metric", "指标"),
    "value": ("value", "数值"),
    "interval": ("95 % interval", "95 % 区间"),
    "before": ("before", "之前"),
    "after": ("after", "之后"),
    "difference": ("difference", "变化"),
    "better": ("better", "更好"),
    "worse": ("worse", "更差"),
    "not_significant": ("not significant", "不显著"),
    "worst": ("Largest losses of", "下降最多的问题"),
    "categories": ("By category", "按类别"),
}
_NOTE = (
    "With 95 % bootstrap intervals over questions. Questions without evidence do not count for "
    "the metrics about evidence. Hover over a plot to see its values."
)


def render_report(runs: Sequence[EvaluationRun]) -> str:
    """Return a standalone HTML page with the metrics, plots and settings of runs."""
    plotted = prepare_runs(runs)
    title = "Evaluation: " + ", ".join(run.name for run in plotted)
    figures = "".join(_figure(figure, plotted) for figure in draw_figures(plotted))
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body><main>\n"
        f"<h1>Evaluation</h1>\n{_runs_table(plotted)}\n"
        f'<div class="figures">{figures}</div>\n'
        f"<h2>Metrics</h2>\n<p>{_NOTE}</p>\n{_metrics_table(plotted)}\n"
        "</main></body></html>\n"
    )


def _figure(figure: Figure, runs: Sequence[PlottedRun]) -> str:
    legend = ""
    if len(runs) > 1:
        items = "".join(f"<li>{_swatch(run)}{escape(run.name)}</li>" for run in runs)
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
            f"{_count_unanswerable(run):,}",
            plan.embedder,
            _model(plan),
            plan.version,
            state.started_at[:16].replace("T", " "),
        )
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        label = f"{_swatch(plotted)}{escape(plotted.name)}"
        rows.append(f'<tr><th scope="row">{label}</th>{cells}</tr>')
    heads = ("run", "mode", "corpus", "questions", "unanswerable", "embedder", "model")
    return _table((*heads, "version", "started"), rows)


def _count_unanswerable(run: EvaluationRun) -> int:
    return sum(not question.answerable for question in run.questions)


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


def render_run(run: EvaluationRun) -> str:
    """Return the notebook display of a run: its main metrics and a plot by category."""
    say = _labels(run)
    plan, unanswerable = run.state.plan, _count_unanswerable(run)
    facts = [plan.mode, plan.retrieval if plan.mode == "search" else "", plan.embedder]
    facts += [f"{len(run.questions):,} {say('questions')}"]
    facts += [f"{unanswerable:,} {say('unanswerable')}"] if unanswerable else []
    facts += [] if run.state.complete else [say("incomplete")]
    head = tag("div", run.name, style=TITLE)
    about = note(" · ".join(fact for fact in facts if fact))
    if not run.answers:
        return str(box(head, about, note(say("none"))))
    plotted = prepare_runs([run])
    figures = {figure.name: figure for figure in draw_figures(plotted)}
    metrics = plotted[0].metrics["overall"]
    rows = [
        [cell(name), cell(f"{metric['value']:.3f}"), _interval_cell(metric)]
        for name in SUMMARY_METRICS[plan.mode]
        if (metric := metrics.get(name))
    ]
    plot = Html(render_inline(figures["by_category"].plot))
    heads = [say("metric"), say("value"), say("interval")]
    return str(box(head, about, table(rows, heads), folded(say("categories"), plot)))


def render_changes(changes: MetricChanges) -> str:
    """Return the notebook display of a comparison: all metrics, then the largest losses."""
    first, second = changes.first, changes.second
    say = _labels(first)
    overall = [change for change in changes if change.category == OVERALL]
    heads = [say(name) for name in ("metric", "before", "after", "difference", "interval")]
    parts = [
        tag("div", f"{first.name} → {second.name}", style=TITLE),
        table((_change_row(change, say) for change in overall), heads),
    ]
    metric = "f1" if any(change.metric == "f1" for change in overall) else "recall@10"
    if losses := worst_question_changes(first, second, metric, _MAX_QUESTIONS):
        rows = [
            [
                cell(f"{loss.before:.2f} → {loss.after:.2f}"),
                cell(loss.category, f"{NARROW};{DIM}"),
                cell(single_line(loss.query, 200), WIDE),
            ]
            for loss in losses
        ]
        parts.append(folded(f"{say('worst')} {metric} ({len(losses)})", table(rows)))
    return str(box(*parts))


def _labels(run: EvaluationRun) -> Say:
    return labels(_LABELS, language_of_most(question.query for question in run.questions))


def _interval_cell(metric: Mapping[str, Any]) -> Html:
    return cell(f"{metric['low']:.3f} – {metric['high']:.3f}", f"{NARROW};{DIM}")


def _change_row(change: Change, say: Say) -> Sequence[Html]:
    colour, verdict = AMBER, say("not_significant")
    if change.is_significant:
        colour, verdict = (GREEN, say("better")) if change.is_better else (RED, say("worse"))
    return [
        cell(change.metric),
        cell(f"{change.before:.3f}"),
        cell(f"{change.after:.3f}"),
        cell(f"{change.difference:+.3f} {verdict}", f"{NARROW};color:{colour}"),
        cell(f"{change.low:+.3f} – {change.high:+.3f}", f"{NARROW};{DIM}"),
    ]
