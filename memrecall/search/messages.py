"""Search of messages alone, for the message query API: lexical in pages, or semantic.

Unlike in `SearchEngine`, scores are plain measures (BM25, cosine), memories are left out, and the
context of a message does not count.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.search.index.cache import IndexCache, VersionChanged
from memrecall.search.index.columns import Columns
from memrecall.search.index.postings import QueryCost
from memrecall.search.index.rows import MESSAGE, Floats, Mask
from memrecall.search.ranking.lexical import (
    TermWeights,
    all_terms,
    match,
    score_terms,
    term_spans,
    weigh_terms,
)
from memrecall.search.ranking.selection import (
    RankPosition,
    filter_conditions,
    in_agent,
    top_positions,
)
from memrecall.search.request import LONG_QUERY, LexicalQuery, SemanticQuery
from memrecall.search.results import ScoredMessage, ScoredPage
from memrecall.store import MessageFilter, Reads, Store, UserVersion, open_cursor, seal_cursor
from memrecall.telemetry import trace_search
from memrecall.text.highlights import Highlighter
from memrecall.text.query import Query, parse_query, positive_words
from memrecall.text.snippets import mark_passages
from memrecall.types import Message
from memrecall.workers import Turns, run_beside, run_to_completion, start_in_thread

# Up to this many rows, moving the work to a thread costs more than it frees the event loop.
_LEXICAL_ROWS_IN_EVENT_LOOP = 5_000
_SEMANTIC_ROWS_IN_EVENT_LOOP = 5_000
# About 5 ms: many threads that do this at once would hold up the event loop for longer.
_HIGHLIGHTED_IN_EVENT_LOOP = 6_000  # characters
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
    cursor_after: Callable[[str], str] | None = None  # the cursor of what follows a message


_Find = Callable[[Columns, UserVersion], _RankedMessages]


class MessageSearch:
    """Searches any scope's messages; scores depend on that user's messages alone."""

    def __init__(self, store: Store, cache: IndexCache) -> None:
        self._store = store
        self._cache = cache
        self._turns = Turns()

    async def search_lexical(self, scope: Scope, query: LexicalQuery) -> ScoredPage:
        """Return a page of the messages for which a query is true, most relevant first."""
        with trace_search("lexical", query.text, query.page_size) as span:
            is_long = len(query.text) > LONG_QUERY
            parsed = await run_beside(is_long, parse_query, query.text)
            find = partial(self._page, scope, query, parsed)
            rows_in_event_loop = 0 if is_long else _LEXICAL_ROWS_IN_EVENT_LOOP
            found = await self._find(scope, find, rows_in_event_loop)
            highlighter = await run_beside(is_long, Highlighter, positive_words(parsed))
            page = await self._make_page(*found, highlighter)
            span.set({"memrecall.search.results": len(page.items)})
            return page

    async def search_semantic(
        self, scope: Scope, query: SemanticQuery, vector: Floats
    ) -> ScoredPage:
        """Return the messages closest to a vector."""
        with trace_search("semantic", query.text or "", query.top_k) as span:
            find = partial(_closest, scope, query, vector)
            found = await self._find(scope, find, _SEMANTIC_ROWS_IN_EVENT_LOOP, vector)
            page = await self._make_page(*found, None)
            span.set({"memrecall.search.results": len(page.items)})
            return page

    async def _find(
        self,
        scope: Scope,
        find: _Find,
        rows_in_event_loop: int,
        vector: Floats | None = None,
    ) -> tuple[_RankedMessages, list[Message]]:
        """Rank messages and read the best of them; NotFound if there is no such user."""
        try:
            return await self._find_current(scope, find, rows_in_event_loop, vector)
        except NotFound:
            self._cache.forget(scope.user_id)
            raise

    async def _find_current(
        self, scope: Scope, find: _Find, rows_in_event_loop: int, vector: Floats | None
    ) -> tuple[_RankedMessages, list[Message]]:
        # The index is probably current: its version is compared where the messages are read.
        user = self._cache.version_of(scope.user_id)
        is_expected, changes = user is not None, None
        while True:
            if user is None:
                user = await self._read_version(scope, self._store.database)
            async with self._cache.open(self._store.feed(scope.user_id), user, changes) as columns:
                if columns is None:
                    raise _unknown_user(scope)
                await self._cache.fetch_products(columns, vector)
                in_event_loop = columns.rows <= rows_in_event_loop
                work = partial(self._read, scope, find, columns, user, is_expected, in_event_loop)
                try:
                    return await self._store.database.read_together(work)
                except VersionChanged as change:
                    user, is_expected, changes = change.user, False, change.changes

    async def _read(
        self,
        scope: Scope,
        find: _Find,
        columns: Columns,
        user: UserVersion,
        is_expected: bool,
        in_event_loop: bool,
        reads: Reads,
    ) -> tuple[_RankedMessages, list[Message]]:
        if is_expected and (current := await self._read_version(scope, reads)) != user:
            await self._cache.raise_change(self._store.feed(scope.user_id), columns, current, reads)
        if reads.in_thread:
            ranked = find(columns, user)
        elif in_event_loop:
            ranked = await self._turns.run(find, columns, user)
        else:
            ranked = await run_to_completion(start_in_thread(find, columns, user))
        return ranked, await self._store.timeline(scope).get_many(ranked.keys, reads)

    async def _read_version(self, scope: Scope, reads: Reads) -> UserVersion:
        """Return the version of a user who exists and is enabled."""
        user = await self._store.feed(scope.user_id).version(reads)
        if user is None:
            raise _unknown_user(scope)
        await self._store.require_active(user, scope, reads)
        return user

    async def _make_page(
        self, ranked: _RankedMessages, messages: list[Message], highlighter: Highlighter | None
    ) -> ScoredPage:
        """Return a page of messages, in the order of their ranks. Erased ones are left out.

        A page of many bytes ends early, with a cursor if the search has pages.
        """
        by_id = {message.message_id: message for message in messages}
        scores = dict(zip(ranked.keys, ranked.scores, strict=True))
        found = [(by_id[key], score) for key, score in scores.items() if key in by_id]
        kept = found[: self._store.page_limits.cut([message for message, _ in found])]
        length = sum(len(message.content) for message, _ in kept) if highlighter else 0
        is_long = length > _HIGHLIGHTED_IN_EVENT_LOOP
        run = asyncio.to_thread if is_long else self._turns.run
        items = await run(_make_items, kept, highlighter)
        is_cut = len(kept) < len(found)
        cursor = None
        if ranked.cursor_after and (ranked.has_more or is_cut):
            cursor = ranked.cursor_after(kept[-1][0].message_id if is_cut else ranked.keys[-1])
        return ScoredPage(items, cursor, ranked.unembedded, is_cut)

    def _page(
        self, scope: Scope, query: LexicalQuery, parsed: Query, columns: Columns, user: UserVersion
    ) -> _RankedMessages:
        version, first_weights, after = self._start(scope, query, user)
        terms = all_terms("\n".join(positive_words(parsed)))
        messages = _messages_of(columns, scope, version)
        spans = term_spans(columns, terms)
        cost = QueryCost()
        cost.spend(sum(end - start for places in spans for start, end in places))
        weights = first_weights or weigh_terms(columns, terms, spans, messages)
        found = match(columns, parsed, cost)
        rows = np.flatnonzero(_filtered(columns, messages, query.filter) & found)
        scores = np.round(score_terms(columns, spans, weights)[rows], _SCORE_DIGITS)
        everything = np.ones(len(rows), dtype=np.bool_)
        # One more than requested shows whether there is a next page.
        best = top_positions(columns, rows, scores, everything, query.page_size + 1, after)
        page = [(int(rows[at]), float(scores[at])) for at in best[: query.page_size]]
        keys = [columns.table.keys[row] for row, _ in page]
        positions = dict(zip(keys, (RankPosition.of(columns, *item) for item in page), strict=True))

        def cursor_after(key: str) -> str:
            position = [version, weights.pack(), *positions[key]]
            return seal_cursor(self._store.facts.cursor_secret, _binding(scope, query), position)

        return _RankedMessages(
            keys,
            [round(score, _SCORE_DIGITS) for _, score in page],
            has_more=len(best) > query.page_size,
            cursor_after=cursor_after,
        )

    def _start(
        self, scope: Scope, query: LexicalQuery, user: UserVersion
    ) -> tuple[int, TermWeights | None, RankPosition | None]:
        """Return where a page begins. All pages see the user's data as the first one did."""
        if query.cursor is None:
            return user.version, None, None
        secret = self._store.facts.cursor_secret
        version, packed, *rest = open_cursor(secret, _binding(scope, query), query.cursor)
        return int(version), TermWeights.unpack(packed), RankPosition(*rest)


def _unknown_user(scope: Scope) -> NotFound:
    return NotFound(f"there is no user {scope.user_id!r}")


def _make_items(
    found: Sequence[tuple[Message, float]], highlighter: Highlighter | None
) -> tuple[ScoredMessage, ...]:
    if highlighter is None:
        return tuple(ScoredMessage(message, score) for message, score in found)
    return tuple(
        ScoredMessage(message, score, *mark_passages(message.content, highlighter))
        for message, score in found
    )


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
    embedded = columns.embedded(version)
    rows = np.flatnonzero(messages & embedded)
    unembedded = int(np.count_nonzero(messages & ~embedded))
    if not len(rows):
        return _RankedMessages([], [], unembedded=unembedded)
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
    return in_agent(columns, scope, columns.alive(version) & (columns.table.kind == MESSAGE))


def _filtered(columns: Columns, messages: Mask, conditions: MessageFilter) -> Mask:
    for condition in filter_conditions(columns, conditions):
        messages = messages & condition
    return messages


def _binding(scope: Scope, query: LexicalQuery) -> list[object]:
    """Return what a cursor is bound to: everything but the size of the page."""
    return ["lexical", scope.user_id, scope.agent_id, query.text, *query.filter.fingerprint()]
