"""Recall behaviour on labelled questions: handoffs, abstentions and tool use.

    python benchmarks/behaviours.py                          the questions of fixtures/recall
    python benchmarks/behaviours.py --user wei --json out.json
    python benchmarks/behaviours.py --corpus DIR/corpus.jsonl --questions DIR/queries.jsonl

Every question runs through `Recaller` with the offline client and the local embedder. Questions
have the format of `fixtures/recall/README.md`, or `query`, `evidence` and optionally `as_of`. Only
aggregated figures are shown, to avoid tuning for single questions.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from benchmarks.report import number, say  # noqa: E402
from memrecall.agent import Recaller, RecallResult  # noqa: E402
from memrecall.agent.trace_events import ResultEvent  # noqa: E402
from memrecall.memory import Importer, Library  # noqa: E402
from memrecall.scope import Permission, Scope  # noqa: E402
from memrecall.settings import load_settings  # noqa: E402
from memrecall.types import NewMemory, Origin, parse_time  # noqa: E402

FIXTURE = REPOSITORY / "fixtures" / "recall"
BINS = 10
ALL = "all"
NEVER_SAID = frozenset({"adversarial", "unanswerable"})  # categories of other sets: abstain
TIME_FILTERS = ("since", "until", "time_range_days")
FILTERS = (*TIME_FILTERS, "role", "keywords", "memory_types")
BEHAVIOURS = ("filter", "narrow", "widen", "expand", "detail", "abstain")

Json = dict[str, Any]
Times = dict[str, dict[str, datetime]]  # user, message: when it was said


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
    should_filter: bool = False
    should_expand: bool = False
    now: datetime | None = None
    hides_later: bool = False  # messages after `now` must not be seen
    zone: str | None = None

    @property
    def language(self) -> str:
        """Chinese if the request contains Chinese, as in a recall."""
        request = self.conversation[-1]["content"]
        return "zh" if any("\u4e00" <= character <= "\u9fff" for character in request) else "en"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a question. A behaviour is None if it did not occur, else True if correct.

    Each behaviour counts once per question, and is correct as follows:
    filter: the question names a time, and the first search with a filter for it excludes no
        evidence;
    narrow: a repetition of the first search with more filters, none of them a time that the
        question names, still found evidence;
    widen: any other later search found evidence that the first did not;
    expand: the label requires it;
    detail: a memory that was read, or a message shown beside it, is evidence;
    abstain: the question cannot be answered.
    """

    question: Question
    keys: tuple[str, ...]
    confidence: float
    abstained: bool
    behaviours: dict[str, bool | None]
    model_calls: float
    tool_calls: float
    prompt_characters: float

    @property
    def hit(self) -> bool:
        """True if any evidence was handed off."""
        return not self.question.evidence.isdisjoint(self.keys)

    @property
    def evidence_recall(self) -> float:
        """The share of the evidence that was handed off; None without evidence."""
        return len(self.question.evidence.intersection(self.keys)) / len(self.question.evidence)

    @property
    def right_keys(self) -> list[bool]:
        """For each key handed off, whether it is acceptable."""
        right = self.question.evidence | self.question.acceptable
        return [key in right for key in self.keys]


def read_questions(file: Path, user: str | None) -> list[Question]:
    """Read the questions of a file in either format, optionally of one user only."""
    rows = [row for row in _read_lines(file) if user in (None, row["user_id"])]
    return [_labelled(row) if "conversation" in row else _plain(row) for row in rows]


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
        should_filter=labels["filter"],
        should_expand=labels["expand"],
        now=parse_time(row["now"]),
        zone=row.get("zone"),
    )


def _plain(row: Json) -> Question:
    """Read a question of another data set: one message, asked at the end of `as_of`."""
    kind = str(row.get("category") or "question")
    answerable = bool(row["evidence"]) and kind.lower() not in NEVER_SAID
    return Question(
        user_id=row["user_id"],
        session_id=None,
        kind=kind,
        conversation=[{"role": "user", "content": row["query"]}],
        evidence=frozenset(row["evidence"] if answerable else ()),
        acceptable=frozenset(),
        answerable=answerable,
        should_abstain=not answerable,
        now=_last_moment(row["as_of"]) if row.get("as_of") else None,
        hides_later=bool(row.get("as_of")),
    )


def _last_moment(period: str) -> datetime:
    """Return the last second of a month (2026-01) or a day; return a time unchanged."""
    if len(period) == len("2026-01"):
        after = (parse_time(f"{period}-01") + timedelta(days=31)).replace(day=1)
    elif len(period) == len("2026-01-31"):
        after = parse_time(period) + timedelta(days=1)
    else:
        return parse_time(period)
    return after - timedelta(seconds=1)


