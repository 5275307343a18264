"""Finding messages alone, as the message query API asks: by words in pages, or by meaning.

Unlike the ranking of `SearchEngine`, scores here are plain measures (BM25, cosine), memories are
left out, and nothing but the message itself speaks for it.
"""

import asyncio
import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.search.index.cache import IndexCache
from memrecall.search.index.columns import Columns, Mask
from memrecall.search.index.rows import MESSAGE, role_number, to_micros
from memrecall.search.ranking.lexical import (
    Terms,
    add_term,
    all_terms,
    average_length,
    document_frequency,
    length_norms,
    match,
    term_key,
)
from memrecall.search.ranking.selection import RankPosition, first_places, place_of
from memrecall.search.request import (
    LexicalQuery,
    ScoredMessage,
    ScoredPage,
    SemanticQuery,
)
from memrecall.store import MessageFilter, Store, UserVersion, open_cursor, seal_cursor
from memrecall.telemetry import trace_search
from memrecall.text.query import Query, parse_query, positive_words
from memrecall.text.snippets import snippets
from memrecall.types import Message

Floats = npt.NDArray[np.float32]

_DIGITS = 4  # steps that rounding errors cannot cross


@dataclass(frozen=True, slots=True)
class Weighing:
    """What the terms of a query weigh, in their order, and the length of an average row."""

    average: float
    weights: tuple[float, ...]

    def pack(self) -> str:
        """The exact numbers as text."""
        numbers = np.array([self.average, *self.weights], dtype="<f8")
        return base64.b64encode(numbers.tobytes()).decode()

    @classmethod
    def unpack(cls, text: str) -> "Weighing":
        """The inverse of `pack`."""
        numbers = np.frombuffer(base64.b64decode(text), dtype="<f8").tolist()
        return cls(numbers[0], tuple(numbers[1:]))


def weigh(columns: Columns, terms: Terms, counted: Mask) -> Weighing:
    """What the terms weigh among the counted rows: the rarer, the more."""
    total = int(np.count_nonzero(counted))
    if not total:
        return Weighing(1.0, tuple(0.0 for _ in terms))
    keys = np.array([term_key(columns, term) for term in terms], dtype=np.int64)
    places = [segment.places(keys) for segment in columns.segments]
    everyone = None if total == columns.rows else counted
    weights = []
    for at, asked in enumerate(terms.values()):
        found = document_frequency(columns, [place[at] for place in places], everyone)
        weights.append(asked * math.log(1 + (total - found + 0.5) / (found + 0.5)))
    return Weighing(average_length(columns, everyone), tuple(weights))


def score(columns: Columns, terms: Terms, weighing: Weighing) -> Floats:
    """The BM25 of every row, by the figures given."""
    scores = np.zeros(columns.rows, dtype=np.float32)
    if not terms or not columns.rows:
        return scores
    keys = np.array([term_key(columns, term) for term in terms], dtype=np.int64)
    places = [segment.places(keys) for segment in columns.segments]
    norms = length_norms(columns, weighing.average)
    for at, weight in enumerate(weighing.weights):
        add_term(columns, [place[at] for place in places], weight, norms, scores)
    rounded: Floats = np.round(scores, _DIGITS)
    return rounded


