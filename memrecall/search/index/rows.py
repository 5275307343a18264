"""The plain columns of an index: identity, times and flags of each row, not its text."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

NEVER = np.iinfo(np.int64).max
ALWAYS = np.iinfo(np.int64).min
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
ROLES = {"user": 0, "assistant": 1, "system": 2, "tool": 3, "other": 4, "": 5}

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
        """Return the number of a string without adding it; no row has that of an unknown one."""
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
            self._reserve(max(size, self._size * 3 // 2))
        for name, value in values.items():
            self._columns[name][self._size : size] = value
        self.keys.extend(keys)
        self._size = size

    def _reserve(self, capacity: int) -> None:
        for name, column in self._columns.items():
            larger = np.zeros(capacity, dtype=column.dtype)
            larger[: self._size] = column[: self._size]
            self._columns[name] = larger

    def end_row(self, row: int, change_no: int) -> None:
        """Mark a row as dead from this change on."""
        self._columns["died"][row] = change_no

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

    def dump(self) -> dict[str, npt.NDArray[Any]]:
        """Return the filled part of every column."""
        return {name: self._columns[name][: self._size] for name in FIELDS}

    def load(self, columns: dict[str, npt.NDArray[Any]], keys: list[str], names: list[str]) -> None:
        """Replace the content by what `dump` returned."""
        self._columns = {name: np.array(columns[name]) for name in FIELDS}
        self._size = len(keys)
        self.keys = keys
        self.names = StringTable((name, number) for number, name in enumerate(names))
