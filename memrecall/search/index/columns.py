"""One user's rows as columns: the data that search computes on. Contains no SQL.

Rows are only ever appended. An edited or deleted row is marked as dead and its new form appended.
Every row carries the number of the change that created it and of the one that ended it, so that a
page of results can be computed again as of an earlier version. Statistics count living rows only:
an index that grew change by change ranks exactly like one built at once.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from memrecall.search.index import Mask
from memrecall.search.index.postings import Segment, Vocabulary, build_segment, merge_segments
from memrecall.search.index.vectors import UserVectors, VectorBlocks
from memrecall.search.request import KINDS
from memrecall.store import RowChanges

NEVER = np.iinfo(np.int64).max
ALWAYS = np.iinfo(np.int64).min
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
ROLES = {"user": 0, "assistant": 1, "system": 2, "tool": 3, "other": 4, "": 5}

_OBJECT_BYTES = 3_500  # of the objects around the arrays, measured over many small users
_NO_LENGTHS = np.zeros(0, dtype=np.int32)
Derived = TypeVar("Derived")

MESSAGE, MEMORY, KNOWLEDGE = 0, 1, 2
NONE = -1  # the row has no project, session, speaker, memory type or conflicts
_UNKNOWN = -2

# Name and type of each column; every row has a value in all of them.
FIELDS: dict[str, type[np.generic]] = {
    "kind": np.uint8,
    "role": np.uint8,
    "agent": np.int32,
    "project": np.int32,
    "session": np.int32,
    "speaker": np.int32,
    "memory_type": np.int32,
    "ts": np.int64,
    "place": np.int64,
    "born": np.int64,
    "died": np.int64,
    "vector_born": np.int64,
    "sensitive": np.bool_,
    "asks": np.bool_,
    "valid_from": np.int64,
    "valid_to": np.int64,
    "conflicts": np.int32,
}


def to_micros(moment: datetime) -> int:
    """Return the microseconds since 1970, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


class StringTable(dict[str, int]):
    """Small numbers for repeated strings (sessions, speakers)."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number

    def find(self, name: str) -> int:
        """Return the number of a string without adding it; one that no row has if it is unknown."""
        return self.get(name, _UNKNOWN)


class RowTable:
    """Growing columns. Reading a column returns a view of its filled part."""

    def __init__(self) -> None:
        self._size = 0
        self._columns = {name: np.zeros(16, dtype=kind) for name, kind in FIELDS.items()}
        self.keys: list[str] = []
        self.names = StringTable()

    def __len__(self) -> int:
        return self._size

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name.startswith("_") or name not in FIELDS:
            raise AttributeError(name)
        return self._columns[name][: self._size]

    def nbytes(self) -> int:
        """Estimate the memory in use."""
        columns = sum(column.nbytes for column in self._columns.values())
        return columns + 80 * len(self.keys) + 150 * len(self.names)

    def extend_messages(self, rows: Sequence[Any]) -> None:
        """Append messages from the change feed; a hidden one is dead at once."""
        names = self.names
        self._extend(
            [row.key for row in rows],
            kind=MESSAGE,
            role=[ROLES[row.role] for row in rows],
            agent=[names[row.agent_id] for row in rows],
            project=[names[row.project] if row.project else NONE for row in rows],
            session=[names[row.session_id] for row in rows],
            speaker=[names[row.speaker] if row.speaker else NONE for row in rows],
            memory_type=NONE,
            ts=[to_micros(row.ts) for row in rows],
            place=[row.sequence_no for row in rows],
            born=[row.change_no for row in rows],
            died=[NEVER if row.deleted_at is None else row.change_no for row in rows],
            vector_born=NEVER,
            sensitive=False,
            asks=[bool(row.asks) for row in rows],
            valid_from=ALWAYS,
            valid_to=[to_micros(row.valid_to) if row.valid_to else NEVER for row in rows],
            conflicts=NONE,
        )

    def extend_memories(self, rows: Sequence[Any], kind: int = MEMORY) -> None:
        """Append memories or knowledge from the change feed; a deleted row is dead at once."""
        names = self.names
        self._extend(
            [row.key for row in rows],
            kind=kind,
            role=ROLES[""],
            agent=[names[row.agent_id] for row in rows],
            project=[names[row.project] if row.project else NONE for row in rows],
            session=[names[row.session_id] if row.session_id else NONE for row in rows],
            speaker=NONE,
            memory_type=[names[row.memory_type] for row in rows],
            ts=[to_micros(row.ts) for row in rows],
            place=0,
            born=[row.change_no for row in rows],
            died=[NEVER if row.deleted_at is None else row.change_no for row in rows],
            vector_born=NEVER,
            sensitive=[row.sensitive for row in rows],
            asks=False,
            valid_from=[to_micros(row.valid_from) if row.valid_from else ALWAYS for row in rows],
            valid_to=[to_micros(row.valid_to) if row.valid_to else NEVER for row in rows],
            conflicts=[names["\n".join(r.conflicts)] if r.conflicts else NONE for r in rows],
        )

    def _extend(self, keys: list[str], **values: int | Sequence[int]) -> None:
        size = self._size + len(keys)
        if size > len(self._columns["kind"]):
            for name, column in self._columns.items():
                larger = np.zeros(max(size, self._size * 3 // 2), dtype=column.dtype)
                larger[: self._size] = column[: self._size]
                self._columns[name] = larger
        for name, value in values.items():
            self._columns[name][self._size : size] = value
        self.keys.extend(keys)
        self._size = size

    def neighbours(self, version: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the previous and next message of each row's session as of a version; -1: none."""
        before = np.full(self._size, -1, dtype=np.int32)
        after = np.full(self._size, -1, dtype=np.int32)
        is_alive = (self.born <= version) & (self.died > version)
        messages = np.flatnonzero((self.kind == MESSAGE) & is_alive)
        keys = (self.place[messages], self.ts[messages], self.session[messages])
        ordered = messages[np.lexsort(keys)].astype(np.int32)
        same = self.session[ordered[1:]] == self.session[ordered[:-1]]
        before[ordered[1:][same]] = ordered[:-1][same]
        after[ordered[:-1][same]] = ordered[1:][same]
        return before, after

    def load(self, columns: dict[str, npt.NDArray[Any]], keys: list[str], names: list[str]) -> None:
        """Replace the content by the columns, keys and names of a snapshot."""
        self._columns = {name: np.array(columns[name]) for name in FIELDS}
        self._size = len(keys)
        self.keys = keys
        self.names = StringTable((name, number) for number, name in enumerate(names))


