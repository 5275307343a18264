"""Pure functions on text, and the filter that hides leaked tool calls: no I/O."""

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
    """Load the filter when it is first asked for: a search has no use for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from memrecall.text import leaks

    return getattr(leaks, name)
