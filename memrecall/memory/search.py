"""Searching memories: the engine's ranking or a plain order, filters, a reranker on top."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from memrecall.errors import InvalidArgument, ModelFailed, StorageError
from memrecall.library.library import Library
from memrecall.memory.display import SearchResults
from memrecall.memory.records import hit_item
from memrecall.memory.reranking import RERANKED, Reranker
from memrecall.scope import Scope
from memrecall.search import Hit, SearchPage, SearchRequest
from memrecall.store import MemoryQuery, ScopedGraph, Store, fold_name, fold_text, read_filter
from memrecall.text.tokens import CJK, is_cjk

MOST_WORDS = 8
_SHORTEST = 2
_LONGEST_QUESTION = 400  # characters that are looked through for names
_LONGEST_NAME = 6  # in words; and in characters where a script has no spaces
_LONGEST_WIDE_NAME = 12
_BESIDE = 200  # relations that are looked at
_ENDS = "?!.,;:，。？！；：…\"'"  # of sentences, not of names
_SIGNS = re.compile(r"[^\w\s]+")
_PIECE = re.compile(rf"[{CJK}]|[^\W{CJK}]+")


async def two_hop_words(graph: ScopedGraph, query: str, as_of: datetime | None) -> tuple[str, ...]:
    """Names that stand beside the entities of a question, the nearest first; () mostly."""
    asked = fold_name(query)
    named = await graph.entities(possible_names(query))
    if not named:
        return ()
    ids = {entity.entity_id for entity in named}
    words: dict[str, None] = {}
    for source, _, relation in await graph.around(sorted(ids), as_of, _BESIDE):
        beside = relation.destination if source in ids else relation.source
        if fold_name(beside) not in asked:
            words.setdefault(beside)
    return tuple(words)[:MOST_WORDS]


def possible_names(question: str) -> list[str]:
    """Every part of a question that could be a name, as names are compared.

    They are looked up by an index: a question costs its own length, however many entities there
    are.
    """
    folded = fold_text(question[:_LONGEST_QUESTION])
    pieces = [(found.start(), found.end()) for found in _PIECE.finditer(folded)]
    names: dict[str, None] = {}
    for first, (start, _) in enumerate(pieces):
        wide = False
        for place in range(first, min(first + _LONGEST_WIDE_NAME, len(pieces))):
            begin, end = pieces[place]
            wide = wide or is_cjk(folded[begin])
            if place - first >= _LONGEST_NAME and not wide:
                break
            names.setdefault(folded[start:end])
            names.setdefault(folded[start : _after_signs(folded, end)].rstrip(_ENDS))
    return [name for name in names if len(name) >= _SHORTEST]


def _after_signs(text: str, end: int) -> int:
    """Where the signs end that belong to a word, as in C++."""
    found = _SIGNS.match(text, end)
    return found.end() if found else end


_log = logging.getLogger(__name__)

MOST_WAITING = 500


class RecallMarks:
    """Notes of which memories searches have found."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, set[str]] = {}

    def note(self, user_id: str, keys: Iterable[str]) -> bool:
        """Memories were found; whether it is time to write that down."""
        self._waiting.setdefault(user_id, set()).update(keys)
        return sum(map(len, self._waiting.values())) >= MOST_WAITING

    def forget(self, user_id: str) -> None:
        """A user is gone."""
        self._waiting.pop(user_id, None)

    async def flush(self) -> None:
        """Write down what waits. A database that cannot be written loses no more than notes."""
        waiting, self._waiting = self._waiting, {}
        now = datetime.now(UTC)
        for user_id, keys in waiting.items():
            try:
                await self._store.memory_list(Scope(user_id)).mark_recalled(sorted(keys), now)
            except StorageError as error:
                _log.warning("when memories were last recalled is not noted: %s", error)


Kinds = Literal["memory", "message", "all"]

LARGEST_LIMIT = 200
_RANK_WEIGHT = 60  # of reciprocal rank fusion, as everybody uses it


@dataclass(frozen=True, slots=True)
class Search:
    """What a caller asks for."""

    query: str
    limit: int = 100
    filters: Mapping[str, Any] | None = None
    threshold: float | None = None
    rerank: bool = True
    session_id: str | None = None
    as_of: datetime | None = None
    kinds: Kinds = "memory"


