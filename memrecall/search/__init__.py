"""Search: per-user indexes, and their lexical, semantic and hybrid ranking."""

from memrecall.search.engine import SearchEngine
from memrecall.search.index.cache import IndexCache, SnapshotFolder
from memrecall.search.index.external import ExternalVectors, VectorDB
from memrecall.search.messages import MessageSearch, check_dimensions, unit_vector
from memrecall.search.ranking.lexical import all_terms, query_terms
from memrecall.search.request import EngineRequest, LexicalQuery, SearchRequest, SemanticQuery
from memrecall.search.results import (
    DegradeReason,
    Hit,
    ScoredPage,
    ScoreParts,
    SearchPage,
    put_claims_last,
)

__all__ = [
    "DegradeReason",
    "EngineRequest",
    "ExternalVectors",
    "Hit",
    "IndexCache",
    "LexicalQuery",
    "MessageSearch",
    "ScoreParts",
    "ScoredPage",
    "SearchEngine",
    "SearchPage",
    "SearchRequest",
    "SemanticQuery",
    "SnapshotFolder",
    "VectorDB",
    "all_terms",
    "check_dimensions",
    "put_claims_last",
    "query_terms",
    "unit_vector",
]
