"""Ranking of a few texts that are in no database: a window, a short-term memory.

`rank-bm25` computes the scores. Up to a few thousand texts it is faster than building an index.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from memrecall.text.tokens import BREAK, Analysis, analyze, is_cjk


@dataclass(frozen=True, slots=True)
class RankedText:
    """The position of a text in its list, and its BM25 score."""

    position: int
    score: float


def index_tokens(analysis: Analysis) -> list[str]:
    """Return all terms that a text is indexed under: atoms, pairs of characters, extras."""
    pairs = [a + b for a, b in pairwise(analysis.atoms) if is_cjk(a) and is_cjk(b)]
    return [*(atom for atom in analysis.atoms if atom != BREAK), *pairs, *analysis.extras]


def rank_texts(texts: Sequence[str], query: str, limit: int = 10) -> list[RankedText]:
    """Return the texts that share words with the query, best first; of equal ones, the earlier."""
    from rank_bm25 import BM25Plus

    tokens = [index_tokens(analyze(text)) for text in texts]
    query_tokens = index_tokens(analyze(query))
    if not any(tokens) or not query_tokens:
        return []
    scores = BM25Plus(tokens).get_scores(query_tokens)
    vocabulary = set(query_tokens)
    matches = [
        RankedText(position, round(float(score), 6))
        for position, score in enumerate(scores)
        if not vocabulary.isdisjoint(tokens[position])
    ]
    return sorted(matches, key=lambda match: (-match.score, match.position))[:limit]
