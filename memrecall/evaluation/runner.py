"""A whole run in one call, as a notebook wants it."""

import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from memrecall import __version__
from memrecall.errors import InvalidArgument
from memrecall.evaluation.askers import Asker, RecallAsker, SearchAsker
from memrecall.evaluation.corpus import Corpus, check_labels, count_hidden, fill
from memrecall.evaluation.metrics import summarise
from memrecall.evaluation.questions import Question, QuestionSet
from memrecall.evaluation.runs import EvaluationRun, RunFolder, RunPlan, RunState
from memrecall.library.library import Library
from memrecall.progress import Progress, progress_bar
from memrecall.search.request import Mode
from memrecall.types import format_time

Advance = Callable[[int], None]


class Runner:
    """Carries one run on from wherever it stands."""

    def __init__(
        self, folder: RunFolder, state: RunState, corpus: Corpus, asked: QuestionSet
    ) -> None:
        self.folder = folder
        self.state = state
        self.corpus = corpus
        self._asked = asked
        self._zones: dict[str, str] = {}

    @property
    def questions(self) -> int:
        """How many are to be asked in all."""
        return len(self._asked.questions)

    async def store_corpus(self, library: Library, advance: Advance) -> None:
        """Store the corpus, unless this run has done so already."""
        database = library.store.facts.database_id
        if self.state.database_id != database:
            await _require_empty(library)
            self.state.database_id, self.state.imported = database, False
            self.folder.save(self.state)
        if not self.state.imported:
            await fill(library, self.corpus, advance)
            self.state.imported = True
            self.folder.save(self.state)

    async def use_stored(self, library: Library) -> None:
        """Ask what an earlier run stored; a database with more or less in it is refused."""
        counts = await library.store.count()
        held = (counts["messages"], counts["memories"])
        wanted = (len(self.corpus.messages), len(self.corpus.memories))
        if held != wanted:
            raise InvalidArgument(
                f"{library.store.location} holds {held[0]} messages and {held[1]} memories, "
                f"the corpus {wanted[0]} and {wanted[1]}",
                hint="Leave out stored, with a database of its own",
            )
        self.state.database_id, self.state.imported = library.store.facts.database_id, True
        self.folder.save(self.state)

    async def ask_all(self, library: Library, asker: Asker, advance: Advance) -> None:
        """Ask what has not been asked."""
        done = self.folder.mend()
        advance(done)
        for question in self._asked.questions[done:]:
            await self._set_zone(library, question)
            started = time.perf_counter()
            answer = await asker.ask(question)
            self.folder.append(answer, time.perf_counter() - started)
            advance(1)

    def sum_up(self) -> EvaluationRun:
        """Write the summary of what there is, also of a run that was stopped."""
        self.folder.mend()
        run = self.folder.read()
        state = self.state
        state.complete = len(run.answers) == len(self._asked.questions)
        state.counts = self._count(run)
        state.metrics = summarise(run.questions, run.answers, run.seconds)
        self.folder.save(state)
        if state.complete:
            self.folder.drop_database()
        return self.folder.read()

    def _count(self, run: EvaluationRun) -> dict[str, int]:
        recalled = [answer.recalled for answer in run.answers if answer.recalled]
        return {
            "messages": len(self.corpus.messages),
            "memories": len(self.corpus.memories),
            "users": len(self.corpus.keys),
            "questions": len(self._asked.questions),
            "answered": len(run.answers),
            "unanswerable": sum(not question.answerable for question in run.questions),
            "evidence_hidden_by_as_of": count_hidden(self._asked, self.corpus, datetime.now(UTC)),
            "fallbacks": sum(result.fallback is not None for result in recalled),
        }

    async def _set_zone(self, library: Library, question: Question) -> None:
        """Let the question's user live where the question says."""
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
            hint="An evaluation needs a database of its own",
        )


async def evaluate(
    library: Library,
    corpus: Corpus,
    asked: QuestionSet,
    out: Path | str,
    *,
    mode: Literal["search", "recall"] = "search",
    retrieval: Mode = "hybrid",
    depth: int = 50,
    model_client: Any = None,
    stored: bool = False,
    progress: Progress = None,
) -> EvaluationRun:
    """Store a corpus in an empty library, ask every question, and measure what comes back.

    `out` is the run's folder. Called again with the same, it goes on where it was stopped. With
    `stored` the library holds the corpus already, from a run with other settings. A recall is
    driven by the `model_client`, or else by the rules. `progress` is told how many questions were
    answered; without it, a notebook shows a bar.
    """
    if mode not in ("search", "recall"):
        raise InvalidArgument(f"mode {mode!r} is not known", hint="Use search or recall")
    check_labels(asked, corpus)
    plan = RunPlan(
        mode=mode,
        depth=depth,
        max_questions=None,
        corpus_sha256=corpus.sha256,
        queries_sha256=asked.sha256,
        embedder=library.settings.embedder,
        model=str(getattr(model_client, "model", "")) if mode == "recall" else "",
        tool_calls=library.settings.tool_calls,
        replayed=False,
        version=__version__,
        retrieval=retrieval,
    )
    folder = RunFolder(Path(out))
    with folder.held():
        state = folder.begin(new_state(plan, corpus.path, asked.path), asked.lines)
        runner = Runner(folder, state, corpus, asked)
        try:
            if folder.mend() < runner.questions:
                await _store(runner, library, stored, progress)
                asker = _asker(library, runner, model_client)
                with progress_bar(
                    progress, "asking", runner.questions, unit="questions"
                ) as advance:
                    await runner.ask_all(library, asker, advance)
        finally:
            run = runner.sum_up()
    return run


def new_state(plan: RunPlan, corpus: Path, queries: Path) -> RunState:
    """The state of a run that begins now."""
    return RunState(
        plan=plan,
        corpus=f"{corpus.resolve().parent.name}/{corpus.name}",
        queries=f"{queries.resolve().parent.name}/{queries.name}",
        started_at=format_time(datetime.now(UTC).replace(microsecond=0)),
        versions={
            "memrecall": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    )


def _asker(library: Library, runner: Runner, model_client: Any) -> Asker:
    plan, corpus = runner.state.plan, runner.corpus
    if plan.mode == "search":
        return SearchAsker(library, corpus, plan.depth, plan.retrieval)
    from memrecall.agent import offline_client

    return RecallAsker(library, corpus, plan.depth, model_client or offline_client())


async def _store(runner: Runner, library: Library, stored: bool, progress: Progress) -> None:
    if stored:
        await runner.use_stored(library)
        return
    # Whoever gave a function wants to be told of answers, not of lines.
    about_lines = None if callable(progress) else progress
    with progress_bar(about_lines, "importing", runner.corpus.size, unit="lines") as advance:
        await runner.store_corpus(library, advance)
