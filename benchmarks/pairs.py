"""Search and recall on labelled folders: order, certainty, "none", the threshold, and changes.

    python benchmarks/pairs.py FOLDER… [--json FILE]

A folder is an evaluation set (docs/evaluation.md). Each question is asked of `Memory.search` and of
`recall` without a model. The figures of a set are shares:

- `search first`, `three`, `ten`: of answerable questions, evidence among the first results;
- `recall first`, `any`: the same of the items handed off;
- `sure`: of answerable questions, those with this certainty; `sure right`: how often its first item
  is evidence, of all questions; `sure absent`: of absent questions;
- `none answerable`, `none absent`: questions for which nothing is handed off;
- `auroc`: how well the confidence tells answerable questions from absent ones;
- `kept`: of the evidence among the first ten, what the default threshold of 0.5 keeps; `hidden`:
  of the questions with such evidence, those that lose all of it; `empty`: questions without any
  result at this threshold.

Questions of the categories `change` and `seeming` also name the `other` line of a pair: after a
change the later line is right, after what only seems one the earlier line is.

- `change first`, `seeming first`: the right line is before the other one and first of all results;
- `later handed`: of changes, the later line is among the items;
- `sure old`: of changes, those called sure with the old line and without the new one;
  `sure old first`: those called sure whose first item is the old line.

Only what applications use is called, so that the same file measures an earlier checkout:

    cd EARLIER && PYTHONPATH=. python /path/to/benchmarks/pairs.py FOLDER…
"""

import sys

if not __package__:  # run as a file: this folder has modules named like those of the library
    sys.path.pop(0)

import argparse
import asyncio
import json
import tempfile
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from memrecall import AsyncMemory, recall
from memrecall.evaluation.datasets import Question, import_corpus, read_corpus, read_questions
from memrecall.evaluation.metrics import area_under_roc
from memrecall.importers.jsonl import read_entry
from memrecall.memory import Library
from memrecall.settings import Settings

THRESHOLD = 0.5  # the default of the tools
_FIRST = 10
_WORK = Path(tempfile.gettempdir()) / "memrecall-pairs"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search and a recall returned for one question."""

    category: str
    evidence: frozenset[str]
    other: frozenset[str]
    found: list[str]
    scores: list[float]
    items: list[str]
    certainty: str
    confidence: float

    @property
    def is_sure(self) -> bool:
        """Whether the recall calls its first item sure."""
        return self.certainty == "sure"

    @property
    def evidence_scores(self) -> list[float]:
        """The scores of the evidence among the first results."""
        first = zip(self.found[:_FIRST], self.scores, strict=False)
        return [score for key, score in first if key in self.evidence]


async def ask(library: Library, question: Question, other: frozenset[str]) -> Answer:
    """Search and recall as of the time of the question."""
    memory = AsyncMemory(library=library, user_id=question.user_id)
    now = question.horizon
    page = await memory.search(question.query, limit=_FIRST, as_of=now, reference_date=now)
    result = await recall(
        as_messages(question.query),
        user_id=question.user_id,
        library=library,
        as_of=now,
        clock=lambda: now or datetime.now(UTC),
    )
    return Answer(
        question.category or "-",
        frozenset(question.evidence),
        other,
        [item["id"] for item in page["results"]],
        [item["score"] for item in page["results"]],
        [memory.memory_key for memory in result.memories],
        str(result.certainty),
        result.confidence,
    )


def as_messages(query: str) -> list[dict[str, str]]:
    """Return a question as messages; a follow-up is a conversation with the user's line last."""
    lines = query.split("\n")
    roles = ["user" if (len(lines) - at) % 2 else "assistant" for at in range(len(lines))]
    return [{"role": role, "content": line} for role, line in zip(roles, lines, strict=True)]


@asynccontextmanager
async def open_set(
    folder: Path, work: Path
) -> AsyncGenerator[tuple[Library, Sequence[Question]], None]:
    """Open the library of a folder, with its questions; an imported corpus is reused."""
    questions = read_questions(folder / "queries.jsonl").questions
    corpus = read_corpus(folder / "corpus.jsonl", read_entry)
    database = work / f"{folder.name}-{corpus.sha256[:12]}.db"
    settings = Settings(db=str(database), embedder="local", durability="normal", snapshots=False)
    async with await Library.open(settings) as library:
        stats = await library.stats()
        if int(stats["messages"]) + int(stats["memories"]) < corpus.size:
            await import_corpus(library, corpus, lambda _: None)
        await library.engine.load_embedder()
        yield library, questions


