"""Searches over a user's own data and the spaces that a scope covers.

Each owner is ranked alone; the pages are merged by probability.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from memrecall.errors import InvalidArgument, NotFound
from memrecall.library.vectors import VectorWriter
from memrecall.scope import Scope, qualify_key, space_owner
from memrecall.search import Hit, LexicalQuery, ScoredPage, SearchPage, SearchRequest, SemanticQuery
from memrecall.store import Store, UserVersion
from memrecall.store.database.memberships import qualify_row
from memrecall.store.database.statements import Reads
from memrecall.store.spaces import enter_space_at
from memrecall.text.times import TimeSpan, parse_period

Entered = tuple[tuple[Scope, UserVersion], ...]
SearchOwner = Callable[[Scope, UserVersion | None], Awaitable[SearchPage]]
SearchMessages = Callable[[Scope], Awaitable[ScoredPage]]


async def enter_all(store: Store, scope: Scope) -> Entered:
    """Enter the spaces that a scope covers, in one trip to the database."""

    def read(reads: Reads) -> Entered:
        return tuple(enter_space_at(reads, scope, name) for name in scope.spaces)

    return await store.database.read_together(read) if scope.spaces else ()


def refuse_cursor(cursor: str | None) -> None:
    """Raise InvalidArgument if a search over spaces asks for a further page."""
    if cursor is not None:
        raise InvalidArgument("a search over spaces has one page", hint="Raise its limit")


class SpaceSearch(ABC):
    """The part of a library that reads over the spaces of a scope."""

    store: Store
    vectors: VectorWriter

    @abstractmethod
    async def search(
        self, scope: Scope, request: SearchRequest, user: UserVersion | None = None
    ) -> SearchPage:
        """Search a scope."""

    async def search_spaces(
        self,
        scope: Scope,
        request: SearchRequest,
        user: UserVersion | None,
        entered: Entered | None,
    ) -> SearchPage:
        """Search a user's own data and the spaces of a scope."""
        refuse_cursor(request.cursor)
        entered = entered or await self.enter(scope, request)
        period = await self.find_period(scope, request.time, request.now, request.time_zone)
        part = replace(request, share=1 + len(entered), period=request.period or period)
        page = await self.search_owners(
            scope, user, entered, lambda owner, version: self.search(owner, part, version)
        )
        return replace(page, results=page.results[: request.limit])

    async def search_owners(
        self, scope: Scope, user: UserVersion | None, entered: Entered, search: SearchOwner
    ) -> SearchPage:
        """Return one page of a user's own data and of spaces, each searched by a function."""
        pages = [await search(scope.own, user)]
        # One after the other: ranking takes the processor, and two threads would share it.
        for inside, version in entered:
            page = await search(inside, version)
            pages.append(qualify_page(page, str(inside.space)))
        return merge_pages(pages)

    async def with_author_names(
        self, page: SearchPage, scope: Scope, version: UserVersion | None
    ) -> SearchPage:
        """Return a page of a space with the names of its authors."""
        names = await self.store.spaces.names(scope.user_id, version)
        named = (replace(h, author=names.get(h.author or "", h.author)) for h in page.results)
        return replace(page, results=tuple(named))

    async def search_messages(
        self, scope: Scope, query: LexicalQuery | SemanticQuery, search: SearchMessages
    ) -> ScoredPage:
        """Return one page of the messages of a user and of the spaces of a scope, by score."""
        if not scope.spaces:
            return await search(scope)
        limit = query.top_k if isinstance(query, SemanticQuery) else query.page_size
        refuse_cursor(None if isinstance(query, SemanticQuery) else query.cursor)
        pages: list[ScoredPage] = []
        with suppress(NotFound):  # a member may have no data of their own
            pages.append(await search(scope.own))
        for inside, version in await enter_all(self.store, scope):
            page, space_id = await search(inside), str(inside.space)
            names = await self.store.spaces.names(inside.user_id, version)
            rows = (qualify_row(hit.message, space_id) for hit in page.items)
            named = (
                row.model_copy(update={"author": names.get(row.author or "", row.author)})
                for row in rows
            )
            hits = map(lambda hit, row: replace(hit, message=row), page.items, named)
            pages.append(replace(page, items=tuple(hits)))
        found = sorted(chain(*(page.items for page in pages)), key=lambda hit: -hit.score)
        unembedded = sum(page.unembedded for page in pages)
        is_cut = any(page.truncated for page in pages)
        return ScoredPage(tuple(found[:limit]), None, unembedded, is_cut)

    async def enter(self, scope: Scope, request: SearchRequest) -> Entered:
        """Enter the spaces of a scope for a search; NotFound for one that it may not read."""
        for name in scope.spaces:
            await self.catch_up(space_owner(name), request)
        return await enter_all(self.store, scope)

    async def catch_up(self, owner: str, request: SearchRequest) -> None:
        """Wait for the vectors of what was just written here, if a search needs them."""
        if request.mode != "keyword":
            await self.vectors.catch_up(owner)

    async def find_period(
        self, scope: Scope, time: str | None, now: datetime | None, zone: str | None = None
    ) -> TimeSpan | None:
        """Return the period of a `time` in the time zone of the scope's user."""
        user = await self.store.read_version(scope.own) if time and not zone else None
        return parse_period(time, now, zone or (user.time_zone if user else "UTC"))

    async def resolve_key(self, scope: Scope, key: str) -> tuple[Scope, str]:
        """Return the scope that a row is in, and its key there; "space:…/…" names a space."""
        space_id, plain = scope.split_key(key)
        if space_id is None:
            return scope.own, key
        return await self.store.spaces.enter(scope, space_id), plain


