"""Runs and comparisons as a notebook shows them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memrecall.evaluation.figures import draw_figures, shown_runs
from memrecall.evaluation.plots import inline_of
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

if TYPE_CHECKING:
    from memrecall.evaluation.compare import Change, MetricChanges
    from memrecall.evaluation.runs import EvaluationRun

_WORST = 10  # questions that a comparison names
_SHOWN = {
    "search": ("recall@1", "recall@5", "recall@10", "recall@20", "hit@10", "mrr", "ndcg@10"),
    "recall": ("f1", "precision", "recall", "recall@10", "abstention_accuracy", "auroc", "ece"),
}
_LABELS = {
    "questions": ("questions", "个问题"),
    "unanswerable": ("without an answer", "个没有答案"),
    "incomplete": ("incomplete", "未完成"),
    "none": ("no answer yet", "还没有回答"),
    "figure": ("figure", "指标"),
    "value": ("value", "数值"),
    "interval": ("95 % interval", "95 % 区间"),
    "before": ("before", "之前"),
    "after": ("after", "之后"),
    "difference": ("difference", "变化"),
    "question": ("question", "问题"),
    "better": ("better", "更好"),
    "worse": ("worse", "更差"),
    "unsure": ("within chance", "可能只是偶然"),
    "worst": ("Questions that lost most of", "下降最多的问题"),
    "categories": ("By category", "按类别"),
}


def run_html(run: "EvaluationRun") -> str:
    """A run: what was asked, its main figures with intervals, and a plot by category."""
    say = _say(run)
    plan = run.state.plan
    parts = [plan.mode, plan.retrieval if plan.mode == "search" else "", plan.embedder]
    parts += [f"{len(run.questions):,} {say('questions')}"]
    unanswerable = sum(not question.answerable for question in run.questions)
    parts += [f"{unanswerable:,} {say('unanswerable')}"] if unanswerable else []
    parts += [] if run.state.complete else [say("incomplete")]
    head = tag("div", run.name, style=TITLE)
    about = note(" · ".join(part for part in parts if part))
    if not run.answers:
        return str(box(head, about, note(say("none"))))
    shown = shown_runs([run])
    figures = {figure.name: figure for figure in draw_figures(shown)}
    measured = shown[0].metrics["overall"]
    rows = [
        [cell(name), cell(f"{told['value']:.3f}"), _interval(told)]
        for name in _SHOWN[plan.mode]
        if (told := measured.get(name))
    ]
    plot = Html(inline_of(figures["by_category"].plot))
    heads = [say("figure"), say("value"), say("interval")]
    return str(box(head, about, table(rows, heads), folded(say("categories"), plot)))


def changes_html(changes: "MetricChanges") -> str:
    """A comparison: every figure over all questions, then the questions that lost most."""
    from memrecall.evaluation.compare import OVERALL, worsened

    first, second = changes.first, changes.second
    say = _say(first)
    overall = [change for change in changes if change.category == OVERALL]
    heads = [say(name) for name in ("figure", "before", "after", "difference", "interval")]
    parts = [
        tag("div", f"{first.name} → {second.name}", style=TITLE),
        table((_change_row(change, say) for change in overall), heads),
    ]
    metric = "f1" if any(change.metric == "f1" for change in overall) else "recall@10"
    if losers := worsened(first, second, metric, _WORST):
        rows = [
            [
                cell(f"{each.before:.2f} → {each.after:.2f}"),
                cell(each.category, f"{NARROW};{DIM}"),
                cell(single_line(each.query, 200), WIDE),
            ]
            for each in losers
        ]
        parts.append(folded(f"{say('worst')} {metric} ({len(losers)})", table(rows)))
    return str(box(*parts))


def _say(run: "EvaluationRun") -> Say:
    return labels(_LABELS, language_of_most(question.query for question in run.questions))


def _interval(told: Mapping[str, Any]) -> Html:
    return cell(f"{told['low']:.3f} – {told['high']:.3f}", f"{NARROW};{DIM}")


def _change_row(change: "Change", say: Say) -> Sequence[Html]:
    colour, told = AMBER, say("unsure")
    if change.is_sure:
        colour, told = (GREEN, say("better")) if change.is_better else (RED, say("worse"))
    return [
        cell(change.metric),
        cell(f"{change.before:.3f}"),
        cell(f"{change.after:.3f}"),
        cell(f"{change.difference:+.3f} {told}", f"{NARROW};color:{colour}"),
        cell(f"{change.low:+.3f} – {change.high:+.3f}", f"{NARROW};{DIM}"),
    ]