async def run(folder: Path, work: Path) -> list[Answer]:
    """Ask all questions of a folder."""
    others = _read_others(folder / "queries.jsonl")
    async with open_set(folder, work) as (library, questions):
        return [await ask(library, question, others[question.query_id]) for question in questions]


def _read_others(file: Path) -> dict[str, frozenset[str]]:
    rows: list[dict[str, Any]] = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return {row["query_id"]: frozenset(row.get("other", ())) for row in rows}


def summarize(answers: Sequence[Answer]) -> dict[str, float]:
    """Return the figures of some questions; NaN where there are no such questions."""
    answerable = [answer for answer in answers if answer.evidence]
    absent = [answer for answer in answers if not answer.evidence]
    sure = [answer for answer in answers if answer.is_sure]
    found = [answer for answer in answerable if answer.evidence_scores]
    scores = [score for answer in found for score in answer.evidence_scores]
    return {
        "questions": float(len(answers)),
        "search first": share(_has(a.found[:1], a.evidence) for a in answerable),
        "three": share(_has(a.found[:3], a.evidence) for a in answerable),
        "ten": share(_has(a.found[:_FIRST], a.evidence) for a in answerable),
        "recall first": share(_has(a.items[:1], a.evidence) for a in answerable),
        "any": share(_has(a.items, a.evidence) for a in answerable),
        "items": share(float(len(a.items)) for a in answerable),
        "sure": share(a.is_sure for a in answerable),
        "sure right": share(_has(a.items[:1], a.evidence) for a in sure),
        "sure absent": share(a.is_sure for a in absent),
        "none answerable": share(not a.items for a in answerable),
        "none absent": share(not a.items for a in absent),
        "auroc": _auroc(answerable, absent),
        "kept": share(score >= THRESHOLD for score in scores),
        "hidden": share(max(a.evidence_scores) < THRESHOLD for a in found),
        "empty": share(max(a.scores, default=0.0) < THRESHOLD for a in answers),
        **_summarize_pairs(answers),
    }


def _summarize_pairs(answers: Sequence[Answer]) -> dict[str, float]:
    change, seeming = (
        [answer for answer in answers if answer.category == name] for name in ("change", "seeming")
    )
    return {
        "change first": share(_has(a.found[:1], a.evidence) for a in change),
        "seeming first": share(_has(a.found[:1], a.evidence) for a in seeming),
        "later handed": share(_has(a.items, a.evidence) for a in change),
        "sure old": share(
            a.is_sure and _has(a.items, a.other) and not _has(a.items, a.evidence) for a in change
        ),
        "sure old first": share(a.is_sure and _has(a.items[:1], a.other) for a in change),
    }


def _auroc(answerable: Sequence[Answer], absent: Sequence[Answer]) -> float:
    if not answerable or not absent:
        return float("nan")
    confidences = np.array([answer.confidence for answer in (*answerable, *absent)])
    is_answerable = np.array([1.0] * len(answerable) + [0.0] * len(absent))
    return area_under_roc(confidences, is_answerable)


def _has(keys: Sequence[str], wanted: frozenset[str]) -> bool:
    return not wanted.isdisjoint(keys)


def share(values: Iterable[bool] | Iterable[float]) -> float:
    """Return the mean; NaN of nothing."""
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers) if numbers else float("nan")


def print_table(rows: dict[str, dict[str, float]]) -> None:
    """Print a line for each figure and a column for each set: there are more figures than sets."""
    names = next(iter(rows.values()))
    print("".ljust(18), *(name[:12].rjust(12) for name in rows))
    for name in names:
        print(name.ljust(18), *(f"{figures[name]:12.3f}" for figures in rows.values()))


def main() -> None:
    """Print the figures of each folder, of all of them together, and of each category."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--work", type=Path, default=_WORK, help="where imported sets are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    sets = {
        folder.resolve().name: asyncio.run(run(folder.resolve(), options.work))
        for folder in options.folders
    }
    answers = [answer for given in sets.values() for answer in given]
    rows = {name: summarize(given) for name, given in sets.items()}
    rows |= {"all": summarize(answers)} if len(sets) > 1 else {}
    print_table(rows)
    categories: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        categories[answer.category].append(answer)
    print()
    print_table({name: summarize(given) for name, given in sorted(categories.items())})
    if options.json is not None:
        text = json.dumps(rows, indent=2).replace("NaN", "null")
        options.json.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
