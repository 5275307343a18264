"""Answers to single questions through the production code path: by search or by recall."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from memrecall.errors import InvalidArgument
from memrecall.evaluation.corpus import Corpus
from memrecall.evaluation.questions import Question, QuestionResult, RecallRecord
from memrecall.evaluation.runs import RunPlan
from memrecall.library.library import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
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

    @property
    def _has_embedder(self) -> bool:
        """Whether vectors are to be measured too."""
        return self.library.embedder is not None

    async def ask(self, question: Question) -> QuestionResult:
        """Answer one question, independent of the previous one."""
        is_search = self.plan.mode == "search"
        return await (self._search(question) if is_search else self._recall(question))

    async def _search(self, question: Question) -> QuestionResult:
        """Run one search over everything up to the question's `as_of`."""
        horizon = question.horizon
        request = SearchRequest(
            question.query,
            mode=self.plan.retrieval,
            limit=self.plan.depth,
            until=horizon and horizon + timedelta(microseconds=1),
            now=horizon or self.corpus.now(question.user_id),
        )
        page = await self.library.search(_scope(question), request)
        probabilities = [
            round(hit.probability, _DIGITS) for hit in page.results if hit.probability is not None
        ]
        is_complete = probabilities and len(probabilities) == len(page.results)
        return QuestionResult(
            query_id=question.query_id,
            category=question.category,
            retrieved=tuple((hit.key, round(hit.score, _DIGITS)) for hit in page.results),
            probabilities=tuple(probabilities) if is_complete else None,
            without_vectors=self._has_embedder and page.degraded is not None,
        )

    async def _recall(self, question: Question) -> QuestionResult:
        """Run the whole recall loop."""
        from memrecall.agent import Recaller, RecallOptions

        horizon = question.horizon
        moment = horizon or self.corpus.now(question.user_id)
        client = self.model_client
        if self.cassettes is not None:
            client = self.cassettes.client(question, client, moment)
        recaller = Recaller(
            self.library,
            _scope(question),
            client,
            RecallOptions(keep_traces_days=0),
            clock=lambda: moment,
        )
        result = await recaller.recall(question.conversation, as_of=horizon)
        if self.cassettes is not None and self.cassettes.replay:
            client.assert_exhausted()
        return QuestionResult(
            query_id=question.query_id,
            category=question.category,
            retrieved=_rank_keys(result)[: self.plan.depth],
            recalled=_record(result),
            without_vectors=self._has_embedder and bool(result.degraded),
        )


def _scope(question: Question) -> Scope:
    return Scope(question.user_id, session_id=question.session_id)


def _rank_keys(result: "RecallResult") -> tuple[tuple[str, float | None], ...]:
    """Return the keys handed off, then the other keys seen, by their best score."""
    scores = _best_scores(result)
    handed_off = list(dict.fromkeys(result.handoff.relevant_memory_keys))
    others = [key for key in dict.fromkeys(result.keys_seen) if key not in set(handed_off)]
    others.sort(key=lambda key: -scores.get(key, -1.0))  # stable for keys without a score
    return tuple((key, scores.get(key)) for key in [*handed_off, *others])


def _best_scores(result: "RecallResult") -> dict[str, float]:
    """Return the best score of every key that a search returned."""
    from memrecall.agent.trace_events import ResultEvent

    best: dict[str, float] = {}
    for event in result.trace.events:
        if isinstance(event, ResultEvent) and not event.error:
            for hit in (event.output or {}).get("results", ()):
                key, score = hit["memory_key"], round(float(hit["relevance_score"]), _DIGITS)
                best[key] = max(score, best.get(key, score))
    return best


def _record(result: "RecallResult") -> RecallRecord:
    usage = result.usage
    return RecallRecord(
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
