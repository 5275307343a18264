"""Memory search: the engine's ranking or a plain rank fusion, and filters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from memrecall.library.graph_evidence import possible_names
from memrecall.library.library import Library
from memrecall.memory.results import (
    FoundItems,
    Kinds,
    StoredItem,
    covered_kinds,
    hit_item,
    name_authors,
    quote_conflicts,
    quote_message,
    score_details,
)
from memrecall.scope import Scope
from memrecall.search import EngineRequest, Hit, SearchPage, put_claims_last
from memrecall.search.ranking.features import user_to_first_person
from memrecall.search.results import describe_threshold, join_sources, mark_outdated
from memrecall.store import Graph, MemoryQuery, UserVersion, read_filter
from memrecall.store.database.cursors import LARGEST_PAGE, require_limit
from memrecall.text.times import TimeSpan
from memrecall.text.tokens import entity_key
from memrecall.types import Message, format_time

_MORE_ROWS = 20
MOST_RELATED_NAMES = 8
_MOST_RELATIONS = 200
_RANK_CONSTANT = 60  # the usual constant of reciprocal rank fusion


@dataclass(frozen=True, slots=True)
class MemorySearch:
    """The arguments of one search."""

    query: str
    limit: int = 100
    filters: Mapping[str, Any] | None = None
    threshold: float | None = None
    rerank: bool = True
    session_id: str | None = None
    as_of: datetime | None = None
    kinds: Kinds = "all"
    explain: bool = False
    today: datetime | None = None
    show_expired: bool = False
    period: TimeSpan | None = None


async def search_memories(library: Library, scope: Scope, search: MemorySearch) -> FoundItems:
    """Return the hits of a search in mem0's shape; `message` explains an empty or partial list."""
    search_owner = partial(_search_owner, library, search, 1 + len(scope.spaces))
    if scope.spaces:
        entered = await library.enter(scope, await _build_request(library, scope.own, search))
        page = await library.search_owners(scope, None, entered, search_owner)
    else:
        page = await search_owner(scope, None)
    hits = page.results[: search.limit]
    results = [hit_item(hit, page.records[hit.key]) for hit in hits]
    if not scope.spaces:  # else their pages have the names
        await name_authors(library.store, results)
    await quote_conflicts(library.store, scope, results)
    _add_sources(page, hits, results)
    if search.explain:
        for item, hit in zip(results, hits, strict=True):
            item["score_details"] = score_details(hit, search.threshold or 0.0)
    found: FoundItems = {
        "results": results,
        "total_found": page.total_found,
        "below_threshold": page.below_threshold,
        "message": page.message,
    }
    if page.nearest:
        found["nearest"] = format_time(page.nearest)
    return found


async def _search_owner(
    library: Library, search: MemorySearch, share: int, scope: Scope, user: UserVersion | None
) -> SearchPage:
    """Return the hits of one owner, a memory and its message as one."""
    request = await _build_request(library, scope, search, share)
    rank = _search_with_names if search.rerank else _fuse_ranks
    page = await rank(library, scope, request, user)
    joined = join_sources(await mark_outdated(library.store, scope, page))
    below, best = joined.below_threshold, max((hit.score for hit in joined.results), default=0.0)
    if below != page.below_threshold:
        told = describe_threshold(request.threshold, below, joined.total_found, best)
        joined = replace(joined, explanation=told)
    return replace(joined, results=tuple(put_claims_last(joined.results)))


def _add_sources(page: SearchPage, hits: Sequence[Hit], items: Sequence[StoredItem]) -> None:
    """Add to each item its source message; if it has several, the one that ranks first."""
    ranks = {hit.key: rank for rank, hit in enumerate(page.results)}
    for hit, item in zip(hits, items, strict=True):
        keys = (set(hit.sources) - page.withheld_sources) & page.records.keys()
        source = min(keys, key=lambda key: (ranks.get(key, len(ranks)), key), default=None)
        message = page.records[source] if source else None
        item["source"] = quote_message(message) if isinstance(message, Message) else None


