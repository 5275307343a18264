"""The interface of embedders and their base classes: batches, checks, and a worker thread."""

from __future__ import annotations

import asyncio
import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, TypeVar

from memrecall.errors import EmbedderFailed, InvalidArgument
from memrecall.timing import current_deadline
from memrecall.workers import DaemonThreadPool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

_Some = TypeVar("_Some")

# Shape (n, dimensions). A row has unit length, so that a dot product is a cosine; the row of a
# blank text is all zeros. A string at run time, so that the alias does not import numpy.
Vectors: TypeAlias = "npt.NDArray[np.float32]"


class TextEmbedder(Protocol):
    """Turns texts into vectors, which are close for texts of similar meaning."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in order; shape (0, dimensions) without texts.

        A long text is embedded by its beginning, and a blank one as zeros; no row has a NaN. Raises
        EmbedderFailed; a later call may succeed.
        """
        ...


class Embedder(TextEmbedder, Protocol):
    """Embeds the rows of a database."""

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

    async def close(self) -> None:
        """Release threads and memory; may be called twice, embedding fails afterwards."""
        ...


# The cost of a text is linear in its length (80 ms for this many characters with the local model),
# and the topic of a message is in its beginning.
TEXT_CHARACTERS = 2_000

# Measured with the local model: 1 text a batch costs 4.4 ms a text, 16 cost 2.9, 64 and more 2.5.
BATCH_SIZE = 64

# Embedded when only the number of dimensions is needed.
PROBE = "dimensions"


class BatchedEmbedder(ABC):
    """Implements `Embedder`; a subclass only turns one batch of texts into rows.

    `source` names the origin of the vectors in error messages.
    """

    def __init__(
        self,
        model: str,
        *,
        source: str,
        dimensions: int | None = None,
        batch_characters: int = BATCH_SIZE * TEXT_CHARACTERS,
    ) -> None:
        self._model = model
        self._source = source
        self._dimensions = dimensions
        self._batch_characters = batch_characters
        self._closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self._model!r}, source={self._source!r})"

    @property
    def model(self) -> str:
        """The name stored with the vectors."""
        return self._model

    @property
    def dimensions(self) -> int:
        """The length of a row, known at the latest after `await embed([])`."""
        if self._dimensions is None:
            raise EmbedderFailed(
                f"the dimensions of {self._model} are not known yet", hint="Await embed([]) first"
            )
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in order; shape (0, dimensions) without texts."""
        if isinstance(texts, str):
            raise InvalidArgument("embed takes a list of texts, not one text", hint="Put it in []")
        import numpy as np

        prepared = [_prepare(text) for text in texts]
        # Libraries pad a batch to its longest text: texts of similar length are cheapest together.
        nonblank = sorted(
            (i for i, text in enumerate(prepared) if text), key=lambda i: len(prepared[i])
        )
        results = [
            (batch, await self._embed_checked([prepared[i] for i in batch]))
            for batch in self._batches(prepared, nonblank)
        ]
        if self._dimensions is None:
            await self._embed_checked([PROBE])
        vectors = np.zeros((len(prepared), self.dimensions), dtype=np.float32)
        for batch, rows in results:
            vectors[batch] = rows
        return vectors

    async def close(self) -> None:
        """Reject further texts."""
        self._closed = True

    @abstractmethod
    async def _embed_batch(self, texts: list[str]) -> npt.ArrayLike:
        """Return one row of any positive length for each text; no text is blank."""

    def _batches(self, texts: list[str], positions: list[int]) -> Iterator[list[int]]:
        """Split positions so that no batch has too many texts or characters."""
        batch: list[int] = []
        characters = 0
        for position in positions:
            characters += len(texts[position])
            if batch and (len(batch) == BATCH_SIZE or characters > self._batch_characters):
                yield batch
                batch, characters = [], len(texts[position])
            batch.append(position)
        if batch:
            yield batch

    async def _embed_checked(self, texts: list[str]) -> Vectors:
        """Embed one batch; accept only rows of unit length and equal size."""
        if self._closed:
            raise EmbedderFailed(f"the embedder {self._model} is closed", hint="Create a new one")
        rows = await self._embed_batch(texts)
        try:
            vectors = _unit_rows(rows, (len(texts), self._dimensions))
        except (TypeError, ValueError) as error:
            raise EmbedderFailed(f"{self._source} returned no usable vectors: {error}") from error
        self._dimensions = vectors.shape[1]
        return vectors


def _prepare(text: str) -> str:
    """Truncate a text to its beginning; a blank text becomes "".

    A change here changes the vectors: the name of the local model must change with it.
    """
    beginning = text.strip()[:TEXT_CHARACTERS]
    # Half of a surrogate pair cannot be encoded: neither tokenizers nor JSON accept it.
    return beginning.encode(errors="replace").decode()


def _unit_rows(rows: npt.ArrayLike, expected: tuple[int, int | None]) -> Vectors:
    """Return the rows with unit length; ValueError if that is impossible."""
    import numpy as np

    exact = np.asarray(rows, dtype=np.float64)
    count, dimensions = expected
    if exact.ndim != 2 or len(exact) != count or exact.shape[1] != (dimensions or exact.shape[1]):
        shape = f"({count}, {dimensions or 'any'})"
        raise ValueError(f"their shape is {exact.shape}, not {shape}")
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError("a number in them is not finite")
    if not lengths.all():
        raise ValueError("one of them is all zeros")
    vectors: Vectors = (exact / lengths).astype(np.float32)
    return vectors


Encode: TypeAlias = "Callable[[list[str]], npt.ArrayLike]"

# A query waits behind a batch of a backfill. Larger batches save nothing with the local model.
BATCH_CHARACTERS = 2_000

# The errors of the libraries for model files that are missing, damaged or too large.
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
    """Loads a model at first use and runs it in one worker thread.

    Nothing here is bound to an event loop: calls may come from several.
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
        """Finish the current batch, end the worker thread and release the model."""
        await super().close()
        await asyncio.to_thread(self._worker.shutdown)
        self._encode = None

    async def load(self) -> None:
        """Load the model now; without this, the first text waits for it."""
        if self._encode is None:
            await self._run_in_worker(self._loaded)

    @abstractmethod
    def _load(self) -> Encode:
        """Import and load the model; called in the worker thread."""

    async def _embed_batch(self, texts: list[str]) -> npt.ArrayLike:
        return await self._run_in_worker(lambda: self._work(texts))

    async def _run_in_worker(self, work: Callable[[], _Some]) -> _Some:
        # If the caller is cancelled, the batch still finishes; no further one is submitted.
        try:
            future = self._worker.submit(work)
        except RuntimeError as error:  # It is closed, or the interpreter is shutting down.
            raise EmbedderFailed(f"{self._source} is closed: {error}") from error
        return await asyncio.wrap_future(future)

    def _loaded(self) -> Encode:
        # Only the one worker thread runs this, so the model is loaded once.
        if self._encode is not None:
            return self._encode
        try:
            self._encode = self._load()
        except ImportError as error:
            message = f"{self._source} cannot be imported: {error}"
            raise EmbedderFailed(message, hint=self.install_hint) from error
        except LOAD_FAILURES as error:
            message = f"{self._source} cannot be loaded: {_describe(error)}"
            raise EmbedderFailed(message, hint=self.load_hint) from error
        return self._encode

    def _work(self, texts: list[str]) -> npt.ArrayLike:
        encode = self._loaded()
        try:
            return encode(texts)
        except ENCODE_FAILURES as error:
            raise EmbedderFailed(f"{self._source} failed: {_describe(error)}") from error


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class EmbedderTooSlow(EmbedderFailed):
    """The embedder did not answer in time; it may answer fewer texts."""