# Up to so many rows it costs more to move the work to a thread than it frees the event loop.
_ROWS_FOR_A_THREAD = {"words": 20_000, "meaning": 5_000}
# Vectors are kept in 16 bits and multiplied in 32: so far may a first estimate be off.
_ESTIMATE_ERROR = 0.003
_SNIPPETS_IN_THE_LOOP = 10
_COSINE_DIGITS, _SCORE_DIGITS = 6, 4


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a page of words begins. All pages see the user as the first one did."""

    version: int
    weighing: Weighing | None = None
    after: RankPosition | None = None


@dataclass(frozen=True, slots=True)
class _Places:
    """The rows of a page, before their words are fetched."""

    keys: list[str]
    scores: list[float]
    cursor: str | None = None
    unembedded: int = 0


class MessageSearch:
    """Searches any scope's messages; scores depend on that user's messages alone."""

    def __init__(self, store: Store, cache: IndexCache) -> None:
        self._store = store
        self._cache = cache

    async def by_words(self, scope: Scope, query: LexicalQuery) -> ScoredPage:
        """A page of the messages for which the query is true, the most relevant first."""
        with trace_search("lexical", query.text, query.page_size) as span:
            page = await self._by_words(scope, query)
            span.set({"memrecall.search.results": len(page.items)})
            return page

    async def _by_words(self, scope: Scope, query: LexicalQuery) -> ScoredPage:
        parsed = parse_query(query.text)
        words = positive_words(parsed)
        terms = all_terms("\n".join(words))

        def find(columns: Columns, mark: UserVersion) -> _Places:
            start = self._start(scope, query, mark)
            return self._page(columns, scope, query, parsed, terms, start)

        places = await self._find(scope, find, _ROWS_FOR_A_THREAD["words"])
        return await self._fetch(scope, places, words)

    async def by_meaning(self, scope: Scope, query: SemanticQuery, vector: Floats) -> ScoredPage:
        """The messages whose vectors are closest to a vector of unit length."""

        def find(columns: Columns, mark: UserVersion) -> _Places:
            if columns.vectors.dimensions:
                check_dimensions(len(vector), columns.vectors.dimensions)
            return _closest(columns, scope, query, vector, mark.version)

        with trace_search("semantic", query.text or "", query.top_k) as span:
            places = await self._find(scope, find, _ROWS_FOR_A_THREAD["meaning"], vector)
            page = await self._fetch(scope, places, ())
            span.set({"memrecall.search.results": len(page.items)})
            return page

    async def _find(
        self,
        scope: Scope,
        find: Callable[[Columns, UserVersion], _Places],
        rows_for_a_thread: int,
        vector: Floats | None = None,
    ) -> _Places:
        async with self._cache.current(scope.user_id) as current:
            if current is None:
                raise NotFound(f"there is no user {scope.user_id!r}")
            mark, columns = current
            await self._store.require_active(mark, scope)
            await self._cache.bring(mark, columns, vector)
            if columns.rows > rows_for_a_thread:
                return await asyncio.to_thread(find, columns, mark)
            return find(columns, mark)

    async def _fetch(self, scope: Scope, places: _Places, words: Sequence[str]) -> ScoredPage:
        """The messages of a page, in its order. One erased meanwhile is left out."""
        found = await self._store.timeline(scope).get_many(places.keys)
        by_id = {message.message_id: message for message in found}
        if words and len(found) > _SNIPPETS_IN_THE_LOOP:
            items = await asyncio.to_thread(_items, places, by_id, words)
        else:
            items = _items(places, by_id, words)
        return ScoredPage(items, places.cursor, places.unembedded)

    def _page(
        self,
        columns: Columns,
        scope: Scope,
        query: LexicalQuery,
        parsed: Query,
        terms: Terms,
        start: _Start,
    ) -> _Places:
        own = _own_messages(columns, scope, start.version)
        weighing = start.weighing or weigh(columns, terms, own)
        rows = np.flatnonzero(own & _passing(columns, query.filter) & match(columns, parsed))
        scores = score(columns, terms, weighing)[rows]
        everything = np.ones(len(rows), dtype=np.bool_)
        # One more than asked tells whether there is a next page.
        best = first_places(columns, rows, scores, everything, query.page_size + 1, start.after)
        page = [(int(rows[at]), float(scores[at])) for at in best[: query.page_size]]
        cursor = None
        if len(best) > query.page_size:
            last = place_of(columns, *page[-1])
            place = [start.version, weighing.pack(), *last]
            cursor = seal_cursor(self._secret, _binding(scope, query), place)
        keys = [columns.table.keys[row] for row, _ in page]
        return _Places(keys, [round(value, _SCORE_DIGITS) for _, value in page], cursor)

    def _start(self, scope: Scope, query: LexicalQuery, mark: UserVersion) -> _Start:
        if query.cursor is None:
            return _Start(mark.version)
        version, packed, *place = open_cursor(self._secret, _binding(scope, query), query.cursor)
        return _Start(int(version), Weighing.unpack(packed), RankPosition(*place))

    @property
    def _secret(self) -> bytes:
        return self._store.facts.cursor_secret


def _items(
    places: _Places, by_id: dict[str, Message], words: Sequence[str]
) -> tuple[ScoredMessage, ...]:
    return tuple(
        ScoredMessage(
            by_id[key], value, tuple(snippets(by_id[key].content, words)) if words else ()
        )
        for key, value in zip(places.keys, places.scores, strict=True)
        if key in by_id
    )


def check_dimensions(given: int, stored: int) -> None:
    """Refuse a vector that no stored one can be compared with."""
    if given != stored:
        raise InvalidArgument(
            f"query_embedding has {given} numbers", hint=f"The vectors stored here have {stored}"
        )


def unit_vector(numbers: Sequence[float]) -> Floats:
    """A given vector with length one; InvalidArgument if it has no direction."""
    vector = np.array(numbers, dtype=np.float64)
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise InvalidArgument("query_embedding is not a list of finite numbers")
    largest = float(np.abs(vector).max())
    if largest == 0.0:
        raise InvalidArgument("query_embedding is all zeros", hint="Such a vector is near nothing")
    vector /= largest  # or the squares of very large numbers would be infinite
    unit: Floats = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


def _closest(
    columns: Columns, scope: Scope, query: SemanticQuery, vector: Floats, version: int
) -> _Places:
    own = _own_messages(columns, scope, version) & _passing(columns, query.filter)
    embedded = columns.embedded(version)
    rows = np.flatnonzero(own & embedded)
    lacking = int(np.count_nonzero(own & ~embedded))
    if not len(rows):
        return _Places([], [], unembedded=lacking)
    estimates = columns.vectors.similarities(vector, columns.rows)[rows]
    least = -math.inf if query.min_score is None else query.min_score - _ESTIMATE_ERROR
    if len(rows) > query.top_k:
        kth = float(np.partition(estimates, len(rows) - query.top_k)[len(rows) - query.top_k])
        least = max(least, kth - 2 * _ESTIMATE_ERROR)
    rows = rows[estimates >= least]
    cosines = columns.vectors.exact_cosines(vector, rows, _COSINE_DIGITS)
    good = cosines >= (-math.inf if query.min_score is None else query.min_score)
    best = first_places(columns, rows, cosines, good, query.top_k, None)
    keys = [columns.table.keys[int(rows[at])] for at in best]
    told = [round(float(cosines[at]), _COSINE_DIGITS) for at in best]
    return _Places(keys, told, unembedded=lacking)


def _own_messages(columns: Columns, scope: Scope, version: int) -> Mask:
    """The scope's messages as they were at that version: what scores are measured against."""
    table = columns.table
    own: Mask = columns.alive(version) & (table.kind == MESSAGE)
    if scope.agent_id is not None:
        own &= table.agent == table.names.find(scope.agent_id)
    return own


def _passing(columns: Columns, wanted: MessageFilter) -> Mask:
    table = columns.table
    passing: Mask = np.ones(columns.rows, dtype=np.bool_)
    if wanted.since is not None:
        passing &= table.ts >= to_micros(wanted.since)
    if wanted.until is not None:
        passing &= table.ts < to_micros(wanted.until)
    if wanted.role is not None:
        passing &= table.role == role_number(wanted.role)
    if wanted.session_id is not None:
        passing &= table.session == table.names.find(wanted.session_id)
    return passing


def _binding(scope: Scope, query: LexicalQuery) -> list[object]:
    """What a cursor belongs to: everything but the size of the page."""
    return ["lexical", scope.user_id, scope.agent_id, query.text, *query.filter.fingerprint()]