async def search_memories(
    library: Library, scope: Scope, asked: Search, reranker: Reranker | None
) -> SearchResults:
    """The best memories for a query, in mem0's shape; `message` says what else is to be said."""
    request = await _request(library, scope, asked)
    if not asked.rerank:
        page = await _plain_order(library, scope, request)
    elif reranker is None:
        page = await library.search(scope, await _helped(library, scope, request))
    else:
        page = await _judged(library, scope, request, reranker)
    hits = page.results[: asked.limit]
    results = [hit_item(hit, page.records.get(hit.key), scope.user_id) for hit in hits]
    return SearchResults(results=results, total_found=page.total_found, message=page.message)


async def _request(library: Library, scope: Scope, asked: Search) -> SearchRequest:
    if not 1 <= asked.limit <= LARGEST_LIMIT:
        raise InvalidArgument(
            f"limit {asked.limit} is out of range", hint=f"Use 1 to {LARGEST_LIMIT}"
        )
    if asked.kinds not in ("memory", "message", "all"):
        raise InvalidArgument(f"kinds {asked.kinds!r} is not known", hint="memory, message or all")
    if asked.filters and asked.kinds != "memory":
        raise InvalidArgument("filters are on memories", hint='Leave kinds at "memory"')
    request = SearchRequest(
        asked.query,
        limit=asked.limit,
        threshold=asked.threshold or 0.0,
        kind=None if asked.kinds == "all" else asked.kinds,
        session_id=asked.session_id,
        now=asked.as_of,
        until=None if asked.as_of is None else asked.as_of + timedelta(microseconds=1),
    )
    if not asked.filters:
        return request
    wanted = MemoryQuery(read_filter(asked.filters), asked.session_id, asked.as_of)
    keys = await library.store.memory_list(scope).keys(wanted)
    return replace(request, only=frozenset(keys))


async def _helped(library: Library, scope: Scope, request: SearchRequest) -> SearchRequest:
    """With the names that the graph puts beside those of the question."""
    words = await two_hop_words(library.graph(scope), request.query, request.now)
    return replace(request, expansions=words) if words else request


async def _plain_order(library: Library, scope: Scope, request: SearchRequest) -> SearchPage:
    """By words and by meaning, joined by rank alone."""
    wide = replace(request, threshold=0.0, limit=LARGEST_LIMIT)
    pages = [await library.search(scope, replace(wide, mode="keyword"))]
    if library.embedder is not None:
        pages.append(await library.search(scope, replace(wide, mode="semantic")))
    scores: dict[str, float] = {}
    hits: dict[str, Hit] = {}
    best = len(pages) / (_RANK_WEIGHT + 1)
    for page in pages:
        for place, hit in enumerate(page.results, 1):
            hits.setdefault(hit.key, hit)
            scores[hit.key] = scores.get(hit.key, 0.0) + 1 / (_RANK_WEIGHT + place) / best
    good = [key for key in scores if scores[key] >= request.threshold]
    ordered = sorted(good, key=lambda key: (-scores[key], key))
    found = tuple(replace(hits[key], score=scores[key], probability=None) for key in ordered)
    records = {key: record for page in pages for key, record in page.records.items()}
    return SearchPage(found[: request.limit], len(found), records=records)


async def _judged(
    library: Library, scope: Scope, request: SearchRequest, reranker: Reranker
) -> SearchPage:
    """The engine's first hits in the reranker's order, and by its scores; the others behind them.

    If it fails, the engine's order stands, and the message says so.
    """
    asked = await _helped(library, scope, request)
    wide = replace(asked, threshold=0.0, limit=max(request.limit, RERANKED))
    page = await library.search(scope, wide)
    first, rest = page.results[:RERANKED], page.results[RERANKED:]
    if not first:
        return await library.search(scope, asked)
    try:
        scores = await reranker.score(request.query, [hit.content for hit in first])
    except ModelFailed as error:
        return replace(await library.search(scope, asked), reranker_failure=error.message)
    judged = [
        replace(hit, score=score, probability=None)
        for hit, score in zip(first, scores, strict=True)
    ]
    ordered = sorted(judged, key=lambda hit: -hit.score)
    least = ordered[-1].score
    ordered += [replace(hit, score=min(hit.score, least), probability=None) for hit in rest]
    good = tuple(hit for hit in ordered if hit.score >= request.threshold)
    return replace(page, results=good, total_found=page.total_found - len(ordered) + len(good))
