"""Search of messages alone, for the message query API: lexical in pages, or semantic.

Unlike in `SearchEngine`, scores are plain measures (BM25, cosine), memories are left out, and the
context of a message does not count.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import numpy as np

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.search.index import Floats, Mask
from memrecall.search.index.cache import IndexCache
from memrecall.search.index.columns import MESSAGE, Columns, to_micros
from memrecall.search.index.postings import QueryCost
from memrecall.search.ranking.lexical import (
    TermWeights,
    all_terms,
    match,
    score_terms,
    term_spans,
    weigh_terms,
)
from memrecall.search.ranking.ranker import (
    RankPosition,
    filter_conditions,
    in_period,
    in_scope,
    top_positions,
)
from memrecall.search.request import LexicalQuery, SemanticQuery
from memrecall.search.results import ScoredMessage, ScoredPage
from memrecall.store import MessageFilter, Reads, Store, UserVersion, open_cursor, seal_cursor
from memrecall.text.query import Query, parse_query, positive_words
from memrecall.text.snippets import Highlighter, mark_passages
from memrecall.text.times import parse_period
from memrecall.types import Message
from memrecall.workers import in_process

# Vectors are stored in 16 bits and multiplied in 32: bounds the error of a first estimate.
_ESTIMATE_ERROR = 0.003
_COSINE_DIGITS, _SCORE_DIGITS = 6, 4  # steps larger than rounding errors


@dataclass(frozen=True, slots=True)
class _RankedMessages:
    """The messages of a page, before they are read from the store."""

    keys: list[str]
    scores: list[float]
    unembedded: int = 0
    has_more: bool = False
    nearest: datetime | None = None
    cursor_after: Callable[[str], str] | None = None  # the cursor of what follows a message


_Find = Callable[[Columns, UserVersion], _RankedMessages]


class MessageSearch:
    """Searches any scope's messages; scores depend on that user's messages alone."""

    def __init__(self, store: Store, cache: IndexCache) -> None:
        self._store = store
        self._cache = cache

    async def search_lexical(self, scope: Scope, query: LexicalQuery) -> ScoredPage:
        """Return a page of the messages for which a query is true, most relevant first."""
        parsed = await in_process(len(query.text), parse_query, query.text)
        return await self._find(scope, partial(self._page, scope, query, parsed), query=parsed)

    async def search_semantic(
        self, scope: Scope, query: SemanticQuery, vector: Floats
    ) -> ScoredPage:
        """Return the messages closest to a vector."""
        return await self._find(scope, partial(_closest, scope, query, vector), vector)

    async def _find(
        self, scope: Scope, find: _Find, vector: Floats | None = None, query: Query | None = None
    ) -> ScoredPage:
        """Rank messages and read the best of them; NotFound if there is no such user."""
        user = await self._store.read_version(scope)
        if user is None:
            self._cache.forget(scope.user_id)
            raise _unknown_user(scope)
        async with self._cache.open(self._store.feed(scope.user_id), user) as columns:
            if columns is None:
                raise _unknown_user(scope)
            await self._cache.fetch_products(columns, vector)

            def read(reads: Reads) -> ScoredPage:
                ranked = reads.compute(find, columns, user)
                messages = self._store.timeline(scope).read_many(ranked.keys, reads)
                return reads.compute(self._make_page, ranked, messages, query)

            return await self._store.database.read_together(read, is_search=True)

    def _make_page(
        self, ranked: _RankedMessages, messages: list[Message], query: Query | None
    ) -> ScoredPage:
        """Return a page of messages, in the order of their ranks. Erased ones are left out.

        A page of many bytes ends early, with a cursor if the search has pages.
        """
        by_id = {message.message_id: message for message in messages}
        scores = dict(zip(ranked.keys, ranked.scores, strict=True))
        found = [(by_id[key], score) for key, score in scores.items() if key in by_id]
        kept = found[: self._store.page_limits.cut([message for message, _ in found])]
        highlighter = None if query is None else Highlighter(positive_words(query))
        items = []
        for message, score in kept:
            marks = ((), ()) if highlighter is None else mark_passages(message.content, highlighter)
            items.append(ScoredMessage(message, score, *marks))
        is_cut = len(kept) < len(found)
        cursor = None
        if ranked.cursor_after and (ranked.has_more or is_cut):
            cursor = ranked.cursor_after(kept[-1][0].message_id if is_cut else ranked.keys[-1])
        return ScoredPage(tuple(items), cursor, ranked.unembedded, is_cut, ranked.nearest)

    def _page(
        self, scope: Scope, query: LexicalQuery, parsed: Query, columns: Columns, user: UserVersion
    ) -> _RankedMessages:
        version, first_weights, after, now = self._start(scope, query, user)
        terms = all_terms("\n".join(positive_words(parsed)))
        messages = _messages_of(columns, scope, version)
        spans = term_spans(columns, terms)
        cost = QueryCost()
        cost.spend(sum(end - start for places in spans for start, end in places))
        weights = first_weights or weigh_terms(columns, terms, spans, messages)
        found = _filtered(columns, messages, query.filter) & match(columns, parsed, cost)
        found, nearest = in_period(columns, found, parse_period(query.time, now, user.time_zone))
        rows = np.flatnonzero(found)
        scores = np.round(score_terms(columns, spans, weights)[rows], _SCORE_DIGITS)
        everything = np.ones(len(rows), dtype=np.bool_)
        # One more than requested shows whether there is a next page.
        best = top_positions(columns, rows, scores, everything, query.page_size + 1, after)
        page = [(int(rows[at]), float(scores[at])) for at in best[: query.page_size]]
        keys = [columns.table.keys[row] for row, _ in page]
        positions = dict(zip(keys, (RankPosition.of(columns, *item) for item in page), strict=True))

        def cursor_after(key: str) -> str:
            position = [version, weights.pack(), now.isoformat(), *positions[key]]
            return seal_cursor(self._store.facts.cursor_secret, _binding(scope, query), position)

        return _RankedMessages(
            keys,
            [round(score, _SCORE_DIGITS) for _, score in page],
            has_more=len(best) > query.page_size,
            nearest=nearest,
            cursor_after=cursor_after,
        )

    def _start(
        self, scope: Scope, query: LexicalQuery, user: UserVersion
    ) -> tuple[int, TermWeights | None, RankPosition | None, datetime]:
        """Return where a page begins. All pages see the user's data as the first one did."""
        if query.cursor is None:
            return user.version, None, None, datetime.now(UTC)
        secret = self._store.facts.cursor_secret
        version, packed, now, *rest = open_cursor(secret, _binding(scope, query), query.cursor)
        weights, after = TermWeights.unpack(packed), RankPosition(*rest)
        return int(version), weights, after, datetime.fromisoformat(now)


