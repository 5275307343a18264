"""LoCoMo and LongMemEval on your own copy of the data: recall of turns and sessions, abstention.

    python benchmarks/public.py locomo locomo10.json
    python benchmarks/public.py longmemeval longmemeval_s_cleaned.json [--limit 50]
    python benchmarks/public.py folder DIR      corpus.jsonl and queries.jsonl (docs/evaluation.md)

Every turn is stored as a message, by the user's side or the assistant's; each LongMemEval question
has a history, and so a user, of its own. `any`: at least one piece of evidence is among the first k
turns, or in the first k different sessions of the ranking; `all`: every piece is. A recall by the
rules, without a model, is asked the same: `nothing`: it handed off nothing; `unsure`: nothing, or
nothing that it called sure. Nothing leaves the machine.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

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
from benchmarks.report import Figures, print_figures  # noqa: E402
from memrecall.agent.result import Certainty  # noqa: E402
from memrecall.evaluation.datasets import (  # noqa: E402
    UNANSWERABLE,
    Corpus,
    Question,
    QuestionResult,
    read_bytes,
    sha256_of,
)
from memrecall.evaluation.metrics import categories, measure  # noqa: E402
from memrecall.evaluation.runner import Evaluator  # noqa: E402
from memrecall.evaluation.runs import RunPlan  # noqa: E402
from memrecall.importers.jsonl import read_entry  # noqa: E402

Json = dict[str, Any]

CUTS = (5, 10, 20)
_DEPTH = 200  # turns per question, for twenty different sessions
_TURN = timedelta(seconds=30)  # between two turns: the data dates sessions only
_LOCOMO_CATEGORIES = ("", "multi-hop", "temporal", "open-domain", "single-hop", "adversarial")
_DIALOG = re.compile(r"D:?(\d+):0*(\d+)")  # also "D8:6; D9:17", "D:11:26" and "D30:05"
_DOES_NOT_SHOW = (
    "whether a model answers the question from what was found, which is what most published scores"
    " of these data sets are about"
)


@dataclass(slots=True)
class PublicSet:
    """A data set as messages and questions, with the sessions that have a question's evidence."""

    name: str
    corpus: Corpus
    questions: list[Question] = field(default_factory=list)
    sessions: dict[str, set[str]] = field(default_factory=dict)  # by question
    left_out: int = 0  # questions without labels
    _session_of: dict[tuple[str, str], str] = field(default_factory=dict)  # by user and message

    def add_turns(self, user: str, session: str, start: datetime, turns: Sequence[Json]) -> None:
        """Add the turns of a session, except empty ones."""
        for number, turn in enumerate(turns):
            if turn["content"].strip():
                ts = (start + number * _TURN).isoformat()
                row = {**turn, "user_id": user, "session_id": session, "ts": ts}
                self.corpus.add_message(number, read_entry(json.dumps(row).encode()))
                self._session_of[user, turn["message_id"]] = session

    def add_question(self, question: Question, sessions: set[str] | None = None) -> None:
        """Add a question with the sessions of its evidence, unless they are given.

        A question that should have an answer is left out if no stored turn is labelled.
        """
        user = question.user_id
        keys = [key for key in question.evidence if (user, key) in self._session_of]
        if not keys and question.category.casefold() not in UNANSWERABLE:
            self.left_out += 1
            return
        self.questions.append(question.model_copy(update={"evidence": tuple(keys)}))
        self.sessions[question.query_id] = sessions or {self._session_of[user, k] for k in keys}

    def to_sessions(self, answer: QuestionResult, user: str) -> QuestionResult:
        """Return the different sessions of the turns found, in the order of their best turns."""
        found = dict.fromkeys(self._session_of.get((user, key), key) for key in answer.keys)
        return replace(answer, retrieved=tuple((key, None) for key in found), probabilities=None)