_SHARE = 0.5  # of what is left of a deadline: words have to be found in the rest
# An embedder that failed after so long is skipped, but for a short trial every few seconds.
_HANGING_SECONDS, _SKIPPED_SECONDS = 1.0, 10.0


@asynccontextmanager
async def embedder_in_time(most: float) -> AsyncIterator[None]:
    """Wait for the embedder for some seconds, or for a share of the deadline if that is less.

    A request waits in vain once: a share of what is left each time would leave no time for words.
    """
    limit = current_deadline()
    seconds = most if limit is None else min(most, _SHARE * limit.left)
    if limit is not None and limit.lost_patience:
        seconds = 0.0
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        if limit is not None:
            limit.lost_patience = True
        problem = f"the embedder took longer than {seconds:.2g} s"
        raise EmbedderTooSlow(problem, hint="Check that it responds") from None


class EmbedderBreaker:
    """Skips an embedder that hangs until it answers again, so that few requests wait for it."""

    def __init__(self) -> None:
        self._next_trial: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the embedder is skipped."""
        return self._next_trial is not None

    def close(self) -> None:
        """Use the embedder: it has answered."""
        self._next_trial = None

    @asynccontextmanager
    async def in_time(self, most: float) -> AsyncIterator[None]:
        """Wait as `embedder_in_time` does; raise EmbedderFailed at once while it is skipped."""
        clock = asyncio.get_running_loop().time
        start = clock()
        if self._next_trial is not None:
            if start < self._next_trial:
                problem = "the embedder did not answer, and is tried again in some seconds"
                raise EmbedderFailed(problem, hint="Check that it responds")
            self._next_trial, most = start + _SKIPPED_SECONDS, _HANGING_SECONDS
        try:
            async with embedder_in_time(most):
                yield
        except EmbedderFailed:
            if clock() - start >= _HANGING_SECONDS:  # A request may have had less time itself.
                self._next_trial = clock() + _SKIPPED_SECONDS
            raise
        self.close()
