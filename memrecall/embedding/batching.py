"""Embedders that compute in this process, beside the event loop and not on it."""

from __future__ import annotations

import asyncio
import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from memrecall.errors import EmbedderFailed, InvalidArgument
from memrecall.workers import DaemonThreadPool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from memrecall.embedding.protocol import Vectors

# The cost of a text is linear in its length (80 ms for this many characters with the local model),
# and the sense of a message is in its beginning.
TEXT_CHARACTERS = 2_000

# Measured with the local model: 1 text a batch costs 4.4 ms a text, 16 cost 2.9, 64 and more 2.5.
BATCH_SIZE = 64

# Stands in for a text when only the number of dimensions is wanted.
PROBE = "dimensions"


class BatchedEmbedder(ABC):
    """Keeps an Embedder's promises; a subclass only turns one batch of texts into rows.

    `source` is what error messages call the place where the vectors come from.
    """

    def __init__(
        self,
        model: str,
        *,
        source: str,
        dimensions: int | None = None,
        batch_size: int = BATCH_SIZE,
        batch_characters: int | None = None,
    ) -> None:
        _check_positive("dimensions", dimensions)
        _check_positive("batch_size", batch_size)
        self._model = model
        self._source = source
        self._dimensions = dimensions
        self._batch_size = batch_size
        self._batch_characters = batch_characters or batch_size * TEXT_CHARACTERS
        self._closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self._model!r}, source={self._source!r})"

    @property
    def model(self) -> str:
        """The stable name stored beside the vectors."""
        return self._model

    @property
    def dimensions(self) -> int:
        """The length of a row, known at the latest after `await embed([])`."""
        if self._dimensions is None:
            raise EmbedderFailed(
                f"The dimensions of {self._model} are not known yet", hint="Await embed([]) first"
            )
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Give one row for each text, in the given order; no texts give shape (0, dimensions)."""
        if isinstance(texts, str):
            raise InvalidArgument("embed takes a list of texts, not one text", hint="Put it in []")
        import numpy as np

        prepared = [_prepare(text) for text in texts]
        # A library pads a batch to its longest text, so neighbours in length cost least together.
        worded = sorted(
            (i for i, text in enumerate(prepared) if text), key=lambda i: len(prepared[i])
        )
        done = [
            (batch, await self._embed_checked([prepared[i] for i in batch]))
            for batch in self._batches(prepared, worded)
        ]
        if self._dimensions is None:
            await self._embed_checked([PROBE])
        vectors = np.zeros((len(prepared), self.dimensions), dtype=np.float32)
        for batch, rows in done:
            vectors[batch] = rows
        return vectors

    async def close(self) -> None:
        """Refuse further texts."""
        self._closed = True

    @abstractmethod
    async def _embed_batch(self, texts: list[str]) -> npt.ArrayLike:
        """Give one row for each text, of any length above zero; no text is blank."""

    def _batches(self, texts: list[str], positions: list[int]) -> Iterator[list[int]]:
        """Split positions so that no batch has too many texts or characters."""
        batch: list[int] = []
        characters = 0
        for position in positions:
            characters += len(texts[position])
            if batch and (len(batch) == self._batch_size or characters > self._batch_characters):
                yield batch
                batch, characters = [], len(texts[position])
            batch.append(position)
        if batch:
            yield batch

    async def _embed_checked(self, texts: list[str]) -> Vectors:
        """Embed one batch and let nothing through but unit rows of one length."""
        if self._closed:
            raise EmbedderFailed(f"The embedder {self._model} is closed", hint="Make a new one")
        rows = await self._embed_batch(texts)
        try:
            vectors = _unit_rows(rows, (len(texts), self._dimensions))
        except (TypeError, ValueError) as error:
            raise EmbedderFailed(f"{self._source} gave no usable vectors: {error}") from error
        self._dimensions = vectors.shape[1]
        return vectors


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise InvalidArgument(f"{name} is {value}", hint="Give a number above 0")


def _prepare(text: str) -> str:
    """Cut a text to its beginning; a blank text becomes "".

    Whoever changes this changes the vectors, and must change the name of the local model.
    """
    beginning = text.strip()[:TEXT_CHARACTERS]
    # Half a surrogate pair cannot be encoded: no tokenizer and no JSON would take it.
    return beginning.encode(errors="replace").decode()


def _unit_rows(rows: npt.ArrayLike, expected: tuple[int, int | None]) -> Vectors:
    """Return the rows with unit length; a ValueError says why that cannot be."""
    import numpy as np

    exact = np.asarray(rows, dtype=np.float64)
    count, dimensions = expected
    if exact.ndim != 2 or len(exact) != count or exact.shape[1] != (dimensions or exact.shape[1]):
        wanted = f"({count}, {dimensions or 'any'})"
        raise ValueError(f"their shape is {exact.shape} and not {wanted}")
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError("a number in them is not finite")
    if not lengths.all():
        raise ValueError("one of them is all zeros")
    vectors: Vectors = (exact / lengths).astype(np.float32)
    return vectors


if TYPE_CHECKING:
    import numpy.typing as npt

Encode: TypeAlias = "Callable[[list[str]], npt.ArrayLike]"

# About a third of a second with the local model: so long may a query wait behind a backfill.
BATCH_CHARACTERS = 8_000

# What model files that are missing, broken or too large raise in the libraries used here.
LOAD_FAILURES = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    RuntimeError,
    MemoryError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
ENCODE_FAILURES = (OSError, RuntimeError, MemoryError)


class ThreadedEmbedder(BatchedEmbedder):
    """Loads a model at first use and runs it in one worker thread of its own.

    Nothing here belongs to an event loop, so that calls may come from several.
    """

    install_hint: ClassVar[str]
    load_hint: ClassVar[str]

    def __init__(self, model: str, *, source: str, dimensions: int | None = None) -> None:
        super().__init__(
            model, source=source, dimensions=dimensions, batch_characters=BATCH_CHARACTERS
        )
        self._worker = DaemonThreadPool(1, "memrecall-embedder")
        self._encode: Encode | None = None

    async def close(self) -> None:
        """Finish the batch under way, end the worker thread and forget the model."""
        await super().close()
        await asyncio.to_thread(self._worker.shutdown)
        self._encode = None

    @abstractmethod
    def _load(self) -> Encode:
        """Import and load the model; called in the worker thread."""

    async def _embed_batch(self, texts: list[str]) -> npt.ArrayLike:
        # A caller that goes away leaves the batch to finish unheard; its next is never submitted.
        try:
            working = self._worker.submit(self._work, texts)
        except RuntimeError as error:  # it was closed, or the interpreter is ending
            raise EmbedderFailed(f"{self._source} works no longer: {error}") from error
        return await asyncio.wrap_future(working)

    def _work(self, texts: list[str]) -> npt.ArrayLike:
        # Only the one worker thread comes here: it is the lock that makes loading happen once.
        if self._encode is None:
            self._encode = self._load_or_explain()
        try:
            return self._encode(texts)
        except ENCODE_FAILURES as error:
            raise EmbedderFailed(f"{self._source} failed: {_describe(error)}") from error

    def _load_or_explain(self) -> Encode:
        try:
            return self._load()
        except ImportError as error:
            message = f"{self._source} cannot be imported: {error}"
            raise EmbedderFailed(message, hint=self.install_hint) from error
        except LOAD_FAILURES as error:
            message = f"{self._source} cannot be loaded: {_describe(error)}"
            raise EmbedderFailed(message, hint=self.load_hint) from error


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
