"""What every embedder promises to those who use one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

# Shape (n, dimensions). A row has unit length, so that a dot product is a cosine; only the row of a
# blank text is all zeros. A string at run time, so that naming the type does not import numpy.
Vectors: TypeAlias = "npt.NDArray[np.float32]"


class Embedder(Protocol):
    """Turns texts into vectors that lie close together where the texts mean the same."""

    @property
    def model(self) -> str:
        """The stable name stored beside the vectors: only vectors of one name may be compared."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of a row, never by waiting.

        Some embedders learn it with their first answer; asked before, they raise EmbedderFailed.
        After `await embed([])` it is always known.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Give one row for each text, in the given order; no texts give shape (0, dimensions).

        Every text has its row: a long one that of its beginning, a blank one zeros. NaN never
        comes out. What goes wrong is an EmbedderFailed, and a later call may succeed.
        """
        ...

    async def close(self) -> None:
        """Let go of threads and memory; closing twice is harmless, embedding afterwards fails."""
        ...