def _read_lines(file: Path) -> list[Json]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


async def fill(library: Library, corpus: Path, questions: Sequence[Question]) -> Times:
    """Import a corpus with its memories; return the time of each message."""
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
    times: Times = defaultdict(dict)
    for row in _read_lines(corpus):
        times[row["user_id"]][row["message_id"]] = parse_time(row["ts"])
    return times


async def ask(library: Library, question: Question, message_times: dict[str, datetime]) -> Outcome:
    """Recall for one question and judge the steps."""
    now = question.now or max(message_times.values(), default=datetime.now(UTC)) + timedelta(
        minutes=1
    )
    scope = Scope(question.user_id, session_id=question.session_id)
    # Memories are stored at the current time: `as_of` would hide those of the fixture.
    recaller = Recaller(library, scope, clock=lambda: now)
    as_of = now if question.hides_later else None
    result = await recaller.recall(question.conversation, as_of=as_of)
    return Outcome(
        question=question,
        keys=tuple(dict.fromkeys(result.handoff.relevant_memory_keys)),
        confidence=result.confidence,
        abstained=result.abstained,
        behaviours=_judge(question, result, message_times),
        model_calls=result.usage["model_calls"],
        tool_calls=result.usage["tool_calls"],
        prompt_characters=result.usage["prompt_characters"],
    )


def _judge(
    question: Question, result: RecallResult, message_times: dict[str, datetime]
) -> dict[str, bool | None]:
    searches = _calls(result, "search_memories")
    detail_calls = _calls(result, "get_memory_detail")
    grants = _calls(result, "expand_context_window")
    narrower = [call for call in searches[1:] if _narrows(searches[0], call)]
    wider = [call for call in searches[1:] if call not in narrower]
    if stated := question.should_filter or bool(result.times):
        narrower = [call for call in narrower if not _has_time_filter(call)]
    filters = [call for call in searches if _has_time_filter(call) and call not in narrower]
    granted = any(call["output"].get("approved") for call in grants)
    inside = filters and _keeps_evidence(question, result, filters[0]["arguments"], message_times)
    return {
        "filter": stated and bool(inside) if filters else None,
        "narrow": _brings_evidence(question, narrower) if narrower else None,
        "widen": _brings_evidence(question, wider, beyond=searches[0]) if wider else None,
        "expand": question.should_expand if granted else None,
        "detail": _reads_evidence(question, detail_calls) if detail_calls else None,
        "abstain": not question.answerable if result.abstained else None,
    }


def _calls(result: RecallResult, tool: str) -> list[Json]:
    """Return the executed calls of a tool: arguments as applied, and the output."""
    events = [event.data for event in result.trace.events if isinstance(event, ResultEvent)]
    return [data for data in events if data["tool"] == tool and not data["error"]]


def _has_time_filter(search: Json) -> bool:
    return any(search["arguments"].get(name) for name in TIME_FILTERS)


def _keeps_evidence(
    question: Question, result: RecallResult, arguments: Json, message_times: dict[str, datetime]
) -> bool:
    """Return True if a time filter excludes no evidence; memories are ignored."""
    zone = ZoneInfo(question.zone or "UTC")
    since = _bound(arguments.get("since"), zone)
    until = _bound(arguments.get("until"), zone)
    if days := arguments.get("time_range_days"):
        start = result.now - timedelta(days=days)
        since = start if since is None else max(since, start)
    moments = [message_times[key] for key in question.evidence if key in message_times]
    return all(
        (since is None or since <= moment) and (until is None or moment < until)
        for moment in moments
    )


def _bound(text: str | None, zone: ZoneInfo) -> datetime | None:
    """Parse a time bound like a recall; without an offset it is in the user's zone."""
    moment = datetime.fromisoformat(text) if text else None
    return moment.replace(tzinfo=moment.tzinfo or zone) if moment else None


def _narrows(first: Json, later: Json) -> bool:
    """Return True if a search repeats an earlier one with more filters."""
    before, after = first["arguments"], later["arguments"]
    new_filters = {name for name in FILTERS if after.get(name) and not before.get(name)}
    return bool(new_filters) and all(
        before.get(name) == after.get(name) for name in {*before, *after} - new_filters - {"limit"}
    )


def _brings_evidence(
    question: Question, searches: Sequence[Json], beyond: Json | None = None
) -> bool:
    """Return True if one of the searches found evidence that an earlier one did not."""
    brought = set().union(*map(_finds_evidence, searches)) - (
        _finds_evidence(beyond) if beyond else set()
    )
    return not question.evidence.isdisjoint(brought)


