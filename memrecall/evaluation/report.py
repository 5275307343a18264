"""A report of runs as one HTML file that needs nothing else: figures, plots, settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.evaluation.curves import calibration, latency_shares, recall_by_depth
from memrecall.evaluation.folder import Plan, Run
from memrecall.evaluation.metrics import summarise, trade_off
from memrecall.evaluation.plots import (
    Axis,
    Series,
    Whisker,
    line_chart,
    log_axis,
    share_axis,
    whisker_chart,
)
from memrecall.evaluation.style import STYLE

MOST_RUNS = 8  # so many colours can be told apart


@dataclass(frozen=True, slots=True)
class Shown:
    """A run with its name on the page, its colour and its figures."""

    name: str
    colour: int
    run: Run
    metrics: dict[str, Any]


def write_report(runs: Sequence[Run]) -> str:
    """The page."""
    if len(runs) > MOST_RUNS:
        raise InvalidArgument(f"{len(runs)} runs do not fit one report", hint="Give at most 8")
    for run in runs:
        if not run.answers:
            raise InvalidArgument(f"{run.name} has no answer yet", hint="Run it first")
    shown = [
        Shown(name, at, run, summarise(run.questions, run.answers, run.seconds))
        for at, (name, run) in enumerate(zip(unique_names(runs), runs, strict=True))
    ]
    title = "Evaluation: " + ", ".join(each.name for each in shown)
    figures = "".join(
        _figure(heading, said, plot, shown)
        for heading, said, plot in (
            _recall_by_depth(shown),
            _by_category(shown, "recall@10", "evidence recall at 10"),
            *_handed_off(shown),
            *_abstention(shown),
            _calibration(shown),
            _latency(shown),
        )
    )
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


def unique_names(runs: Sequence[Run]) -> list[str]:
    """What the runs are called; runs of one name are numbered."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: at + 1].count(name)})"
        for at, name in enumerate(names)
    ]


def _figure(heading: str, said: str, plot: str, shown: Sequence[Shown]) -> str:
    legend = ""
    if len(shown) > 1:
        items = "".join(f"<li>{_swatch(each)}{escape(each.name)}</li>" for each in shown)
        legend = f'<ul class="legend">{items}</ul>'
    return (
        f"<figure><figcaption><h2>{escape(heading)}</h2><p>{escape(said)}</p></figcaption>"
        f"{legend}{plot}</figure>"
    )


def _swatch(each: Shown) -> str:
    return f'<span class="swatch b{each.colour}"></span>'


def _recall_by_depth(shown: Sequence[Shown]) -> tuple[str, str, str]:
    heading = "Evidence recall against k"
    series = [
        Series(each.name, each.colour, list(enumerate(recall_by_depth(each.run), 1)))
        for each in shown
    ]
    deepest = max(len(each.points) for each in series)
    ticks = [k for k in (1, 5, 10, 20, 30, 40, 50) if k <= deepest]
    axis = Axis("k", 1, max(deepest, 2), ticks)
    plot = line_chart(heading, axis, share_axis("share of the evidence"), series)
    return heading, "Share of a question's evidence among the first k keys.", plot


def _by_category(shown: Sequence[Shown], metric: str, label: str) -> tuple[str, str, str]:
    kinds = sorted({kind for each in shown for kind in each.metrics["categories"]})
    rows = [("overall", [(each, each.metrics["overall"]) for each in shown])]
    rows += [
        (kind, [(each, each.metrics["categories"].get(kind, {})) for each in shown])
        for kind in kinds
    ]
    groups = [
        (kind, [_whisker(each, told[metric]) for each, told in figures if metric in told])
        for kind, figures in rows
    ]
    heading = f"{label[0].upper()}{label[1:]} by category"
    plot = whisker_chart(heading, label, [group for group in groups if group[1]])
    return heading, "With 95 % intervals.", plot


def _whisker(each: Shown, told: dict[str, float]) -> Whisker:
    return Whisker(each.name, each.colour, told["value"], told["low"], told["high"])


def _handed_off(shown: Sequence[Shown]) -> list[tuple[str, str, str]]:
    if not any(each.run.state.plan.mode == "recall" for each in shown):
        return []
    return [_by_category(shown, "f1", "F1 of the keys handed off")]


def _abstention(shown: Sequence[Shown]) -> list[tuple[str, str, str]]:
    """Where a threshold of the confidence may lie, if some questions have no answer."""
    heading = "Abstaining below a confidence"
    series = [
        Series(each.name, each.colour, points)
        for each in shown
        if each.run.state.plan.mode == "recall"
        and (points := trade_off(list(zip(each.run.questions, each.run.answers, strict=True))))
    ]
    if not series:
        return []
    across = share_axis("answerable questions left unanswered")
    up = share_axis("unanswerable questions noticed")
    plot = line_chart(heading, across, up, series, diagonal=True)
    return [(heading, "Each point is a threshold; on the diagonal nothing is told apart.", plot)]


def _calibration(shown: Sequence[Shown]) -> tuple[str, str, str]:
    heading = "Calibration"
    series, kinds = [], []
    for each in shown:
        kind, bins = calibration(each.run)
        kinds.append(kind)
        points = [(said, came) for said, came, _ in bins]
        series.append(Series(f"{each.name}, {kind}", each.colour, points, dots=True))
    across = share_axis(" or ".join(dict.fromkeys(kinds)))
    plot = line_chart(heading, across, share_axis("share that is evidence"), series, diagonal=True)
    said = (
        "Ten bins of equal size. A confidence is right if any evidence was handed off, a "
        "probability or score if the result is evidence (first 20). A score only ranks: "
        "it need not lie on the diagonal."
    )
    return heading, said, plot


def _latency(shown: Sequence[Shown]) -> tuple[str, str, str]:
    heading = "Latency"
    series = [Series(each.name, each.colour, latency_shares(each.run)) for each in shown]
    axis = log_axis("milliseconds", [ms for each in series for ms, _ in each.points])
    plot = line_chart(heading, axis, share_axis("share of the questions"), series)
    return heading, "Share of the questions that took at most so long.", plot


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


def _model(plan: Plan) -> str:
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
