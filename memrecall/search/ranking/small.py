"""Ranking a handful of texts that are in no database: a window, a short-term memory.

`rank-bm25` does the counting. Up to a few thousand texts that is faster than making an index.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from memrecall.text.tokens import BREAK, Analysis, analyze, is_cjk


@dataclass(frozen=True, slots=True)
class RankedText:
    """A text's place in the list it was given in, and its BM25 score."""

    position: int
    score: float


def index_tokens(analysis: Analysis) -> list[str]:
    """All terms that a text is filed under: atoms, pairs of characters, extras."""
    pairs = [a + b for a, b in pairwise(analysis.atoms) if is_cjk(a) and is_cjk(b)]
    return [*(atom for atom in analysis.atoms if atom != BREAK), *pairs, *analysis.extras]


def rank_texts(texts: Sequence[str], query: str, limit: int = 10) -> list[RankedText]:
    """The texts that share words with the query, best first; earlier ones first where level."""
    from rank_bm25 import BM25Plus

    tokens = [index_tokens(analyze(text)) for text in texts]
    asked = index_tokens(analyze(query))
    if not any(tokens) or not asked:
        return []
    scores = BM25Plus(tokens).get_scores(asked)
    wanted = set(asked)
    found = [
        RankedText(position, round(float(score), 6))
        for position, score in enumerate(scores)
        if not wanted.isdisjoint(tokens[position])
    ]
    return sorted(found, key=lambda item: (-item.score, item.position))[:limit]