class Columns:
    """The searchable form of one user's messages and memories, or of one agent's knowledge."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self.version = 0
        self.vocabulary = Vocabulary()
        self.table = RowTable()
        self.segments: list[Segment] = []
        self.vectors: UserVectors = VectorBlocks()
        self.has_erased = False  # some dead rows must never be saved
        self._row_of: tuple[dict[str, int], ...] = tuple({} for _ in KINDS)
        self._derived: dict[str, Any] = {}

    @property
    def rows(self) -> int:
        """The number of rows, dead ones included."""
        return len(self.table)

    def nbytes(self) -> int:
        """Estimate the memory in use."""
        postings = sum(segment.nbytes() for segment in self.segments)
        lookup = 60 * sum(map(len, self._row_of))
        parts = (self.table.nbytes(), self.vectors.nbytes(self.rows), self.vocabulary.nbytes())
        return _OBJECT_BYTES + postings + lookup + sum(parts)

    def apply(self, changes: RowChanges) -> None:
        """Append the next batch of changes."""
        # Before the rows: one that is stored again under an erased key is newer.
        for row in changes.tombstones:
            erased = self._row_of[KINDS.index(row.kind)].pop(row.key, None)
            if erased is not None:
                self.table.died[erased] = row.change_no
                self.has_erased = True
        for kind, rows in (
            (MESSAGE, changes.messages),
            (MEMORY, changes.memories),
            (KNOWLEDGE, changes.knowledge),
        ):
            for at, row in enumerate(rows, self.rows):
                self._register(kind, row.key, row.change_no, at)
            if kind == MESSAGE:
                self.table.extend_messages(rows)
            else:
                self.table.extend_memories(rows, kind)
            if rows:
                lines = [row.search_text for row in rows]
                self.segments.append(build_segment(lines, self.vocabulary))
        for row in changes.vectors:
            number = self.row_of(row.kind, row.key)
            if number is not None:
                if self.vectors.put(number, row.vector):
                    self.table.vector_born[:] = NEVER
                self.table.vector_born[number] = row.change_no
        self.version = changes.through
        self._derived.clear()

    def _register(self, kind: int, key: str, change_no: int, at: int) -> None:
        earlier = self._row_of[kind].get(key)
        if earlier is not None:
            self.table.died[earlier] = change_no
        self._row_of[kind][key] = at

    def cached(
        self, name: str, compute: Callable[[], Derived], version: int | None = None
    ) -> Derived:
        """Return `compute()`, cached until the next change: for arrays that every search needs.

        The result for an earlier `version`, which a later page needs, is not cached.
        """
        if version is not None and version < self.version:
            return compute()
        if name not in self._derived:
            self._derived[name] = compute()
        value: Derived = self._derived[name]
        return value

    def merge_small_segments(self) -> None:
        """Keep segments few: each more than twice as long as all that follow it."""
        first = len(self.segments) - 1
        rows = self.segments[first].rows if self.segments else 0
        while first > 0 and self.segments[first - 1].rows <= 2 * rows:
            first -= 1
            rows += self.segments[first].rows
        if len(self.segments) - first > 1:
            self.segments[first:] = [merge_segments(self.segments[first:])]

    def merge_all_segments(self) -> None:
        """Merge all segments into one, as after loading many rows."""
        if len(self.segments) > 1:
            self.segments = [merge_segments(self.segments)]

    def row_of(self, kind: str, key: str) -> int | None:
        """Return the living row of a key, or None."""
        return self._row_of[KINDS.index(kind)].get(key)

    def contradicted_rows(self, row: int) -> list[int]:
        """Return the living rows of the memories that a claim conflicts with."""
        names = self.cached("names", lambda: list(self.table.names))
        keys = names[self.table.conflicts[row]].split("\n")
        return [at for key in keys if (at := self.row_of("memory", key)) is not None]

    def living_rows(self) -> set[tuple[int, str, int]]:
        """Return kind, key and first change of every living row, to compare two indexes."""
        rows = np.flatnonzero(self.alive(self.version))
        table = self.table
        return {(int(table.kind[row]), table.keys[row], int(table.born[row])) for row in rows}

    def alive(self, version: int) -> Mask:
        """Return the rows that existed at a version."""

        def compute() -> Mask:
            mask: Mask = (self.table.born <= version) & (self.table.died > version)
            return mask

        return self.cached("alive", compute, version)

    def expired_messages(self, now: datetime) -> list[str]:
        """Return the keys of messages that memories from them have hidden by expiring."""
        table = self.table

        def compute() -> npt.NDArray[np.int64]:
            expiring = (table.kind == MESSAGE) & (table.valid_to != NEVER)
            return np.flatnonzero(expiring & self.alive(self.version))

        can_expire = self.cached("can_expire", compute)
        expired = can_expire[table.valid_to[can_expire] <= to_micros(now)]
        return [table.keys[row] for row in expired]

    def speakers(self, version: int) -> list[str]:
        """Return the names of all speakers at a version."""

        def compute() -> list[str]:
            names = list(self.table.names)
            numbers = self.table.speaker[self.alive(version)]
            return [names[number] for number in np.unique(numbers) if number >= 0]

        return self.cached("speakers", compute, version)

    def lengths(self) -> npt.NDArray[np.int32]:
        """Return how many terms each row is indexed under."""
        return self.cached(
            "lengths",
            # All rows of a user may have been erased.
            lambda: np.concatenate([_NO_LENGTHS, *(segment.lengths for segment in self.segments)]),
        )

    def embedded(self, version: int) -> Mask:
        """Return the rows that had a vector at a version."""
        return self.table.vector_born <= version

    def neighbours(self, version: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the messages before and after each row in its session (-1: none)."""
        return self.cached("neighbours", lambda: self.table.neighbours(version), version)

    def restore(
        self,
        version: int,
        terms: Iterable[str],
        table: RowTable,
        segment: Segment,
        vectors: UserVectors,
    ) -> None:
        """Replace the content by the parts of a snapshot."""
        self.version = version
        self.vocabulary = Vocabulary(terms)
        self.table = table
        self.segments = [segment]
        self.vectors = vectors
        # Rows are in the order of their creation: the last one of a key is the living one.
        for row, (kind, key) in enumerate(zip(table.kind.tolist(), table.keys, strict=True)):
            self._row_of[kind][key] = row
