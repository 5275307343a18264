"""Search: per-user columns, words, meaning and their ranking."""

from memrecall.search.cache import IndexCache
from memrecall.search.engine import SearchEngine
from memrecall.search.message_queries import (
    LexicalQuery,
    ScoredMessage,
    ScoredPage,
    SemanticQuery,
)
from memrecall.search.messages import MessageSearch, check_dimensions, unit_vector
from memrecall.search.outside import Outside, VectorDB
from memrecall.search.request import Hit, SearchPage, SearchRequest, Why
from memrecall.search.snapshot import SnapshotFolder
from memrecall.search.terms import all_terms, question_terms

__all__ = [
    "Hit",
    "IndexCache",
    "LexicalQuery",
    "MessageSearch",
    "Outside",
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
