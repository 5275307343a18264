"""The interface of embedders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

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