def read_locomo(path: Path, limit: int | None) -> PublicSet:
    """Read locomo10.json: ten conversations of two people; `limit` counts conversations."""
    data = read_bytes(path)
    samples = json.loads(data)[:limit]
    result = PublicSet(f"locomo-{len(samples)}", Corpus(path, sha256_of(data)))
    for sample in samples:
        user, conversation = sample["sample_id"], sample["conversation"]
        for session, turns in conversation.items():
            if re.fullmatch(r"session_\d+", session):
                start = _time(conversation[f"{session}_date_time"], "%I:%M %p on %d %B, %Y")
                rows = [_locomo_turn(turn, conversation["speaker_a"]) for turn in turns]
                result.add_turns(user, session, start, rows)
        for number, item in enumerate(sample["qa"]):
            text = " ".join(item["evidence"])
            evidence = dict.fromkeys(f"D{a}:{b}" for a, b in _DIALOG.findall(text))
            question = Question(
                query_id=f"{user}-q{number}",
                user_id=user,
                query=item["question"],
                evidence=tuple(evidence),
                category=_LOCOMO_CATEGORIES[item["category"]],
            )
            result.add_question(question)
    return result


def _locomo_turn(turn: Json, first_speaker: str) -> Json:
    caption = turn.get("blip_caption")
    text = " ".join(part for part in (turn["text"], caption and f"[photo: {caption}]") if part)
    role = "user" if turn["speaker"] == first_speaker else "assistant"
    row = {"message_id": turn["dia_id"], "role": role, "speaker": turn["speaker"]}
    return {**row, "content": text}


