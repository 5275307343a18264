"""The folder of a run: what was asked, what came of it, how long it took, what it comes to.

A run that was stopped, even in the midst of a line, leaves a folder that can be read and gone on
with: a question counts as asked when its line of the results ends.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from memrecall.errors import InvalidArgument, NotFound
from memrecall.evaluation.questions import (
    Question,
    at_line,
    numbered_lines,
    read_object,
    read_questions,
)
from memrecall.search.request import Mode


@dataclass(frozen=True, slots=True)
class RecallRecord:
    """What a recall handed off, and what it took."""

    relevant_memory_keys: tuple[str, ...]
    confidence: float
    abstained: bool
    stop_reason: str
    iterations: int
    windows: tuple[int, ...]
    tool_calls: int
    model_calls: int
    prompt_characters: int
    fallback: str | None = None  # why the rules had to stand in for the model


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The keys found for one question, the best first; the same for every run of the same thing."""

    query_id: str
    category: str
    retrieved: tuple[tuple[str, float | None], ...]
    probabilities: tuple[float, ...] | None = None  # of `retrieved`, where the search gives them
    recalled: RecallRecord | None = None

    @property
    def keys(self) -> list[str]:
        """The keys alone, in their order."""
        return [key for key, _ in self.retrieved]

    def to_line(self) -> str:
        """One line of JSON."""
        fields: dict[str, Any] = {
            "query_id": self.query_id,
            "category": self.category,
            "retrieved": self.retrieved,
        }
        if self.probabilities is not None:
            fields["probabilities"] = self.probabilities
        if self.recalled is not None:
            fields |= asdict(self.recalled)
        return json.dumps(fields, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "QuestionResult":
        """The inverse of `to_line`."""
        data = dict(fields)
        query_id, category = data.pop("query_id"), data.pop("category")
        retrieved = tuple((key, score) for key, score in data.pop("retrieved"))
        chances = data.pop("probabilities", None)
        for name in ("relevant_memory_keys", "windows"):
            if name in data:
                data[name] = tuple(data[name])
        return cls(
            query_id=query_id,
            category=category,
            retrieved=retrieved,
            probabilities=None if chances is None else tuple(chances),
            recalled=RecallRecord(**data) if data else None,
        )


FORMAT = 1
_DATABASE = "store.db"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What makes two runs the same run: data, mode, and the settings that change results."""

    mode: str
    depth: int
    max_questions: int | None
    corpus_sha256: str
    queries_sha256: str
    embedder: str
    model: str
    tool_calls: str
    replayed: bool
    version: str
    without: tuple[str, ...] = ()  # parts of a recall that were switched off
    retrieval: Mode = "hybrid"  # how a search finds: by words, by meaning, by both


@dataclass(slots=True)
class RunState:
    """How far a run has come, and what is known about it besides."""

    plan: RunPlan
    corpus: str  # the names of the files
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
    """A run that was read: as many questions as have been answered."""

    name: str
    state: RunState
    questions: tuple[Question, ...]
    answers: tuple[QuestionResult, ...]
    seconds: tuple[float, ...]

    def __repr__(self) -> str:
        asked = len(self.questions)
        return f"<Run {self.name}: {self.state.plan.mode}, {asked} questions answered>"

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from memrecall.evaluation.display import run_html

        return run_html(self)


class RunFolder:
    """One run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / _DATABASE
        self._summary = path / "summary.json"
        self._queries = path / "queries.jsonl"
        self._results = path / "results.jsonl"
        self._timings = path / "timings.jsonl"

    @property
    def exists(self) -> bool:
        """Whether a run has been begun here."""
        return self._summary.exists()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder while a run writes into it; two at once would mix their answers."""
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
        """Begin a run, or find one of the same plan; one of another is refused once it has answers.

        What failed before its first answer is begun anew: most likely its files were mended.
        """
        if self.exists:
            state = self.read_state()
            if state.plan == fresh.plan:
                return state
            self._require_unanswered(state.plan, fresh.plan)
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

    def _require_unanswered(self, known: RunPlan, given: RunPlan) -> None:
        if not _whole_lines(self._results):
            return
        before, now = asdict(known), asdict(given)
        name = next(name for name in now if before[name] != now[name])
        raise InvalidArgument(
            f"{self.path} holds a run with {name} = {before[name]}, not {now[name]}",
            hint="Choose another --out, or remove that folder",
        )

    def read_state(self) -> RunState:
        """The summary as it stands."""
        try:
            data = json.loads(self._summary.read_bytes())
            if data.pop("format") != FORMAT:
                raise InvalidArgument(
                    f"{self._summary} has another format", hint="Run the evaluation again"
                )
            fields = data.pop("plan")
            plan = RunPlan(**{**fields, "without": tuple(fields.get("without", ()))})
            return RunState(plan=plan, **data)
        except FileNotFoundError:
            raise NotFound(
                f"{self.path} is not a run: it has no summary.json",
                hint="`memrecall eval list` shows the runs there are",
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(f"{self._summary} cannot be read: {error}") from None

    def counted_state(self) -> RunState:
        """The summary, with the answers counted anew: a run that was killed could not count."""
        state = self.read_state()
        if not state.complete:
            state.counts["answered"] = len(_whole_lines(self._results))
            state.counts["questions"] = len(_whole_lines(self._queries))
        return state

    def save(self, state: RunState) -> None:
        """Write the summary, whole or not at all."""
        text = json.dumps({"format": FORMAT, **asdict(state)}, ensure_ascii=False, indent=2)
        aside = self._summary.with_suffix(".part")
        aside.write_text(text + "\n", "utf-8")
        os.replace(aside, self._summary)

    def append(self, answer: QuestionResult, seconds: float) -> None:
        """Write down one answer; its time goes first, so that no answer lacks one."""
        timing = {"query_id": answer.query_id, "seconds": round(seconds, 6)}
        with self._timings.open("a", encoding="utf-8") as file:
            file.write(json.dumps(timing, ensure_ascii=False) + "\n")
        with self._results.open("a", encoding="utf-8") as file:
            file.write(answer.to_line())

    def mend(self) -> int:
        """Cut off what a stopped run left half written; tells how many answers there are."""
        done = _cut(self._results)
        _cut(self._timings, done)
        return done

    def read(self) -> EvaluationRun:
        """The run as far as it has come."""
        state = self.read_state()
        asked = read_questions(self._queries).questions
        answers = [self._answer(number, line) for number, line in _whole_lines(self._results)]
        seconds = [float(read_object(line)["seconds"]) for _, line in _whole_lines(self._timings)]
        given = [question.query_id for question in asked[: len(answers)]]
        if given != [answer.query_id for answer in answers] or len(seconds) < len(answers):
            raise InvalidArgument(
                f"{self.path} is damaged: its answers are not those of its questions",
                hint="Remove that folder and run the evaluation again",
            )
        count = len(answers)
        name = self.path.resolve().name
        return EvaluationRun(name, state, asked[:count], tuple(answers), tuple(seconds[:count]))

    def _answer(self, number: int, line: bytes) -> QuestionResult:
        try:
            return QuestionResult.from_dict(read_object(line))
        except (InvalidArgument, KeyError, TypeError, ValueError) as error:
            raise at_line(self._results, number, error) from None

    def drop_database(self) -> None:
        """Remove the temporary store, which nothing needs any more."""
        for part in self.path.glob(f"{_DATABASE}*"):
            shutil.rmtree(part) if part.is_dir() else part.unlink()


def _whole_lines(path: Path) -> list[tuple[int, bytes]]:
    """The lines that have an end."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}") from None
    return list(numbered_lines(data[: data.rfind(b"\n") + 1]))


def _cut(path: Path, most: int | None = None) -> int:
    lines = [line for _, line in _whole_lines(path)][:most]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return len(lines)


def find_runs(folder: Path) -> list[tuple[Path, RunState]]:
    """The runs of a folder, the latest first; what cannot be read is not a run."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            found.append((path, RunFolder(path).counted_state()))
        except (InvalidArgument, NotFound):
            continue
    return sorted(found, key=lambda run: run[1].started_at, reverse=True)
