"""A report of runs as one HTML file that needs nothing else: figures, plots, settings."""

from collections.abc import Sequence
from html import escape

from memrecall.evaluation.figures import Figure, Shown, draw_figures, shown_runs
from memrecall.evaluation.plots import STYLE
from memrecall.evaluation.runs import EvaluationRun, RunPlan


def write_report(runs: Sequence[EvaluationRun]) -> str:
    """The page."""
    shown = shown_runs(runs)
    title = "Evaluation: " + ", ".join(each.name for each in shown)
    figures = "".join(_figure(figure, shown) for figure in draw_figures(shown))
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body><main>\n"
        f"<h1>Evaluation</h1>\n{_runs_table(shown)}\n"
        f'<div class="figures">{figures}</div>\n'
        f"<h2>Figures</h2>\n<p>{_NOTE}</p>\n{_metrics_table(shown)}\n"
        "</main></body></html>\n"
    )


_NOTE = (
    "With 95 % bootstrap intervals over questions. Questions without evidence are left out of the "
    "figures about evidence. Plots tell values where the pointer rests."
)


def _figure(figure: Figure, shown: Sequence[Shown]) -> str:
    legend = ""
    if len(shown) > 1:
        items = "".join(f"<li>{_swatch(each)}{escape(each.name)}</li>" for each in shown)
        legend = f'<ul class="legend">{items}</ul>'
    return (
        f"<figure><figcaption><h2>{escape(figure.heading)}</h2><p>{escape(figure.said)}</p>"
        f"</figcaption>{legend}{figure.plot}</figure>"
    )


def _swatch(each: Shown) -> str:
    return f'<span class="swatch b{each.colour}"></span>'


def _runs_table(shown: Sequence[Shown]) -> str:
    rows = []
    for each in shown:
        state, plan = each.run.state, each.run.state.plan
        told = (
            plan.mode,
            state.corpus,
            f"{len(each.run.answers):,}" + ("" if state.complete else ", incomplete"),
            f"{sum(not question.answerable for question in each.run.questions):,}",
            plan.embedder,
            _model(plan),
            plan.version,
            state.started_at[:16].replace("T", " "),
        )
        cells = "".join(f"<td>{escape(value)}</td>" for value in told)
        rows.append(f'<tr><th scope="row">{_swatch(each)}{escape(each.name)}</th>{cells}</tr>')
    heads = ("run", "mode", "corpus", "questions", "unanswerable", "embedder", "model")
    return _table((*heads, "version", "started"), rows)


def _model(plan: RunPlan) -> str:
    if plan.mode == "search":
        return "–"
    return "replayed" if plan.replayed else plan.model or "offline rules"


def _metrics_table(shown: Sequence[Shown]) -> str:
    measured = [each.metrics["overall"] for each in shown]
    rows = []
    for metric in dict.fromkeys(name for figures in measured for name in figures):
        cells = "".join(f"<td>{_told(figures.get(metric))}</td>" for figures in measured)
        rows.append(f'<tr><th scope="row">{escape(metric)}</th>{cells}</tr>')
    for name in ("p50", "p95"):
        times = [1000 * each.metrics["latency"][name] for each in shown]
        cells = "".join(f"<td>{milliseconds:,.1f}</td>" for milliseconds in times)
        rows.append(f'<tr><th scope="row">latency {name}, ms</th>{cells}</tr>')
    return _table(("", *(each.name for each in shown)), rows, "numbers")


def _told(figure: dict[str, float] | None) -> str:
    if figure is None:
        return "–"
    value, low, high = (
        f"{number:,.0f}" if abs(figure["value"]) >= 100 else f"{number:.3f}"
        for number in (figure["value"], figure["low"], figure["high"])
    )
    return f'{value} <span class="interval">{low} to {high}</span>'


def _table(heads: Sequence[str], rows: Sequence[str], kind: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
