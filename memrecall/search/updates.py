"""Later statements that replace earlier ones: people move, change jobs and change their minds."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from memrecall.embedding.base import TEXT_CHARACTERS
from memrecall.search.ranking.lexical import SearchTerm, query_terms
from memrecall.search.results import Hit
from memrecall.text.language import is_question
from memrecall.text.words import term_cost
from memrecall.text_length import cache_short_texts

_T = TypeVar("_T")

_COMPARED = 10  # of the first hits
_MIN_SHARED_COST = 8.5  # two statements about the same thing share at least one rare word
_MIN_TIME_BETWEEN = timedelta(hours=1)  # before, a conversation only goes on
_MIN_SHARE = 0.15  # of the probability of the statement that is replaced
_CURRENT = re.compile(
    r"\b(?:now|current|currently|these days|nowadays|latest|today|still)\b"
    r"|现在|目前|如今|最新|眼下|这会儿|当前",
    re.IGNORECASE,
)
_FORMER = re.compile(
    r"\b(?:originally|used to|at first|back then|previously|former|initially|did\b.{1,40} before)\b"
    r"|原来|当初|最初|最早|一开始|起初|(?:以前|之前|曾).{0,8}(?:哪|什么|谁)",
    re.IGNORECASE,
)
_HAPPENED = re.compile(
    r"\b(?:when|what day|which day|what date)\s+(?:did|was|were)\b", re.IGNORECASE
)
_CHANGE = re.compile(
    r"\b(?:now|instead|no longer|not any ?more|any ?more|switched|changed|moved|quit|left|sold"
    r"|replaced|cancell?ed|shuffled|raised|doubled|dropped|from (?:now|next|monday|tuesday"
    r"|wednesday|thursday|friday|january|february|march|april|may|june|july|august|september"
    r"|october|november|december)|as of|turns out|actually|new)\b"
    r"|改成|改为|改到|改了|换成|换了|换到|不再|现在|往后|以后|加到|减成|减到|涨到|降到|搬到|搬去|搬家"
    r"|取消|接手|辞了|辞职|结清|总算|重新|不用了|不去了|不吃了|提前到|推迟到|挪到|已经不",
    re.IGNORECASE,
)


def states_change(text: str) -> bool:
    """Return True if a text's beginning has words with which people tell of a change."""
    return _CHANGE.search(text, 0, TEXT_CHARACTERS) is not None


def asks_for_one_value(query: str) -> bool:
    """Return True if a query may ask for something of which only the last value counts."""
    # A conversation of several lines asks for no single fact. When something happened does not
    # change: each statement tells of another time.
    return not ("\n" in query.strip() or _FORMER.search(query) or _HAPPENED.search(query))


def put_updates_first(query: str, hits: Sequence[Hit]) -> list[Hit]:
    """Return hits with each statement before those that it replaces, and their keys in it."""
    if not asks_for_one_value(query):
        return list(hits)
    asks_for_current = _CURRENT.search(query) is not None
    updated = list(hits)
    for place, later in enumerate(hits[:_COMPARED]):
        earlier = hits[:place]
        replaced = [hit for hit in earlier if _is_replaced(hit, later, always=asks_for_current)]
        if replaced:
            updated[place] = _raise_to(replaced[0], later, replaced)
    return replacements_first(updated, lambda hit: hit.key, lambda hit: hit.replaces)


def put_claims_last(hits: Sequence[Hit]) -> list[Hit]:
    """Return hits, however scored, with each claim after and below what it conflicts with."""
    claims = [hit for hit in hits if hit.conflicts_with]
    ordered = list(hits)
    for claim in claims:
        places = [at for at, hit in enumerate(ordered) if hit.key in claim.conflicts_with]
        place = next(at for at, hit in enumerate(ordered) if hit.key == claim.key)
        if places and place < max(places):
            score = min(claim.score, ordered[max(places)].score)
            ordered.insert(max(places), replace(ordered.pop(place), score=score))
    return ordered


def replacements_first(
    items: Sequence[_T], key: Callable[[_T], str], replaces: Callable[[_T], Collection[str]]
) -> list[_T]:
    """Return items with each one before those whose keys it replaces, otherwise in order."""
    ordered = list(items)
    for later in filter(replaces, items):
        keys = [key(item) for item in ordered]
        places = [keys.index(name) for name in replaces(later) if name in keys]
        place = keys.index(key(later))
        if places and min(places) < place:
            ordered.insert(min(places), ordered.pop(place))
    return ordered


def _raise_to(first: Hit, later: Hit, replaced: Sequence[Hit]) -> Hit:
    chances = [hit.probability for hit in (first, later) if hit.probability is not None]
    return replace(
        later,
        score=max(first.score, later.score),
        probability=max(chances) if chances else None,
        replaces=tuple(hit.key for hit in replaced),
    )


def _is_replaced(earlier: Hit, later: Hit, *, always: bool) -> bool:
    return (
        not later.conflicts_with
        and earlier.ts + _MIN_TIME_BETWEEN <= later.ts
        and earlier.content != later.content
        and earlier.role == later.role
        and (earlier.speaker == later.speaker or None in (earlier.speaker, later.speaker))
        and (later.probability or 0) >= _MIN_SHARE * (earlier.probability or 0)
        and (always or states_change(later.content))
        and not is_question(later.content)
        and _shared_cost(earlier.content, later.content) >= _MIN_SHARED_COST
    )


def _shared_cost(first: str, second: str) -> float:
    shared = _terms(first) & _terms(second)
    return max((term_cost(*term) for term in shared), default=0.0)


@cache_short_texts(1_000, characters=10_000)
def _terms(text: str) -> frozenset[SearchTerm]:
    return frozenset(query_terms(text))
