"""Search: per-user columns, words, meaning and their ranking."""

from memrecall.search.cache import IndexCache
from memrecall.search.engine import SearchEngine
from memrecall.search.request import Hit, SearchPage, SearchRequest, Why
from memrecall.search.snapshot import SnapshotFolder

__all__ = [
    "Hit",
    "IndexCache",
    "SearchEngine",
    "SearchPage",
    "SearchRequest",
    "SnapshotFolder",
    "Why",
]
