"""The runner of an evaluation, and `evaluate`, which does a whole run in one call."""

import asyncio
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.corpus import Corpus, check_labels, count_hidden, import_corpus
from memrecall.evaluation.evaluator import CassetteFolder, Evaluator
from memrecall.evaluation.questions import Question, QuestionSet
from memrecall.evaluation.runs import EvaluationRun, RunFolder, RunPlan, RunState
from memrecall.library.library import Library
from memrecall.progress import Advance, Progress, progress_bar
from memrecall.search.request import Mode
from memrecall.settings import Settings
from memrecall.types import format_time


@dataclass(slots=True)
class Runner:
    """Starts or continues one run."""

    folder: RunFolder
    state: RunState
    corpus: Corpus
    question_set: QuestionSet
    _zones: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def questions(self) -> int:
        """Number of questions in all."""
        return len(self.question_set.questions)

    def remaining(self) -> int:
        """Return the number of questions that have no result yet."""
        return self.questions - self.folder.repair()

    async def run(
        self,
        library: Library,
        model_client: Any,
        cassettes: CassetteFolder | None = None,
        *,
        stored: bool = False,
        progress: Progress,
    ) -> None:
        """Import the corpus, unless it is `stored`, and ask the remaining questions."""
        if stored:
            await self._require_corpus(library)
        else:
            # A callback counts answered questions, not imported lines.
            import_progress = not callable(progress) and progress
            size = self.corpus.size
            with progress_bar(import_progress, "importing", size, unit="lines") as advance:
                await self._import_corpus(library, advance)
        with progress_bar(progress, "asking", self.questions, unit="questions") as advance:
            plan = self.state.plan
            evaluator = Evaluator(library, self.corpus, plan, model_client, cassettes)
            await self._ask_all(evaluator, advance)

    async def _import_corpus(self, library: Library, advance: Advance) -> None:
        """Import the corpus, unless this run has imported it already."""
        database = library.store.facts.database_id
        if self.state.database_id != database:
            await _require_empty(library)
            self.state.database_id, self.state.imported = database, False
            self.folder.save(self.state)
        if not self.state.imported:
            await import_corpus(library, self.corpus, advance)
            self.state.imported = True
            self.folder.save(self.state)

    async def _require_corpus(self, library: Library) -> None:
        """Use the corpus that an earlier run imported; reject a database with other rows."""
        counts = await library.store.count()
        stored = (counts["messages"], counts["memories"])
        expected = (len(self.corpus.messages), len(self.corpus.memories))
        if stored != expected:
            raise InvalidArgument(
                f"{library.store.location} holds {stored[0]} messages and {stored[1]} memories, "
                f"the corpus {expected[0]} and {expected[1]}",
                hint="Drop stored=True and use an empty database",
            )
        self.state.database_id, self.state.imported = library.store.facts.database_id, True
        self.folder.save(self.state)

    async def _ask_all(self, evaluator: Evaluator, advance: Advance) -> None:
        """Ask the questions that have no result yet."""
        answered = self.folder.repair()
        advance(answered)
        for question in self.question_set.questions[answered:]:
            await self._set_time_zone(evaluator.library, question)
            started = time.perf_counter()
            result = await evaluator.ask(question)
            self.folder.append(result, time.perf_counter() - started)
            advance(1)
            # A question may be answered without suspending. A pending Ctrl-C must be raised here:
            # after the last question it would otherwise interrupt the closing of the database.
            await asyncio.sleep(0)

    def summarize(self) -> None:
        """Write the summary of the results so far, also of an interrupted run."""
        self.folder.repair()
        state = self.state
        run = self.folder.read()
        state.complete = len(run.answers) == len(self.question_set.questions)
        state.counts = self._count(run)
        state.metrics = run.summarize()
        self.folder.save(state)
        if state.complete:
            self.folder.drop_database()

    def _count(self, run: EvaluationRun) -> dict[str, int]:
        recalled = [answer.recalled for answer in run.answers if answer.recalled]
        return {
            "messages": len(self.corpus.messages),
            "memories": len(self.corpus.memories),
            "users": len(self.corpus.keys),
            "questions": len(self.question_set.questions),
            "answered": len(run.answers),
            "unanswerable": run.unanswerable,
            "evidence_hidden_by_as_of": count_hidden(
                self.question_set, self.corpus, datetime.now(UTC)
            ),
            "fallbacks": sum(result.fallback is not None for result in recalled),
            "without_vectors": run.without_vectors,
        }

    async def _set_time_zone(self, library: Library, question: Question) -> None:
        zone = question.time_zone or "UTC"
        if self._zones.get(question.user_id) != zone:
            await library.store.owners.set_time_zone(question.user_id, zone)
            self._zones[question.user_id] = zone


async def _require_empty(library: Library) -> None:
    counts = await library.store.count()
    if counts["messages"] or counts["memories"]:
        raise InvalidArgument(
            f"{library.store.location} is not empty: it holds {counts['messages']} messages "
            f"and {counts['memories']} memories",
            hint="An evaluation needs an empty database",
        )


async def evaluate(
    library: Library,
    corpus: Corpus,
    question_set: QuestionSet,
    out: Path | str,
    *,
    mode: Literal["search", "recall"] = "search",
    retrieval: Mode = "hybrid",
    depth: int = 50,
    model_client: Any = None,
    stored: bool = False,
    progress: Progress = False,
) -> EvaluationRun:
    """Import a corpus into an empty library, ask every question and measure the results.

    `out` is the run's folder; a second call with the same folder continues an interrupted run. With
    `stored` the library holds the corpus already, from a run with other settings. A recall uses
    `model_client`, or no model. `progress` is called with the number of questions answered; True
    shows a bar in a terminal.
    """
    if mode not in ("search", "recall"):
        raise InvalidArgument(f"unknown mode {mode!r}", hint="Use search or recall")
    check_labels(question_set, corpus)
    plan = build_plan(
        corpus,
        question_set,
        library.settings,
        mode=mode,
        depth=depth,
        max_questions=None,
        model=str(getattr(model_client, "model", "")) if mode == "recall" else "",
        retrieval=retrieval,
    )
    folder = RunFolder(Path(out))
    with begin_run(folder, plan, corpus, question_set) as runner:
        if runner.remaining():
            await runner.run(library, model_client, stored=stored, progress=progress)
    return folder.read()


@contextmanager
def begin_run(
    folder: RunFolder, plan: RunPlan, corpus: Corpus, question_set: QuestionSet
) -> Iterator[Runner]:
    """Start or continue a run; at the end of the block, write the summary of its results."""
    with folder.lock():
        state = folder.begin(_new_state(plan, corpus.path, question_set.path), question_set.lines)
        runner = Runner(folder, state, corpus, question_set)
        try:
            yield runner
        finally:
            runner.summarize()


def build_plan(
    corpus: Corpus, question_set: QuestionSet, settings: Settings, **choices: Any
) -> RunPlan:
    """Return the plan of a run over these files, with these settings and choices."""
    return RunPlan(
        corpus_sha256=corpus.sha256,
        queries_sha256=question_set.sha256,
        embedder=settings.embedder,
        version=version("memrecall-agent"),
        **choices,
    )


def _new_state(plan: RunPlan, corpus: Path, queries: Path) -> RunState:
    """Return the state of a run that starts now."""
    return RunState(
        plan=plan,
        corpus=f"{corpus.resolve().parent.name}/{corpus.name}",
        queries=f"{queries.resolve().parent.name}/{queries.name}",
        started_at=format_time(datetime.now(UTC).replace(microsecond=0)),
        versions={
            "memrecall": version("memrecall-agent"),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    )