def _finds_evidence(search: Json) -> set[str]:
    return {hit["memory_key"] for hit in search["output"].get("results", ())}


def _reads_evidence(question: Question, detail_calls: Sequence[Json]) -> bool:
    """Return True if the memory read, or a message shown beside it, is evidence."""
    keys: set[str] = set()
    for call in detail_calls:
        keys.add(call["arguments"]["memory_key"])
        for side in ("before", "after", "sources"):
            keys |= {neighbor["memory_key"] for neighbor in call["output"].get(side, ())}
    return not question.evidence.isdisjoint(keys)


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
        "abstention precision": _mean(not o.question.answerable for o in abstained),
        "abstention recall": _mean(o.abstained for o in unanswerable),
        "calibration error": calibration_error(outcomes),
        "model calls": _mean(o.model_calls for o in outcomes),
        "tool calls": _mean(o.tool_calls for o in outcomes),
        "prompt characters": _mean(o.prompt_characters for o in outcomes),
    }


def summarise_behaviours(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float | None]]:
    """Count how often each behaviour occurred and how often it was correct."""
    figures: dict[str, dict[str, float | None]] = {}
    for name in BEHAVIOURS:
        verdicts = [right for o in outcomes if (right := o.behaviours[name]) is not None]
        figures[name] = {"fired": len(verdicts), "right": sum(verdicts), "share": _mean(verdicts)}
    return figures


def _grouped(outcomes: Sequence[Outcome]) -> dict[str, dict[str, list[Outcome]]]:
    """Group by language and kind; the total of a language comes last."""
    groups: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        groups[outcome.question.language][outcome.question.kind].append(outcome)
    return {
        language: {**kinds, ALL: [o for members in kinds.values() for o in members]}
        for language, kinds in sorted(groups.items())
    }


def print_tables(outcomes: Sequence[Outcome]) -> None:
    """Print the metrics by language and kind, then the behaviours by language."""
    console = Console(width=None if sys.stdout.isatty() else 170)
    table = Table(title="memrecall: recall, offline", title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in summarise(()):
        table.add_column(heading, justify="right")
    behaviours = Table(title="behaviours, counted once a question", title_justify="left")
    behaviours.add_column("", no_wrap=True)
    for heading in ("fired", "right", "share"):
        behaviours.add_column(heading, justify="right")
    for language, kinds in _grouped(outcomes).items():
        table.add_section()
        for kind, members in kinds.items():
            table.add_row(f"{language} {kind}", *map(_cell, summarise(members).values()))
        behaviours.add_section()
        for name, figures in summarise_behaviours(kinds[ALL]).items():
            behaviours.add_row(f"{language} {name}", *map(_cell, figures.values()))
    console.print(table)
    console.print(behaviours)


def _cell(value: float | None) -> str:
    return "" if value is None else number(value)


def write_json(outcomes: Sequence[Outcome], file: Path) -> None:
    """Write the same figures as JSON."""
    content = {
        language: {
            "kinds": {kind: summarise(members) for kind, members in kinds.items()},
            "behaviours": summarise_behaviours(kinds[ALL]),
        }
        for language, kinds in _grouped(outcomes).items()
    }
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


async def run(options: argparse.Namespace) -> list[Outcome]:
    """Ask every question."""
    questions = read_questions(options.questions, options.user)
    if not questions:
        raise SystemExit(f"{options.questions} has no question of {options.user or 'anybody'}")
    with tempfile.TemporaryDirectory(prefix="memrecall-behaviours-") as folder:
        location = options.db or str(Path(folder) / "recall.db")
        loaded = load_settings({"embedder": options.embedder}, environment={})
        settings = replace(loaded.settings, db=location, model="", trace_days=0)
        async with await Library.open(settings) as library:
            say(f"importing {options.corpus}")
            times = await fill(library, options.corpus, questions)
            say(f"{len(questions)} questions")
            return [await ask(library, question, times[question.user_id]) for question in questions]


def main() -> None:
    """Parse the options, run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--questions", type=Path, default=FIXTURE / "questions.jsonl")
    parser.add_argument("--corpus", type=Path, default=FIXTURE / "history.jsonl")
    parser.add_argument("--user", help="only this user's questions")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--db", help="keep the database here, for the next run")
    parser.add_argument("--embedder", default="local")
    options = parser.parse_args()
    outcomes = asyncio.run(run(options))
    print_tables(outcomes)
    if options.json is not None:
        write_json(outcomes, options.json)


if __name__ == "__main__":
    main()
