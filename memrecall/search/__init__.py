"""Search: per-user columns, words, meaning and their ranking."""

from memrecall.search.engine import SearchEngine
from memrecall.search.index.cache import IndexCache
from memrecall.search.index.external import ExternalVectors, VectorDB
from memrecall.search.index.snapshot import SnapshotFolder
from memrecall.search.messages import MessageSearch, check_dimensions, unit_vector
from memrecall.search.ranking.lexical import all_terms, question_terms
from memrecall.search.request import (
    Hit,
    LexicalQuery,
    ScoredMessage,
    ScoredPage,
    SearchPage,
    SearchRequest,
    SemanticQuery,
    Why,
)

__all__ = [
    "ExternalVectors",
    "Hit",
    "IndexCache",
    "LexicalQuery",
    "MessageSearch",
    "ScoredMessage",
    "ScoredPage",
    "SearchEngine",
    "SearchPage",
    "SearchRequest",
    "SemanticQuery",
    "SnapshotFolder",
    "VectorDB",
    "Why",
    "all_terms",
    "check_dimensions",
    "question_terms",
    "unit_vector",
]