def read_longmemeval(path: Path, limit: int | None) -> PublicSet:
    """Read a file of LongMemEval: 500 questions; `limit` counts questions, spread over the file."""
    data = read_bytes(path)
    items = json.loads(data)
    if limit is not None:  # the file is sorted by type
        items = items[:: max(1, len(items) // limit)][:limit]
    result = PublicSet(f"longmemeval-{len(items)}", Corpus(path, sha256_of(data)))
    for item in items:
        user = item["question_id"]
        histories = zip(item["haystack_session_ids"], item["haystack_dates"], strict=True)
        evidence: list[str] = []
        for position, (session, date) in enumerate(histories):
            turns = item["haystack_sessions"][position]
            rows = [{**turn, "message_id": f"{position}:{n}"} for n, turn in enumerate(turns)]
            result.add_turns(user, session, _time(date), rows)
            evidence += [row["message_id"] for row in rows if row.get("has_answer")]
        asked = max(_time(item["question_date"]), result.corpus.latest[user])
        is_answerable = "_abs" not in user
        question = Question(
            query_id=user,
            user_id=user,
            query=item["question"],
            evidence=tuple(evidence) if is_answerable else (),
            category=item["question_type"] if is_answerable else "unanswerable",
            as_of=asked.isoformat(),
        )
        result.add_question(question, set(item["answer_session_ids"]) if is_answerable else None)
    return result


def _time(text: str, form: str = "%Y/%m/%d (%a) %H:%M") -> datetime:
    return datetime.strptime(text, form).replace(tzinfo=UTC)


def read_folder(path: Path, limit: int | None) -> PublicSet:
    """Read a folder with corpus.jsonl and queries.jsonl; `limit` counts questions."""
    given = read_evaluation_set(path)
    result = PublicSet(given.name, given.corpus)
    for _, entry in given.corpus.messages:
        user, key = entry.scope.user_id, str(entry.message.message_id)
        result._session_of[user, key] = entry.scope.session_id or key
    for question in given.questions[:limit]:
        result.add_question(question)
    return result


READERS: dict[str, Callable[[Path, int | None], PublicSet]] = {
    "locomo": read_locomo,
    "longmemeval": read_longmemeval,
    "folder": read_folder,
}


async def ask_all(
    public: PublicSet, work: Path, embedder: str
) -> tuple[list[QuestionResult], list[QuestionResult]]:
    """Return the results of the searches and of the recalls."""
    evaluation_set = EvaluationSet(public.name, public.corpus, tuple(public.questions))
    plan = RunPlan("search", _DEPTH, None, "", "", embedder, "", version("memrecall-agent"))
    searches, recalls = [], []
    async with open_library(evaluation_set, work, embedder) as library:
        search = Evaluator(library, public.corpus, plan)
        recall = Evaluator(library, public.corpus, replace(plan, mode="recall"))
        for done, question in enumerate(public.questions, 1):
            searches.append(await search.ask(question))
            recalls.append(await recall.ask(question))
            tell_progress(public.name, done, len(public.questions))
    return searches, recalls


def measure_search(questions: Sequence[Question], answers: Sequence[QuestionResult]) -> Figures:
    """Return any and all at each cut, and the share of the evidence, by category."""
    names = [f"{kind}@{cut}" for kind in ("hit", "all", "recall") for cut in CUTS]
    table = measure(questions, answers).select(names)
    titles = [name.replace("hit", "any") for name in table.all_names]
    return {
        name: dict(zip(titles, table.values(rows).tolist(), strict=True))
        for name, rows in _groups(questions)
        if any(questions[row].evidence for row in rows)
    }


def measure_recall(questions: Sequence[Question], answers: Sequence[QuestionResult]) -> Figures:
    """Return how often a recall handed off nothing, or nothing sure, by category."""
    records = [answer.recalled for answer in answers if answer.recalled]
    nothing = np.array([not record.relevant_memory_keys for record in records])
    certainties = [Certainty.from_probability(record.confidence) for record in records]
    is_sure = np.array([certainty is Certainty.SURE for certainty in certainties])
    return {
        name: {
            "nothing": float(nothing[rows].mean()),
            "unsure": float((nothing | ~is_sure)[rows].mean()),
        }
        for name, rows in _groups(questions)
    }


def _groups(questions: Sequence[Question]) -> Iterator[tuple[str, Any]]:
    """Yield the rows of all questions with an answer, then those of each category."""
    is_answerable = np.array([question.answerable for question in questions])
    yield f"answerable ({is_answerable.sum()})", np.flatnonzero(is_answerable)
    for name, rows in categories(questions).items():
        yield f"{name} ({len(rows)})", rows


def figures_of(
    public: PublicSet, searches: Sequence[QuestionResult], recalls: Sequence[QuestionResult]
) -> dict[str, Figures]:
    """Return the tables: turns, sessions, recall."""
    questions = public.questions
    by_session = [
        question.model_copy(update={"evidence": tuple(public.sessions[question.query_id])})
        for question in questions
    ]
    sessions = [
        public.to_sessions(answer, question.user_id)
        for question, answer in zip(questions, searches, strict=True)
    ]
    return {
        "search, turns": measure_search(questions, searches),
        "search, sessions": measure_search(by_session, sessions),
        "recall by the rules": measure_recall(questions, recalls),
    }


def main() -> None:
    """Convert, store, ask, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=READERS)
    parser.add_argument("path", type=Path)
    parser.add_argument("--limit", type=int, help="conversations (locomo) or questions")
    parser.add_argument("--embedder", default="local", help="as in MEMRECALL_EMBEDDER")
    parser.add_argument("--work", type=Path, default=WORK, help="where imported sets are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", default=Path("public.json"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    public = READERS[options.kind](options.path, options.limit)
    results = asyncio.run(ask_all(public, options.work, options.embedder))
    tables = figures_of(public, *results)
    for title, table in tables.items():
        print_figures(f"{public.name}: {title}", table)
    about = {
        "benchmark": public.name,
        "does_not_show": _DOES_NOT_SHOW,
        "memrecall": version("memrecall-agent"),
        "embedder": options.embedder,
        "sha256": public.corpus.sha256,
        "messages": public.corpus.size,
        "questions": len(public.questions),
        "left_out": public.left_out,
    }
    content = json.dumps({**about, "figures": tables}, indent=1)
    options.json.write_text(content + "\n", "utf-8")


if __name__ == "__main__":
    main()
