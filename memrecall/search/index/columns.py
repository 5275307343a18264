"""One user's rows as columns: what search works on. Knows nothing of SQL.

Rows are only ever appended. A row that was edited or deleted dies and its new form is appended;
every row knows the change that bore it and the one that ended it, so that a page of results can be
computed again as it was. Statistics count living rows alone: an index that has grown change by
change ranks exactly like one built at once.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from memrecall.search.index.postings import Segment, Vocabulary, build_segment, merge_segments
from memrecall.search.index.rows import KNOWLEDGE, MEMORY, MESSAGE, RowTable
from memrecall.search.index.vectors import UserVectors, VectorBlocks
from memrecall.store import RowChanges

Mask = npt.NDArray[np.bool_]
Derived = TypeVar("Derived")

KINDS = ("message", "memory", "knowledge")  # in the order of their numbers


class Columns:
    """The searchable form of one user's messages and memories, or of one agent's knowledge."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self.version = 0
        self.vocabulary = Vocabulary()
        self.table = RowTable()
        self.segments: list[Segment] = []
        self.vectors: UserVectors = VectorBlocks()
        self._row_of: tuple[dict[str, int], ...] = tuple({} for _ in KINDS)
        self._derived: dict[str, Any] = {}

    @property
    def rows(self) -> int:
        """How many rows there are, dead ones included."""
        return len(self.table)

    def nbytes(self) -> int:
        """About how much memory all of this takes."""
        postings = sum(segment.nbytes() for segment in self.segments)
        lookup = 60 * sum(map(len, self._row_of))
        parts = (self.table.nbytes(), self.vectors.nbytes(self.rows), self.vocabulary.nbytes())
        return postings + lookup + sum(parts)

    def apply(self, changes: RowChanges) -> None:
        """Take in the next run of changes."""
        for kind, rows in (
            (MESSAGE, changes.messages),
            (MEMORY, changes.memories),
            (KNOWLEDGE, changes.knowledge),
        ):
            for at, row in enumerate(rows, self.rows):
                self._bear(kind, row.key, row.change_no, at)
            if kind == MESSAGE:
                self.table.extend_messages(rows)
            else:
                self.table.extend_memories(rows, kind)
            if rows:
                lines = [row.search_text for row in rows]
                self.segments.append(build_segment(lines, self.vocabulary))
        self._take_vectors(changes.vectors)
        self.version = changes.through
        self._derived.clear()

    def derive(self, name: str, make: Callable[[], Derived]) -> Derived:
        """What `make` gives, kept until the next change: arrays that every search needs."""
        if name not in self._derived:
            self._derived[name] = make()
        kept: Derived = self._derived[name]
        return kept

    def _bear(self, kind: int, key: str, change_no: int, at: int) -> None:
        """Enter a row under its key; an earlier form of it dies."""
        earlier = self._row_of[kind].get(key)
        if earlier is not None:
            self.table.kill(earlier, change_no)
        self._row_of[kind][key] = at

    def _take_vectors(self, rows: Iterable[Any]) -> None:
        for row in rows:
            at = self.row_of(row.kind, row.key)
            if at is not None:
                self.vectors.put(at, row.vector)
                self.table.vector_born[at] = row.change_no

    def tidy(self) -> None:
        """Keep segments few: each more than twice as long as all that follow it."""
        first = len(self.segments) - 1
        rows = self.segments[first].rows if self.segments else 0
        while first > 0 and self.segments[first - 1].rows <= 2 * rows:
            first -= 1
            rows += self.segments[first].rows
        if len(self.segments) - first > 1:
            self.segments[first:] = [merge_segments(self.segments[first:])]

    def row_of(self, kind: str, key: str) -> int | None:
        """The living row of a key."""
        return self._row_of[KINDS.index(kind)].get(key)

    def alive(self, version: int) -> Mask:
        """The rows that existed after the change of that number."""
        if version < self.version:
            return self._alive(version)  # a later page of an older search: rare
        return self.derive("alive", lambda: self._alive(version))

    def _alive(self, version: int) -> Mask:
        mask: Mask = (self.table.born <= version) & (self.table.died > version)
        return mask

    def speakers(self, version: int) -> list[str]:
        """The names of those who had said something then."""

        def find() -> list[str]:
            names = list(self.table.names)
            spoken = self.table.speaker[self.table.born <= version]
            return [names[number] for number in np.unique(spoken) if number >= 0]

        return find() if version < self.version else self.derive("speakers", find)

    def lengths(self) -> npt.NDArray[np.int32]:
        """How many terms each row is filed under."""
        return self.derive(
            "lengths", lambda: np.concatenate([segment.lengths for segment in self.segments])
        )

    def embedded(self, version: int) -> Mask:
        """The rows that had a vector then."""
        return self.table.vector_born <= version

    def embedded_rows(self) -> int:
        """How many rows have a vector now."""
        return int(np.count_nonzero(self.embedded(self.version)))

    def sequence(self, version: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """For each row, the message said before and after it in its session (-1: none)."""
        if version < self.version:
            return self.table.neighbours(version)
        return self.derive("sequence", lambda: self.table.neighbours(version))

    def last_row(self) -> tuple[str, str, int] | None:
        """Kind, key and change number of the row born last, by which a history is recognised."""
        if not self.rows:
            return None
        at = int(np.argmax(self.table.born))
        return KINDS[self.table.kind[at]], self.table.keys[at], int(self.table.born[at])

    def restore(
        self,
        version: int,
        terms: Iterable[str],
        table: RowTable,
        segment: Segment,
        vectors: UserVectors,
    ) -> None:
        """Take over the parts that a snapshot has kept."""
        self.version = version
        self.vocabulary = Vocabulary(terms)
        self.table = table
        self.segments = [segment]
        self.vectors = vectors
        for row, (kind, key) in enumerate(zip(table.kind.tolist(), table.keys, strict=True)):
            self._row_of[kind][key] = row  # rows are in the order of birth: the living one is last

    def compact(self) -> None:
        """Merge all segments into one, as after loading many rows."""
        if len(self.segments) > 1:
            self.segments = [merge_segments(self.segments)]
