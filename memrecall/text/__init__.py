"""Text analysis without I/O, and the filter that hides leaked tool calls."""

from typing import TYPE_CHECKING, Any

from memrecall.text.tokens import TEXT_VERSION, Analysis, analyze, locate

if TYPE_CHECKING:
    from memrecall.text.leaks import Filtered, Leak, LeakFilter, filter_leaks

__all__ = [
    "TEXT_VERSION",
    "Analysis",
    "Filtered",
    "Leak",
    "LeakFilter",
    "analyze",
    "filter_leaks",
    "locate",
]


def __getattr__(name: str) -> Any:
    """Load the leak filter on first use: searches do not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from memrecall.text import leaks

    return getattr(leaks, name)
