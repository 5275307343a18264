"""Text analysis without I/O, and the filter that hides leaked tool calls."""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.text.leaks import LeakFilter, filter_leaks
    from memrecall.text.tokens import TEXT_VERSION, analyze

__all__ = ["TEXT_VERSION", "LeakFilter", "analyze", "filter_leaks"]

# Searches do not need the leak filter, and hooks only the detectors of secrets.
__getattr__ = lazy_exports(
    __name__, {".leaks": ("LeakFilter", "filter_leaks"), ".tokens": ("TEXT_VERSION", "analyze")}
)