def _unknown_user(scope: Scope) -> NotFound:
    return NotFound(f"there is no user {scope.user_id!r}")


def check_dimensions(length: int, dimensions: int) -> None:
    """Reject a query vector that differs in length from the stored ones."""
    if length != dimensions:
        raise InvalidArgument(
            f"query_embedding has {length} numbers",
            hint=f"The vectors stored here have {dimensions}",
        )


def unit_vector(numbers: Sequence[float]) -> Floats:
    """Return a vector with unit length; InvalidArgument if it has no direction."""
    vector = np.array(numbers, dtype=np.float64)
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise InvalidArgument("query_embedding is not a list of finite numbers")
    largest = float(np.abs(vector).max())
    if largest == 0.0:
        raise InvalidArgument("query_embedding is all zeros", hint="Pass a vector with a direction")
    vector /= largest  # The squares of very large numbers would be infinite.
    unit: Floats = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


def _closest(
    scope: Scope, query: SemanticQuery, vector: Floats, columns: Columns, user: UserVersion
) -> _RankedMessages:
    version = user.version
    if columns.vectors.dimensions:
        check_dimensions(len(vector), columns.vectors.dimensions)
    messages = _filtered(columns, _messages_of(columns, scope, version), query.filter)
    period = parse_period(query.time, time_zone=user.time_zone)
    messages, nearest = in_period(columns, messages, period)
    embedded = columns.embedded(version)
    rows = np.flatnonzero(messages & embedded)
    unembedded = int(np.count_nonzero(messages & ~embedded))
    if not len(rows):
        return _RankedMessages([], [], unembedded=unembedded, nearest=nearest)
    min_score = -math.inf if query.min_score is None else query.min_score
    estimates = columns.vectors.similarities(vector, columns.rows)[rows]
    lowest = min_score - _ESTIMATE_ERROR
    if len(rows) > query.top_k:
        kth = float(np.partition(estimates, len(rows) - query.top_k)[len(rows) - query.top_k])
        lowest = max(lowest, kth - 2 * _ESTIMATE_ERROR)
    rows = rows[estimates >= lowest]
    cosines = columns.vectors.exact_cosines(vector, rows, _COSINE_DIGITS)
    best = top_positions(columns, rows, cosines, cosines >= min_score, query.top_k, None)
    keys = [columns.table.keys[int(rows[at])] for at in best]
    scores = [round(float(cosines[at]), _COSINE_DIGITS) for at in best]
    return _RankedMessages(keys, scores, unembedded=unembedded)


def _messages_of(columns: Columns, scope: Scope, version: int) -> Mask:
    """Return the scope's messages at a version, which scores are measured against."""
    table = columns.table
    is_current = table.valid_to > to_micros(datetime.now(UTC))
    alive = columns.alive(version) & (table.kind == MESSAGE) & is_current
    return in_scope(columns, scope, alive)


def _filtered(columns: Columns, messages: Mask, conditions: MessageFilter) -> Mask:
    for condition in filter_conditions(columns, conditions):
        messages = messages & condition
    return messages


def _binding(scope: Scope, query: LexicalQuery) -> list[object]:
    """Return what a cursor is bound to: everything but the size of the page."""
    return ["lexical", *scope.reader(), query.text, *query.filter.fingerprint(), query.time]
