"""The interface of embedders, and the factory that makes one from a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from memrecall.plugins import require_plugin
from memrecall.settings import OPENAI

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

CHOICES = ("local", "none", "hash", "openai:MODEL", "sentence-transformers:NAME", "fastembed:NAME")
# Shape (n, dimensions). A row has unit length, so that a dot product is a cosine; the row of a
# blank text is all zeros. A string at run time, so that the alias does not import numpy.
Vectors: TypeAlias = "npt.NDArray[np.float32]"


class Embedder(Protocol):
    """Turns texts into vectors, which are close for texts of similar meaning."""

    @property
    def model(self) -> str:
        """The name stored with the vectors; only vectors of the same name are comparable."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of a row.

        Some embedders know it after their first call only and raise EmbedderFailed before.
        After `await embed([])` it is always known.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in order; shape (0, dimensions) without texts.

        The row of a long text is that of its beginning, that of a blank text is zeros; no row has
        a NaN. Raises EmbedderFailed; a later call may succeed.
        """
        ...

    async def close(self) -> None:
        """Release threads and memory; may be called twice, embedding fails afterwards."""
        ...


def make_embedder(
    spec: str = "local", *, base_url: str | None = None, api_key: str | None = None
) -> Embedder | None:
    """Return the embedder that `spec` names, its model not loaded yet; None for "none".

    `base_url` and `api_key` are for "openai:MODEL", which means any server with OpenAI's
    /embeddings endpoint. Other names are those of plugins.
    """
    from memrecall.embedding import local

    match spec.partition(":"):
        case ("none", "", ""):
            return None
        case ("local", "", ""):
            return local.LocalEmbedder()
        case ("hash", "", ""):
            return local.HashEmbedder()
        case ("openai", ":", str(name)) if name:
            from memrecall.embedding.remote import RemoteEmbedder

            return RemoteEmbedder(base_url or OPENAI, name, api_key)
        case ("sentence-transformers", ":", str(name)) if name:
            return local.SentenceTransformersEmbedder(name)
        case ("fastembed", ":", str(name)) if name:
            return local.FastEmbedEmbedder(name)
    make, rest = require_plugin("embedders", spec, CHOICES)
    embedder: Embedder = make(rest, base_url, api_key)
    return embedder
