"""Runs and their folders: questions, results, timings and summary.

An interrupted run leaves a folder that can be read and continued: a question counts as answered
when its line in the results is complete.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from memrecall.errors import InvalidArgument, NotFound
from memrecall.evaluation.datasets import (
    Question,
    QuestionResult,
    at_line,
    numbered_lines,
    read_questions,
)
from memrecall.evaluation.metrics import summarize
from memrecall.json_objects import parse_json_line
from memrecall.search.request import Mode

_FORMAT = 1
_DATABASE = "store.db"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The identity of a run: data, mode, and the settings that change results."""

    mode: str
    depth: int
    max_questions: int | None
    corpus_sha256: str
    queries_sha256: str
    embedder: str
    model: str
    version: str
    retrieval: Mode = "hybrid"  # of a search
    replayed: bool = False  # answered from cassettes, so that `model` is empty


@dataclass(slots=True)
class RunState:
    """The progress of a run, with its counts and metrics."""

    plan: RunPlan
    corpus: str  # file name, like queries
    queries: str
    started_at: str
    database_id: str = ""
    imported: bool = False
    complete: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """A run as read from its folder: the answered questions and their results."""

    name: str
    state: RunState
    questions: tuple[Question, ...]
    answers: tuple[QuestionResult, ...]
    seconds: tuple[float, ...]

    def __repr__(self) -> str:
        mode, count = self.state.plan.mode, len(self.questions)
        return f"<Run {self.name}: {mode}, {count} questions answered>"

    @property
    def pairs(self) -> list[tuple[Question, QuestionResult]]:
        """The answered questions with their results."""
        return list(zip(self.questions, self.answers, strict=True))

    @property
    def without_vectors(self) -> int:
        """The number of questions that the embedder did not answer for, so that words had to do."""
        return sum(answer.without_vectors for answer in self.answers)

    def summarize(self) -> dict[str, Any]:
        """Return all metrics with intervals, overall and by category, and the latency."""
        return summarize(self.questions, self.answers, self.seconds)


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / _DATABASE
        self._summary = path / "summary.json"
        self._queries = path / "queries.jsonl"
        self._results = path / "results.jsonl"
        self._timings = path / "timings.jsonl"

    @property
    def exists(self) -> bool:
        """True if a run was started here."""
        return self._summary.exists()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder while a run writes into it: two writers would mix their results."""
        if self.path.exists() and not self.path.is_dir():
            raise InvalidArgument(f"{self.path} is not a folder", hint="Choose another --out")
        self.path.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise InvalidArgument(
                f"another `memrecall eval run` is writing into {self.path}",
                hint="Wait for it, or choose another --out",
            ) from None
        finally:
            os.close(folder)

    def begin(self, fresh: RunState, lines: bytes) -> RunState:
        """Start a run, or return the state of the run with the same plan.

        A run with another plan is rejected if it has results. A run that failed before its first
        result is restarted, since its input files were probably corrected.
        """
        if self.exists:
            state = self.read_state()
            if state.plan == fresh.plan:
                return state
            if _whole_lines(self._results):
                before, after = asdict(state.plan), asdict(fresh.plan)
                name = next(name for name in after if before[name] != after[name])
                raise InvalidArgument(
                    f"{self.path} holds a run with {name} = {before[name]}, not {after[name]}",
                    hint="Choose another --out, or remove the folder",
                )
            self.drop_database()
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InvalidArgument(
                f"{self.path} is not a run and not empty", hint="Choose another --out"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self._queries.write_bytes(lines)
        self._results.write_bytes(b"")
        self._timings.write_bytes(b"")
        self.save(fresh)
        return fresh

    def read_state(self) -> RunState:
        """Read the summary."""
        try:
            data = json.loads(self._summary.read_bytes())
            if data.pop("format") != _FORMAT:
                raise InvalidArgument(
                    f"{self._summary} has another format", hint="Run the evaluation again"
                )
            return RunState(
                **_known(RunState, data) | {"plan": RunPlan(**_known(RunPlan, data["plan"]))}
            )
        except FileNotFoundError:
            raise NotFound(
                f"{self.path} is not a run: it has no summary.json",
                hint="`memrecall eval list` shows the existing runs",
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(f"{self._summary} cannot be read: {error}") from None

    def count_state(self) -> RunState:
        """Read the summary and recount the results, which a killed run could not count."""
        state = self.read_state()
        if not state.complete:
            state.counts["answered"] = len(_whole_lines(self._results))
            state.counts["questions"] = len(_whole_lines(self._queries))
        return state

    def save(self, state: RunState) -> None:
        """Write the summary atomically."""
        text = json.dumps({"format": _FORMAT, **asdict(state)}, ensure_ascii=False, indent=2)
        temporary = self._summary.with_suffix(".part")
        temporary.write_text(text + "\n", "utf-8")
        os.replace(temporary, self._summary)

    def append(self, result: QuestionResult, seconds: float) -> None:
        """Append one result; the timing is written first, so that no result lacks one."""
        timing = {"query_id": result.query_id, "seconds": round(seconds, 6)}
        with self._timings.open("a", encoding="utf-8") as file:
            file.write(json.dumps(timing, ensure_ascii=False) + "\n")
        with self._results.open("a", encoding="utf-8") as file:
            file.write(result.to_line())

    def repair(self) -> int:
        """Remove incomplete lines of an interrupted run; return the number of results."""
        count = _keep_whole_lines(self._results)
        _keep_whole_lines(self._timings, count)
        return count

    def read(self) -> EvaluationRun:
        """Read the run as far as it has got."""
        state = self.read_state()
        questions = read_questions(self._queries).questions
        answers = []
        for number, line in _whole_lines(self._results):
            try:
                answers.append(QuestionResult.from_dict(parse_json_line(line)))
            except (InvalidArgument, KeyError, TypeError, ValueError) as error:
                raise at_line(self._results, number, error) from None
        seconds = [
            float(parse_json_line(line)["seconds"]) for _, line in _whole_lines(self._timings)
        ]
        count = len(answers)
        expected = [question.query_id for question in questions[:count]]
        if expected != [answer.query_id for answer in answers] or len(seconds) < count:
            raise InvalidArgument(
                f"{self.path} is damaged: its results do not match its questions",
                hint="Remove the folder and run the evaluation again",
            )
        name = self.path.resolve().name
        return EvaluationRun(name, state, questions[:count], tuple(answers), tuple(seconds[:count]))

    def drop_database(self) -> None:
        """Remove the temporary database."""
        for part in self.path.glob(f"{_DATABASE}*"):
            shutil.rmtree(part) if part.is_dir() else part.unlink()


def _known(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that a dataclass has; runs of earlier versions have others too."""
    return {each.name: data[each.name] for each in fields(kind) if each.name in data}


def _whole_lines(path: Path) -> list[tuple[int, bytes]]:
    """Return the numbered lines that end with a newline."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}") from None
    return list(numbered_lines(data[: data.rfind(b"\n") + 1]))


def _keep_whole_lines(path: Path, limit: int | None = None) -> int:
    lines = [line for _, line in _whole_lines(path)][:limit]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return len(lines)


def find_runs(folder: Path) -> list[tuple[Path, RunState]]:
    """Return the runs of a folder, newest first; unreadable folders are skipped."""
    runs = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            runs.append((path, RunFolder(path).count_state()))
        except (InvalidArgument, NotFound):
            continue
    return sorted(runs, key=lambda run: run[1].started_at, reverse=True)
