"""Asking a question through the production path: one search, or a whole recall."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from memrecall.errors import InvalidArgument
from memrecall.evaluation.corpus import Corpus
from memrecall.evaluation.questions import Question
from memrecall.evaluation.runs import QuestionResult, RecallRecord
from memrecall.library.library import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.search.request import Mode
from memrecall.types import format_time

if TYPE_CHECKING:
    from memrecall.agent import RecallResult

_DIGITS = 6  # of a score: enough to rank by, the same on every run


class Asker(Protocol):
    """A way to ask."""

    async def ask(self, question: Question) -> QuestionResult:
        """Ask one question."""
        ...


class SearchAsker:
    """Asks the search engine, with the question as it stands."""

    def __init__(self, library: Library, corpus: Corpus, depth: int, mode: Mode = "hybrid") -> None:
        self._library = library
        self._corpus = corpus
        self._depth = depth
        self._mode = mode

    async def ask(self, question: Question) -> QuestionResult:
        """One search with nothing left out but what is later than `as_of`."""
        horizon = question.horizon
        request = SearchRequest(
            question.query,
            mode=self._mode,
            limit=self._depth,
            until=horizon and horizon + timedelta(microseconds=1),
            now=horizon or self._corpus.now(question.user_id),
        )
        page = await self._library.search(_scope(question), request)
        chances = [getattr(hit, "probability", None) for hit in page.results]
        known = [round(chance, _DIGITS) for chance in chances if chance is not None]
        return QuestionResult(
            query_id=question.query_id,
            category=question.category,
            retrieved=tuple((hit.key, round(hit.score, _DIGITS)) for hit in page.results),
            probabilities=tuple(known) if known and len(known) == len(chances) else None,
        )


class Tapes:
    """Cassettes of a run's recalls: one file a question, to be written or to be played."""

    def __init__(self, folder: Path, *, replay: bool) -> None:
        self.folder = folder
        self.replay = replay

    def prepare(self, corpus: Corpus, *, resumed: bool) -> None:
        """Refuse what could not be replayed, and to record over another run's cassettes."""
        timeless = [line for line, one in corpus.memories if one.memory.valid_from is None]
        if timeless:
            raise InvalidArgument(
                f"{corpus.path} line {timeless[0]}: a recall that sees this memory cannot "
                "be replayed, because it carries the time at which it was stored",
                hint="Give it a valid_from, or leave out --record and --replay",
            )
        if self.replay:
            return
        if not resumed and self.folder.exists() and any(self.folder.iterdir()):
            raise InvalidArgument(
                f"{self.folder} is not empty", hint="Record into a folder of its own"
            )
        self.folder.mkdir(parents=True, exist_ok=True)

    def client(self, question: Question, inner: Any, moment: datetime) -> Any:
        """The client for one question."""
        from memrecall.model import RecordingClient, ReplayClient

        path = self.folder / f"{quote(question.query_id, safe='')}.jsonl"
        if self.replay:
            return ReplayClient(path)
        about = {"now": format_time(moment), "as_of": question.as_of is not None}
        return RecordingClient(inner, path, overwrite=True, about=about)


class RecallAsker:
    """Asks through the whole recall loop."""

    def __init__(
        self,
        library: Library,
        corpus: Corpus,
        depth: int,
        client: Any,
        tapes: Tapes | None = None,
        without: Sequence[str] = (),
    ) -> None:
        self._without = without
        self._library = library
        self._corpus = corpus
        self._depth = depth
        self._client = client
        self._tapes = tapes

    async def ask(self, question: Question) -> QuestionResult:
        """One recall with nothing kept from the one before."""
        from memrecall.agent import Recaller, RecallOptions

        horizon = question.horizon
        moment = horizon or self._corpus.now(question.user_id)
        client = self._client
        if self._tapes is not None:
            client = self._tapes.client(question, client, moment)
        recaller = Recaller(
            self._library,
            _scope(question),
            client,
            RecallOptions(
                keep_traces_days=0,
                grow_window="grow_window" not in self._without,
                expand_queries="expand_queries" not in self._without,
            ),
            clock=lambda: moment,
        )
        result = await recaller.recall(question.conversation, as_of=horizon)
        if self._tapes is not None and self._tapes.replay:
            client.assert_exhausted()
        return QuestionResult(
            query_id=question.query_id,
            category=question.category,
            retrieved=_rank_seen(result)[: self._depth],
            recalled=_recalled(result),
        )


def _scope(question: Question) -> Scope:
    return Scope(question.user_id, session_id=question.session_id)


def _rank_seen(result: "RecallResult") -> tuple[tuple[str, float | None], ...]:
    """The keys handed off, then all others that were seen by the best score they had."""
    scores = _scores_seen(result)
    handed = list(dict.fromkeys(result.handoff.relevant_memory_keys))
    others = [key for key in dict.fromkeys(result.keys_seen) if key not in set(handed)]
    others.sort(key=lambda key: -scores.get(key, -1.0))  # keeps the order of those without one
    return tuple((key, scores.get(key)) for key in [*handed, *others])


def _scores_seen(result: "RecallResult") -> dict[str, float]:
    """The best score of every key that a search brought."""
    from memrecall.agent.trace import ResultEvent

    best: dict[str, float] = {}
    for event in result.trace.events:
        if isinstance(event, ResultEvent) and not event.error:
            for hit in (event.output or {}).get("results", ()):
                key, score = hit["memory_key"], round(float(hit["relevance_score"]), _DIGITS)
                best[key] = max(score, best.get(key, score))
    return best


def _recalled(result: "RecallResult") -> RecallRecord:
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
