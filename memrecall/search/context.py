"""What surrounds a row: the messages said just before and after it, and when it was said."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from memrecall.search.columns import Columns
from memrecall.search.rows import ALWAYS, NEVER, to_micros
from memrecall.text.times import TimeSpan

Floats = npt.NDArray[np.float32]

# An answer follows its question more often than it precedes it.
BEFORE, AFTER = 0.6, 0.4


def neighbour_scores(columns: Columns, scores: Floats, version: int) -> Floats:
    """For each row, what its neighbours in the session score; 0 where there are none."""
    before, after = columns.sequence(version)
    padded = np.append(scores, np.float32(0))  # row -1 is nobody
    return (BEFORE * padded[before] + AFTER * padded[after]).astype(np.float32)


def time_scores(columns: Columns, spans: Sequence[TimeSpan]) -> Floats:
    """1 for rows said within one of the spans, else 0."""
    inside = np.zeros(columns.rows, dtype=np.bool_)
    said = columns.table.ts
    for span in spans:
        start = ALWAYS if span.start is None else to_micros(span.start)
        end = NEVER if span.end is None else to_micros(span.end)
        inside |= (said >= start) & (said < end)
    return inside.astype(np.float32)
