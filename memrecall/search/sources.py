"""Memories and the messages that they come from: one result each, what is outdated last."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from memrecall.scope import Scope
from memrecall.search.results import Hit, SearchPage, is_superseded, stated_by
from memrecall.store import Reads, Store

_MOVED = 10  # first hits among which outdated ones are last


def add_sources(store: Store, scope: Scope, page: SearchPage, reads: Reads) -> SearchPage:
    """Return a page whose records have the messages that its memories come from."""
    keys = {key for hit in page.results for key in hit.sources} - page.records.keys()
    messages = store.timeline(scope).read_many(sorted(keys), reads)
    return replace(page, records={**page.records, **{m.message_id: m for m in messages}})


async def mark_outdated(store: Store, scope: Scope, page: SearchPage) -> SearchPage:
    """Return a page whose messages of superseded memories are marked, and after others.

    The mark is the time until which a memory held. A message that states another memory among the
    hits, which still holds, is not marked.
    """
    stated = {key for hit in page.results for key in hit.sources}
    messages = {hit.key for hit in page.results if hit.kind == "message"} - stated
    if not page.outdated or not messages:
        return page
    ended = await _ended(store, scope, page.outdated)
    marks = {key: ended[key] for key in messages & ended.keys()}
    hits = [replace(hit, valid_to=marks.get(hit.key, hit.valid_to)) for hit in page.results]
    first = sorted(hits[:_MOVED], key=lambda hit: hit.key in marks)
    places = sorted(((hit.score, not hit.below_threshold) for hit in first), reverse=True)
    moved = [
        replace(hit, score=score, below_threshold=not is_found)
        for hit, (score, is_found) in zip(first, places, strict=True)
    ]
    return replace(page, results=(*moved, *hits[_MOVED:]))


def join_sources(page: SearchPage) -> SearchPage:
    """Return a page on which a memory and its message are one hit.

    The best memory of a message takes its place and score if they are better; the probability is
    that of either. A claim that conflicts with what the user said does not: it would pass what it
    conflicts with.
    """
    owners: dict[str, Hit] = {}
    for hit in page.results:
        for key in hit.sources:
            owners.setdefault(key, hit)
    folded: dict[str, Hit] = {}
    for hit in page.results:
        owner = owners.get(hit.key, hit)
        if owner is hit:
            folded.setdefault(hit.key, hit)
        elif not owner.conflicts_with:
            taken = folded.get(owner.key, owner)
            folded[owner.key] = _join(taken, hit)
    hits = tuple(folded.values())
    below = sum(hit.below_threshold for hit in page.results)
    still_below = sum(hit.below_threshold for hit in hits)
    found = len(page.results) - below
    return replace(
        page,
        results=hits,
        total_found=page.total_found - found + len(hits) - still_below,
        below_threshold=page.below_threshold - below + still_below,
    )


def _join(memory: Hit, message: Hit) -> Hit:
    """Return a memory with the better score of it and its message, and both probabilities."""
    better = max(memory, message, key=lambda hit: hit.score)
    chances = [hit.probability for hit in (memory, message) if hit.probability is not None]
    chance = min(sum(chances), 1.0) if chances else None
    return replace(
        memory,
        score=better.score,
        why=better.why,
        probability=chance,
        below_threshold=better.below_threshold,
    )


async def _ended(store: Store, scope: Scope, outdated: Sequence[str]) -> dict[str, datetime]:
    """Return for messages that state superseded memories until when these held.

    A model, `update` or `correct` supersedes; a memory that only expired was never changed.
    """
    memories = await store.memories(scope).get_states(outdated)
    return {
        key: memory.valid_to
        for memory in memories
        if memory.valid_to is not None and is_superseded(memory)
        for key in stated_by(memory)
    }
