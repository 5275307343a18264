"""A minimal third-party package: one of each part that a plugin can provide."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memrecall import Settings
from memrecall.embedding import Vectors
from memrecall.store import Store, StoreGraphs
from memrecall.testing import ScriptedClient

calls: dict[str, Any] = {"graph": 0, "products": 0, "forgotten": []}


class SampleEmbedder:
    """An embedder that counts letters."""

    def __init__(self, size: int) -> None:
        self.model = f"sample-{size}"  # stored with the vectors, so it must change when they do
        self.dimensions = size

    async def embed(self, texts: Sequence[str]) -> Vectors:
        counts = [[1.0 + text.count(c) for c in "etaoin"[: self.dimensions]] for text in texts]
        matrix = np.array(counts, dtype=np.float32).reshape(len(texts), self.dimensions)
        unit: Vectors = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
        return unit

    async def close(self) -> None:
        pass


def make_embedder(argument: str, base_url: str | None, api_key: str | None) -> SampleEmbedder:
    del base_url, api_key
    return SampleEmbedder(int(argument))


class SampleModel(ScriptedClient):
    """A client without answers."""


def make_model(argument: str, settings: Settings) -> SampleModel:
    del argument, settings
    return SampleModel([])


class SampleGraphs(StoreGraphs):
    """The graph of the store, with counted calls."""

    async def read(self, *args: Any, **options: Any) -> list[dict[str, Any]]:
        calls["graph"] += 1
        return await super().read(*args, **options)

    async def erase_user(self, user_id: str) -> None:
        calls["forgotten"].append(user_id)


def make_graphs(argument: str, store: Store) -> SampleGraphs:
    assert argument == "here"
    return SampleGraphs(store.database)


class SampleVectors:
    """Vectors in a dict."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[tuple[str, str], tuple[int, Any]]] = {}
        self._marks: dict[str, tuple[str, int, int]] = {}

    def count(self) -> int:
        """Return the number of vectors."""
        return sum(map(len, self._rows.values()))

    async def progress(self, user_id: str, history: str) -> tuple[int, int]:
        copied, version, dimensions = self._marks.get(user_id, ("", 0, 0))
        return (version, dimensions) if copied == history else (0, 0)

    async def take(self, user_id: str, history: str, through: int, rows: Sequence[Any]) -> None:
        if self._marks.get(user_id, (history,))[0] != history:
            del self._rows[user_id]
        user_rows = self._rows.setdefault(user_id, {})
        for row in rows:
            vector = np.frombuffer(row.vector, dtype=np.float16).astype(np.float32)
            user_rows[row.kind, row.key] = (row.change_no, vector)
        size = len(next(iter(user_rows.values()))[1]) if user_rows else 0
        self._marks[user_id] = (history, through, size)

    async def products(
        self, user_id: str, query: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        calls["products"] += 1
        rows = self._rows[user_id].values()
        numbers = np.array([number for number, _ in rows], dtype=np.int64)
        return numbers, np.array([vector @ query for _, vector in rows], dtype=np.float32)

    async def forget(self, user_id: str) -> None:
        calls["forgotten"].append(user_id)
        self._rows.pop(user_id, None)
        self._marks.pop(user_id, None)

    async def forget_rows(self, user_id: str, keys: Mapping[str, Sequence[str]]) -> None:
        for kind, names in keys.items():
            for name in names:
                del self._rows[user_id][kind, name]

    async def close(self) -> None:
        pass


def make_vectors(argument: str, store: Store) -> SampleVectors:
    del argument, store
    return SampleVectors()
