"""Searching memories: the engine's ranking or a plain order, filters, a reranker on top."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from memrecall.errors import InvalidArgument, ModelFailed
from memrecall.memory.display import Found
from memrecall.memory.graph_search import two_hop_words
from memrecall.memory.library import Library
from memrecall.memory.reranking import RERANKED, Reranker
from memrecall.memory.shapes import hit_item
from memrecall.scope import Scope
from memrecall.search import Hit, SearchPage, SearchRequest
from memrecall.store import Wanted, read_filter

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
) -> Found:
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
    return Found(results=results, total_found=page.total_found, message=page.message)


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
    wanted = Wanted(read_filter(asked.filters), asked.session_id, asked.as_of)
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
        plain = await library.search(scope, asked)
        told = "; ".join(filter(None, (plain.message, f"not reranked: {error.message}")))
        return replace(plain, message=told)
    judged = [
        replace(hit, score=score, probability=None)
        for hit, score in zip(first, scores, strict=True)
    ]
    ordered = sorted(judged, key=lambda hit: -hit.score)
    least = ordered[-1].score
    ordered += [replace(hit, score=min(hit.score, least), probability=None) for hit in rest]
    good = tuple(hit for hit in ordered if hit.score >= request.threshold)
    return replace(page, results=good, total_found=page.total_found - len(ordered) + len(good))