def qualify_page(page: SearchPage, space_id: str) -> SearchPage:
    """Return a page of a space with keys that name the space."""
    qualify = partial(qualify_key, space_id)

    def qualify_hit(hit: Hit) -> Hit:
        return replace(
            hit,
            key=qualify(hit.key),
            conflicts_with=tuple(map(qualify, hit.conflicts_with)),
            sources=tuple(map(qualify, hit.sources)),
        )

    return replace(
        page,
        results=tuple(map(qualify_hit, page.results)),
        records={qualify(key): qualify_row(row, space_id) for key, row in page.records.items()},
        outdated=tuple(map(qualify, page.outdated)),
        withheld_sources=frozenset(map(qualify, page.withheld_sources)),
    )


def merge_pages(pages: Sequence[SearchPage]) -> SearchPage:
    """Return one page: next is the hit with the best chance, in the order of its own page.

    What only fills the page of one owner comes after what the threshold lets pass of another.
    """
    queues = [list(page.results) for page in pages]
    merged: list[Hit] = []
    while queues := [queue for queue in queues if queue]:
        best = max(queues, key=lambda queue: (not queue[0].below_threshold, _chance(queue[0])))
        merged.append(best.pop(0))
    first, any_found = pages[0], any(not hit.below_threshold for hit in merged)
    near = [page for page in pages if page.nearest]
    notes = [page.explanation for page in (*near, *reversed(pages)) if page.explanation]
    failures = [page.embedder_failure for page in pages if page.embedder_failure]
    return replace(
        first,
        results=tuple(merged),
        total_found=sum(page.total_found for page in pages),
        explanation=notes[0] if notes and not any_found else "",
        below_threshold=sum(page.below_threshold for page in pages),
        nearest=near[0].nearest if near and not merged else None,
        embedder_failure=failures[0] if failures else "",
        withheld=sum(page.withheld for page in pages),
        withheld_sources=frozenset().union(*(page.withheld_sources for page in pages)),
        unembedded=sum(page.unembedded for page in pages),
        searched=sum(page.searched for page in pages),
        records={key: row for page in pages for key, row in page.records.items()},
        outdated=tuple(key for page in pages for key in page.outdated),
        next_cursor=None,
    )


def _chance(hit: Hit) -> tuple[float, float]:
    return hit.score if hit.probability is None else hit.probability, hit.score


def origin_fields(item: Any) -> dict[str, str]:
    """Return the field that says where a hit or recalled memory of a space is from."""
    return {"space": describe_origin(item.space, item.author, item.ts)} if item.space else {}


def describe_origin(space_id: str, author: str | None, moment: datetime | str) -> str:
    """Return where a row of a space is from, such as "space: team-x, by Ben, 2026-05-02"."""
    by = f", by {author}" if author else ""
    return f"space: {space_id}{by}, {str(moment)[:10]}"
