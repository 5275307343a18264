"""Recall behaviour on labelled questions: handoffs, larger windows and abstentions.

    python benchmarks/behaviours.py                          the questions of fixtures/recall
    python benchmarks/behaviours.py --user wei --json out.json

Every question runs through `Recaller` with the rules and the local embedder. Their format is that
of `fixtures/recall/README.md`. Only aggregated figures are shown, to avoid tuning for single
questions.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from benchmarks.report import number, say  # noqa: E402
from memrecall.agent import Recaller, RecallResult  # noqa: E402
from memrecall.agent.trace import ResultEvent  # noqa: E402
from memrecall.memory import Importer, Library  # noqa: E402
from memrecall.scope import Permission, Scope  # noqa: E402
from memrecall.settings import load_settings  # noqa: E402
from memrecall.types import NewMemory, Origin, parse_time  # noqa: E402

FIXTURE = REPOSITORY / "fixtures" / "recall"
BINS = 10
ALL = "all"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A request and its labels."""

    user_id: str
    session_id: str | None
    kind: str
    conversation: list[Json]
    evidence: frozenset[str]
    acceptable: frozenset[str]
    answerable: bool
    should_abstain: bool
    should_expand: bool
    now: datetime
    zone: str | None

    @property
    def language(self) -> str:
        """Chinese if the request contains Chinese, as in a recall."""
        request = self.conversation[-1]["content"]
        return "zh" if any("\u4e00" <= character <= "\u9fff" for character in request) else "en"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a question."""

    question: Question
    keys: tuple[str, ...]
    confidence: float
    abstained: bool
    expanded: bool
    tool_calls: float

    @property
    def hit(self) -> bool:
        """True if any evidence was handed off."""
        return not self.question.evidence.isdisjoint(self.keys)

    @property
    def evidence_recall(self) -> float:
        """The share of the evidence that was handed off."""
        return len(self.question.evidence.intersection(self.keys)) / len(self.question.evidence)

    @property
    def right_keys(self) -> list[bool]:
        """For each key handed off, whether it is acceptable."""
        right = self.question.evidence | self.question.acceptable
        return [key in right for key in self.keys]


def read_questions(file: Path, user: str | None) -> list[Question]:
    """Read the questions of a file, optionally of one user only."""
    rows = [row for row in _read_lines(file) if user in (None, row["user_id"])]
    return [_labelled(row) for row in rows]


def _labelled(row: Json) -> Question:
    labels = row["labels"]
    return Question(
        user_id=row["user_id"],
        session_id=row.get("session_id"),
        kind=row["kind"],
        conversation=row["conversation"],
        evidence=frozenset(row["evidence"]),
        acceptable=frozenset(row["acceptable"]),
        answerable=row["answerable"],
        should_abstain=labels["abstain"],
        should_expand=labels["expand"],
        now=parse_time(row["now"]),
        zone=row.get("zone"),
    )


def _read_lines(file: Path) -> list[Json]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


async def fill(library: Library, corpus: Path, questions: Sequence[Question]) -> None:
    """Import a corpus with its memories."""
    report = await Importer(library).run(corpus)
    if report.bad:
        raise SystemExit(f"{corpus}:{report.bad[0].line}: {report.bad[0].reason}")
    memories = corpus.with_name("memories.jsonl")
    for row in _read_lines(memories) if memories.exists() else ():
        scope = Scope(row.pop("user_id"), permissions=frozenset({Permission.SENSITIVE}))
        memory = NewMemory.model_validate(row)
        await library.add_memories(scope, [memory], origin=Origin.IMPORT, actor="behaviours")
    for user, zone in {(q.user_id, q.zone) for q in questions if q.zone is not None}:
        await library.store.owners.set_time_zone(user, zone)
    await library.vectors.settle()


async def ask(library: Library, question: Question) -> Outcome:
    """Recall for one question."""
    scope = Scope(question.user_id, session_id=question.session_id)
    # Memories are stored at the current time: `as_of` would hide those of the fixture.
    recaller = Recaller(library, scope, clock=lambda: question.now)
    result = await recaller.recall(question.conversation)
    return Outcome(
        question=question,
        keys=tuple(dict.fromkeys(result.handoff.relevant_memory_keys)),
        confidence=result.confidence,
        abstained=result.abstained,
        expanded=_is_expanded(result),
        tool_calls=result.usage["tool_calls"],
    )


def _is_expanded(result: RecallResult) -> bool:
    """Return True if a larger window was asked for and granted."""
    return any(
        event.data["tool"] == "expand_context_window" and event.data["output"].get("approved")
        for event in result.trace.events
        if isinstance(event, ResultEvent) and not event.data["error"]
    )


def _mean(values: Iterable[float]) -> float | None:
    items = list(values)
    return sum(items) / len(items) if items else None


def calibration_error(outcomes: Iterable[Outcome]) -> float | None:
    """Return the expected calibration error of the confidence, in ten bins."""
    bins: dict[int, list[Outcome]] = defaultdict(list)
    answers = [outcome for outcome in outcomes if outcome.keys]
    for outcome in answers:
        bins[min(int(outcome.confidence * BINS), BINS - 1)].append(outcome)
    distances = (
        abs(sum(o.confidence for o in members) - sum(o.hit for o in members))
        for members in bins.values()
    )
    return sum(distances) / len(answers) if answers else None


def summarise(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """Return the metrics of outcomes; None where there is nothing to measure."""
    answerable = [o for o in outcomes if o.question.answerable]
    abstained = [o for o in outcomes if o.abstained]
    unanswerable = [o for o in outcomes if o.question.should_abstain]
    return {
        "questions": len(outcomes),
        "hit": _mean(o.hit for o in answerable),
        "evidence recall": _mean(o.evidence_recall for o in answerable),
        "key precision": _mean(right for o in outcomes for right in o.right_keys),
        "keys": _mean(len(o.keys) for o in outcomes),
        "expansion precision": _mean(o.question.should_expand for o in outcomes if o.expanded),
        "expansion recall": _mean(o.expanded for o in outcomes if o.question.should_expand),
        "abstention precision": _mean(not o.question.answerable for o in abstained),
        "abstention recall": _mean(o.abstained for o in unanswerable),
        "calibration error": calibration_error(outcomes),
        "tool calls": _mean(o.tool_calls for o in outcomes),
    }


def _grouped(outcomes: Sequence[Outcome]) -> dict[str, dict[str, list[Outcome]]]:
    """Group by language and kind; the total of a language comes last."""
    groups: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        groups[outcome.question.language][outcome.question.kind].append(outcome)
    return {
        language: {**kinds, ALL: [o for members in kinds.values() for o in members]}
        for language, kinds in sorted(groups.items())
    }


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Print the metrics by language and kind."""
    console = Console(width=None if sys.stdout.isatty() else 170)
    table = Table(title="memrecall: recall, offline", title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in summarise(()):
        table.add_column(heading, justify="right")
    for language, kinds in _grouped(outcomes).items():
        table.add_section()
        for kind, members in kinds.items():
            table.add_row(f"{language} {kind}", *map(_cell, summarise(members).values()))
    console.print(table)


def _cell(value: float | None) -> str:
    return "" if value is None else number(value)


def write_json(outcomes: Sequence[Outcome], file: Path) -> None:
    """Write the same figures as JSON."""
    content = {
        language: {kind: summarise(members) for kind, members in kinds.items()}
        for language, kinds in _grouped(outcomes).items()
    }
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


async def run(options: argparse.Namespace) -> list[Outcome]:
    """Ask every question."""
    questions = read_questions(FIXTURE / "questions.jsonl", options.user)
    if not questions:
        raise SystemExit(f"{FIXTURE} has no question of {options.user or 'anybody'}")
    with tempfile.TemporaryDirectory(prefix="memrecall-behaviours-") as folder:
        location = options.db or str(Path(folder) / "recall.db")
        loaded = load_settings({"embedder": options.embedder}, environment={})
        settings = replace(loaded.settings, db=location, model="", trace_days=0)
        async with await Library.open(settings) as library:
            say("importing")
            await fill(library, FIXTURE / "history.jsonl", questions)
            say(f"{len(questions)} questions")
            return [await ask(library, question) for question in questions]


def main() -> None:
    """Parse the options, run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--user", help="only this user's questions")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--db", help="keep the database here, for the next run")
    parser.add_argument("--embedder", default="local")
    options = parser.parse_args()
    outcomes = asyncio.run(run(options))
    print_table(outcomes)
    if options.json is not None:
        write_json(outcomes, options.json)


if __name__ == "__main__":
    main()
