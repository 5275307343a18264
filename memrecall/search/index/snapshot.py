"""A user's columns as one file, so that a new process need not build them again.

A snapshot that is missing, damaged or of another database, text version or history is ignored and
replaced. The files contain what users wrote: only the owner of the process may read them.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memrecall.search.index.columns import Columns
from memrecall.search.index.postings import Segment
from memrecall.search.index.rows import FIELDS, RowTable
from memrecall.search.index.vectors import VectorBlocks
from memrecall.text import TEXT_VERSION

FORMAT = 5
_SEGMENT = ("keys", "offsets", "docs", "frequencies", "lengths", "atoms", "atom_offsets")


@dataclass(frozen=True, slots=True)
class SnapshotFolder:
    """The snapshots of one database."""

    folder: Path
    database_id: str

    @classmethod
    def of_database(cls, database_id: str, file: Path | None, caches: Path) -> "SnapshotFolder":
        """Return a folder beside a SQLite file, which copies do not share, or in the caches."""
        if file is not None:
            return cls(file.with_name(file.name + "-index"), database_id)
        return cls(caches / "index" / database_id, database_id)

    def path(self, user_id: str) -> Path:
        """Return the path of a user's snapshot, which does not contain the id."""
        return self.folder / (hashlib.sha256(user_id.encode()).hexdigest()[:40] + ".npz")

    def save(self, user_id: str, columns: Columns, model: str | None) -> bool:
        """Replace a user's snapshot; return False if the folder cannot be written."""
        columns.merge_all_segments()
        target = self.path(user_id)
        temporary = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(temporary, "wb", opener=partial(os.open, mode=0o600)) as file:
                np.savez(file, **_to_arrays(columns, self._identity(user_id, model)))
            temporary.replace(target)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            return False
        return True

    def load(self, user_id: str, epoch: str, model: str | None) -> Columns | None:
        """Return the saved columns if they are of this database, history and model."""
        try:
            with (
                self.path(user_id).open("rb") as file,
                np.load(file, allow_pickle=False) as archive,
            ):
                header = json.loads(archive["about"].tobytes())
                if header["title"] != self._identity(user_id, model) or header["epoch"] != epoch:
                    return None
                return _from_arrays(header, archive)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError):
            return None

    def forget(self, user_id: str) -> None:
        """Delete a user's snapshot."""
        with suppress(FileNotFoundError, NotADirectoryError):
            self.path(user_id).unlink()

    def _identity(self, user_id: str, model: str | None) -> list[object]:
        return [FORMAT, TEXT_VERSION, self.database_id, user_id, model]


def _to_arrays(columns: Columns, identity: list[object]) -> dict[str, Any]:
    header = {"title": identity, "epoch": columns.epoch, "version": columns.version}
    segment = columns.segments[0]
    return {
        "about": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        "terms": _pack(columns.vocabulary),
        "row_keys": _pack(columns.table.keys),
        "names": _pack(columns.table.names),
        "vectors": columns.vectors.dump(columns.rows),
        **{f"row_{name}": column for name, column in columns.table.dump().items()},
        **{f"segment_{name}": getattr(segment, name) for name in _SEGMENT},
    }


def _from_arrays(header: dict[str, Any], archive: Any) -> Columns:
    table = RowTable()
    fields = {name: archive[f"row_{name}"] for name in FIELDS}
    table.load(fields, _unpack(archive["row_keys"]), _unpack(archive["names"]))
    vectors = VectorBlocks()
    vectors.load(archive["vectors"])
    segment = Segment(len(table), *(archive[f"segment_{name}"] for name in _SEGMENT))
    columns = Columns(header["epoch"])
    columns.restore(header["version"], _unpack(archive["terms"]), table, segment, vectors)
    return columns


def _pack(strings: Iterable[str]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(json.dumps(list(strings)).encode(), dtype=np.uint8)


def _unpack(data: npt.NDArray[np.uint8]) -> list[str]:
    strings: list[str] = json.loads(data.tobytes())
    return strings
