"""Embedders that compute in this process, beside the event loop and not on it."""

from __future__ import annotations

import asyncio
import struct
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from memrecall.embedding.batched import BatchedEmbedder
from memrecall.errors import EmbedderFailed
from memrecall.workers import Workers

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
        self._worker = Workers(1, "memrecall-embedder")
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
