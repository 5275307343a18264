"""The runner of an evaluation, and `evaluate`, which does a whole run in one call."""

import asyncio
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.datasets import (
    Corpus,
    Question,
    QuestionResult,
    QuestionSet,
    RecallRecord,
    check_labels,
    count_hidden,
    import_corpus,
)
from memrecall.evaluation.runs import EvaluationRun, RunFolder, RunPlan, RunState
from memrecall.library.library import Library
from memrecall.progress import Advance, Progress, progress_bar
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.search.request import Mode
from memrecall.settings import Settings
from memrecall.types import format_time

if TYPE_CHECKING:
    from memrecall.agent import RecallResult


_DIGITS = 6  # of a score: enough to rank by, and equal on every run


@dataclass(frozen=True, slots=True)
class CassetteFolder:
    """The cassettes of a run, one per question, recorded or replayed."""

    folder: Path
    replay: bool

    def prepare(self, corpus: Corpus, *, resumed: bool) -> None:
        """Reject a corpus that cannot be replayed, and a folder with other cassettes."""
        undated = [line for line, item in corpus.memories if item.memory.valid_from is None]
        if undated:
            raise InvalidArgument(
                f"{corpus.path} line {undated[0]}: a memory without valid_from carries the time of "
                "the import, so that recalls of it cannot be replayed",
                hint="Add a valid_from, or drop --record and --replay",
            )
        if self.replay:
            return
        if not resumed and self.folder.exists() and any(self.folder.iterdir()):
            raise InvalidArgument(f"{self.folder} is not empty", hint="Record into an empty folder")
        self.folder.mkdir(parents=True, exist_ok=True)

    def client(self, question: Question, inner: Any, moment: datetime) -> Any:
        """Return the recording or replaying client of one question."""
        from memrecall.model import RecordingClient, ReplayClient

        path = self.folder / f"{quote(question.query_id, safe='')}.jsonl"
        if self.replay:
            return ReplayClient(path)
        about = {"now": format_time(moment), "as_of": question.as_of is not None}
        return RecordingClient(inner, path, overwrite=True, about=about)


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Answers the questions of a plan; recalls work without a model too."""

    library: Library
    corpus: Corpus
    plan: RunPlan
    model_client: Any = None
    cassettes: CassetteFolder | None = None

    async def ask(self, question: Question) -> QuestionResult:
        """Answer one question, independent of the previous one."""
        scope = Scope(question.user_id, session_id=question.session_id)
        is_search = self.plan.mode == "search"
        return await (self._search if is_search else self._recall)(question, scope)

    async def _search(self, question: Question, scope: Scope) -> QuestionResult:
        """Run one search over everything up to the question's `as_of`."""
        horizon = question.horizon
        request = SearchRequest(
            question.query,
            mode=self.plan.retrieval,
            limit=self.plan.depth,
            until=horizon and horizon + timedelta(microseconds=1),
            now=horizon or self.corpus.now(question.user_id),
        )
        page = await self.library.search(scope, request)
        probabilities = [
            round(hit.probability, _DIGITS) for hit in page.results if hit.probability is not None
        ]
        is_complete = probabilities and len(probabilities) == len(page.results)
        return QuestionResult(
            query_id=question.query_id,
            category=question.category,
            retrieved=tuple((hit.key, round(hit.score, _DIGITS)) for hit in page.results),
            probabilities=tuple(probabilities) if is_complete else None,
            without_vectors=self.library.embedder is not None and page.degraded is not None,
        )

    async def _recall(self, question: Question, scope: Scope) -> QuestionResult:
        """Run the whole recall loop."""
        from memrecall.agent import Recaller, RecallOptions

        horizon = question.horizon
        moment = horizon or self.corpus.now(question.user_id)
        client = self.model_client
        if self.cassettes is not None:
            client = self.cassettes.client(question, client, moment)
        recaller = Recaller(
            self.library,
            scope,
            client,
            RecallOptions(keep_traces_days=0),
            clock=lambda: moment,
        )
        result = await recaller.recall(question.conversation, as_of=horizon)
        if self.cassettes is not None and self.cassettes.replay:
            client.assert_exhausted()
        usage = result.usage
        record = RecallRecord(
            relevant_memory_keys=tuple(dict.fromkeys(result.handoff.relevant_memory_keys)),
            confidence=round(result.confidence, _DIGITS),
            abstained=result.abstained,
            stop_reason=result.stop_reason.value,
            iterations=result.iterations,
            windows=tuple(result.windows),
            tool_calls=int(usage["tool_calls"]),
            model_calls=int(usage["model_calls"]),
            prompt_characters=int(usage["prompt_characters"]),
            fallback=result.fallback,
        )
        return QuestionResult(
            query_id=question.query_id,
            category=question.category,
            retrieved=_rank_keys(result)[: self.plan.depth],
            recalled=record,
            without_vectors=self.library.embedder is not None and bool(result.degraded),
        )


