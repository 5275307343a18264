"""Times in classes: what is counted is the class, and percentiles are read from the counts."""

from bisect import bisect_left
from collections.abc import Mapping

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_LABELS = tuple(f"{bound:g}" for bound in BOUNDS)
BEYOND = "more"
_TENTHS = tuple(f"{tenth / 10:.1f}" for tenth in range(11))


def class_of(seconds: float) -> str:
    """The class of a time: its upper bound."""
    place = bisect_left(BOUNDS, seconds)
    return _LABELS[place] if place < len(BOUNDS) else BEYOND


def percentile(counts: Mapping[str, int], share: float) -> float | None:
    """The time that such a share stayed below, as far as classes tell; None if nothing counts."""
    total = sum(counts.values())
    if not total:
        return None
    wanted = share * total
    below = 0
    low = 0.0
    for label, bound in zip(_LABELS, BOUNDS, strict=True):
        inside = counts.get(label, 0)
        if inside and below + inside >= wanted:
            return low + (bound - low) * max(wanted - below, 0.0) / inside
        below += inside
        low = bound
    return BOUNDS[-1]


def tenth_of(value: float) -> str:
    """The class of a confidence: the tenth that it lies in, by its lower bound."""
    return _TENTHS[min(int(value * 10 + 1e-9), 9)]
