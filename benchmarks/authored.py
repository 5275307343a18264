"""Search and recall on the cases of independent authors, by category.

    python benchmarks/authored.py fixtures/authored/enG fixtures/authored/zhG

Each question is asked of the search of messages and memories and, with the same text, of the rules'
recall. `first` and `three`: the first result, or one of the first three, is evidence; `any`: one of
the items handed off is. `none`: nothing was handed off though there is an answer; `unsure`: nothing
was sure where there is none. AUROC and ECE tell how well the confidence of a recall tells a right
first item from a wrong one.
"""

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

import numpy as np  # noqa: E402

from benchmarks.evaluation_sets import (  # noqa: E402
    WORK,
    EvaluationSet,
    open_library,
    read_evaluation_set,
    tell_progress,
)
from benchmarks.report import Figures, print_figures, write_figures  # noqa: E402
from memrecall.agent import Recaller  # noqa: E402
from memrecall.agent.result import Certainty  # noqa: E402
from memrecall.evaluation.datasets import Question  # noqa: E402
from memrecall.evaluation.metrics import area_under_roc, calibration_error  # noqa: E402
from memrecall.memory import Library  # noqa: E402
from memrecall.scope import Scope  # noqa: E402
from memrecall.search import SearchRequest  # noqa: E402


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search and a recall found for one question, and whether each is evidence."""

    question: Question
    found: list[bool]
    handed: list[bool]
    confidence: float
    is_sure: bool


async def ask(library: Library, question: Question) -> Outcome:
    """Search and recall."""
    now = question.horizon
    until = now and now + timedelta(microseconds=1)
    scope = Scope(question.user_id)
    page = await library.search(scope, SearchRequest(question.query, now=now, until=until))
    lines = question.query.split("\n")
    # A follow-up is a conversation, whose last line is the user's.
    roles = ["user" if (len(lines) - at) % 2 else "assistant" for at in range(len(lines))]
    messages = [{"role": role, "content": line} for role, line in zip(roles, lines, strict=True)]
    recaller = Recaller(library, scope, clock=lambda: now or datetime.now(UTC))
    result = await recaller.recall(messages)
    return Outcome(
        question,
        [hit.key in question.evidence for hit in page.results],
        [memory.memory_key in question.evidence for memory in result.memories],
        result.confidence,
        result.certainty is Certainty.SURE,
    )


async def run(evaluation_set: EvaluationSet, work: Path) -> list[Outcome]:
    """Ask all questions of a set."""
    outcomes = []
    async with open_library(evaluation_set, work) as library:
        await library.engine.load_embedder()
        for done, question in enumerate(evaluation_set.questions, 1):
            outcomes.append(await ask(library, question))
            tell_progress(evaluation_set.name, done, len(evaluation_set.questions))
    return outcomes


def summarize(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the figures of some outcomes."""
    answerable = [outcome for outcome in outcomes if outcome.question.evidence]
    absent = [outcome for outcome in outcomes if not outcome.question.evidence]
    figures = {"questions": float(len(outcomes))}
    if answerable:
        figures |= {
            "search first": _mean([any(o.found[:1]) for o in answerable]),
            "search three": _mean([any(o.found[:3]) for o in answerable]),
            "search ten": _mean([any(o.found[:10]) for o in answerable]),
            "recall first": _mean([any(o.handed[:1]) for o in answerable]),
            "recall three": _mean([any(o.handed[:3]) for o in answerable]),
            "recall any": _mean([any(o.handed) for o in answerable]),
            "items": _mean([len(o.handed) for o in answerable]),
            "none": _mean([not o.handed for o in answerable]),
        }
    if absent:
        figures["unsure"] = _mean([not o.is_sure for o in absent])
    right = np.array([float(any(o.handed[:1])) for o in outcomes])
    if 0 < right.sum() < len(right):
        chances = np.array([outcome.confidence for outcome in outcomes])
        figures["auroc"] = area_under_roc(chances, right)
        figures["ece"] = calibration_error(chances, right)
    return figures


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def main() -> None:
    """Print a table for each author: all questions, then each category."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--work", type=Path, default=WORK, help="where imported sets are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Figures] = {}
    for folder in options.folders:
        outcomes = asyncio.run(run(read_evaluation_set(folder), options.work))
        categories: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in outcomes:
            categories[outcome.question.category or "-"].append(outcome)
        rows = {name: summarize(given) for name, given in sorted(categories.items())}
        tables[folder.name] = {"all": summarize(outcomes), **rows}
        print_figures(folder.name, tables[folder.name])
    if options.json is not None:
        write_figures(options.json, tables)


if __name__ == "__main__":
    main()