async def _build_request(
    library: Library, scope: Scope, search: MemorySearch, share: int = 1
) -> EngineRequest:
    require_limit("limit", search.limit, LARGEST_PAGE)
    covered = covered_kinds(search.kinds)
    # A result may have two rows, a memory and its message, of which one may rank much lower.
    rows = search.limit if len(covered) == 1 else 2 * search.limit + _MORE_ROWS
    kind: Any = next(iter(covered))
    request = EngineRequest(
        # "The user" is a label that most memories have, and in the graph related to most names.
        user_to_first_person(search.query),
        limit=min(rows, LARGEST_PAGE),
        threshold=search.threshold or 0.0,
        kind=None if len(covered) > 1 else kind,
        session_id=search.session_id,
        now=search.today or search.as_of,
        valid_at=search.as_of or (datetime.now(UTC) if search.today else None),
        until=None if search.as_of is None else search.as_of + timedelta(microseconds=1),
        period=search.period,
        with_sources=True,
        share=share,
    )
    condition = read_filter(search.filters)
    if search.filters and "message" in covered:
        keys = await library.store.timeline(scope).keys(condition)
        request = replace(request, only_messages=frozenset(keys))
    if "memory" not in covered or not (search.filters or search.show_expired):
        return request
    query = MemoryQuery(condition, search.session_id, search.as_of, expired=search.show_expired)
    keys = await library.store.memories(scope).keys(query)
    return replace(request, only=frozenset(keys), with_expired=search.show_expired)


async def _search_with_names(
    library: Library, scope: Scope, request: EngineRequest, user: UserVersion | None
) -> SearchPage:
    """Search also for the names that the graph relates to the entities of the query."""
    names = await _related_names(library.graph(scope), request.query, request.valid_at)
    return await library.search(scope, replace(request, expansions=names), user)


async def _related_names(graph: Graph, query: str, as_of: datetime | None) -> tuple[str, ...]:
    """Return the names of entities related to those that a query names, nearest first."""
    entities = await graph.entities(possible_names(query))
    if not entities:
        return ()
    folded_query = entity_key(query)
    ids = {entity.entity_id for entity in entities}
    names: dict[str, None] = {}
    for source, _, relation in await graph.around(sorted(ids), as_of, _MOST_RELATIONS):
        name = relation.destination if source in ids else relation.source
        if entity_key(name) not in folded_query:
            names.setdefault(name)
    return tuple(names)[:MOST_RELATED_NAMES]


async def _fuse_ranks(
    library: Library, scope: Scope, request: EngineRequest, user: UserVersion | None
) -> SearchPage:
    wide = replace(request, threshold=0.0, limit=LARGEST_PAGE)
    pages = [await library.search(scope, replace(wide, mode="keyword"), user)]
    if library.embedder is not None:
        pages.append(await library.search(scope, replace(wide, mode="semantic"), user))
    scores: dict[str, float] = {}
    hits: dict[str, Hit] = {}
    best = len(pages) / (_RANK_CONSTANT + 1)
    for page in pages:
        for rank, hit in enumerate(page.results, 1):
            hits.setdefault(hit.key, hit)
            scores[hit.key] = scores.get(hit.key, 0.0) + 1 / (_RANK_CONSTANT + rank) / best
    keys = sorted(scores, key=lambda key: (-scores[key], key))
    fused: list[Hit] = []
    for key in keys:
        # Half of the largest sum is what a first place on one side gives: it must pass a threshold.
        relevance = 2 * scores[key] / (1 + scores[key])
        is_below = relevance < request.threshold
        fused.append(
            replace(hits[key], score=relevance, probability=None, below_threshold=is_below)
        )
    below = sum(hit.below_threshold for hit in fused)
    records = {key: record for page in pages for key, record in page.records.items()}
    withheld = max(page.withheld for page in pages)
    empty = SearchPage() if fused else pages[-1]
    best_score = fused[0].score if fused else 0.0
    excluded = describe_threshold(request.threshold, below, len(fused) - below, best_score)
    return SearchPage(
        tuple(fused[: request.limit]),
        len(fused) - below,
        below_threshold=below,
        explanation=excluded or empty.explanation,
        records=records,
        withheld=withheld,
        nearest=empty.nearest,
        withheld_sources=pages[-1].withheld_sources,
    )