def _rank_keys(result: "RecallResult") -> tuple[tuple[str, float | None], ...]:
    """Return the keys handed off, then the other keys seen, by their best score."""
    from memrecall.agent.trace import ResultEvent

    scores: dict[str, float] = {}
    for event in result.trace.events:
        if isinstance(event, ResultEvent) and not event.error:
            for hit in (event.output or {}).get("results", ()):
                key, score = hit["memory_key"], round(float(hit["relevance_score"]), _DIGITS)
                scores[key] = max(score, scores.get(key, score))
    handed_off = list(dict.fromkeys(result.handoff.relevant_memory_keys))
    others = [key for key in dict.fromkeys(result.keys_seen) if key not in set(handed_off)]
    others.sort(key=lambda key: -scores.get(key, -1.0))  # stable for keys without a score
    return tuple((key, scores.get(key)) for key in [*handed_off, *others])


@dataclass(slots=True)
class Runner:
    """Starts or continues one run."""

    folder: RunFolder
    state: RunState
    corpus: Corpus
    question_set: QuestionSet

    def remaining(self) -> int:
        """Return the number of questions that have no result yet."""
        return len(self.question_set.questions) - self.folder.repair()

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
        size, number = self.corpus.size, len(self.question_set.questions)
        if stored:
            await self._require_corpus(library)
        else:
            # A callback counts answered questions, not imported lines.
            import_progress = not callable(progress) and progress
            with progress_bar(import_progress, "importing", size, unit="lines") as advance:
                await self._import_corpus(library, advance)
        evaluator = Evaluator(library, self.corpus, self.state.plan, model_client, cassettes)
        with progress_bar(progress, "asking", number, unit="questions") as advance:
            answered = self.folder.repair()
            advance(answered)
            zones: dict[str, str] = {}
            for question in self.question_set.questions[answered:]:
                zone = question.time_zone or "UTC"
                if zones.get(question.user_id) != zone:
                    await library.store.owners.set_time_zone(question.user_id, zone)
                    zones[question.user_id] = zone
                started = time.perf_counter()
                result = await evaluator.ask(question)
                self.folder.append(result, time.perf_counter() - started)
                advance(1)
                # A question may be answered without suspending. A pending Ctrl-C must be raised
                # here: after the last question it would interrupt the closing of the database.
                await asyncio.sleep(0)

    async def _import_corpus(self, library: Library, advance: Advance) -> None:
        """Import the corpus, unless this run has imported it already."""
        database = library.store.facts.database_id
        if self.state.database_id != database:
            counts = await library.store.count()
            if counts["messages"] or counts["memories"]:
                raise InvalidArgument(
                    f"{library.store.location} is not empty: it holds {counts['messages']} "
                    f"messages and {counts['memories']} memories",
                    hint="An evaluation needs an empty database",
                )
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

    def summarize(self) -> None:
        """Write the summary of the results so far, also of an interrupted run."""
        self.folder.repair()
        state, run, questions = self.state, self.folder.read(), self.question_set.questions
        state.complete = len(run.answers) == len(questions)
        state.counts = {
            "messages": len(self.corpus.messages),
            "memories": len(self.corpus.memories),
            "users": len(self.corpus.keys),
            "questions": len(questions),
            "answered": len(run.answers),
            "unanswerable": sum(not question.answerable for question in run.questions),
            "evidence_hidden_by_as_of": count_hidden(
                self.question_set, self.corpus, datetime.now(UTC)
            ),
            "fallbacks": sum(
                answer.recalled is not None and answer.recalled.fallback is not None
                for answer in run.answers
            ),
            "without_vectors": run.without_vectors,
        }
        state.metrics = run.summarize()
        self.folder.save(state)
        if state.complete:
            self.folder.drop_database()


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
        names = [
            f"{path.resolve().parent.name}/{path.name}" for path in (corpus.path, question_set.path)
        ]
        fresh = RunState(
            plan=plan,
            corpus=names[0],
            queries=names[1],
            started_at=format_time(datetime.now(UTC).replace(microsecond=0)),
            versions={
                "memrecall": plan.version,
                "python": platform.python_version(),
                "numpy": np.__version__,
            },
        )
        state = folder.begin(fresh, question_set.lines)
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
