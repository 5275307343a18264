"""Embedders of optional libraries, with fake libraries."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from memrecall.embedding.base import ThreadedEmbedder
from memrecall.embedding.embedders import FastEmbedEmbedder, SentenceTransformersEmbedder
from memrecall.errors import EmbedderFailed


class FakeSentenceTransformer:
    def __init__(self, name: str) -> None:
        if name == "missing":
            raise OSError("missing is not a local folder")
        self.name = name

    def encode(
        self, texts: list[str], *, batch_size: int, show_progress_bar: bool, convert_to_numpy: bool
    ) -> Any:
        assert not show_progress_bar
        assert convert_to_numpy
        return np.array([[len(text), 1.0, 0.0] for text in texts], dtype=np.float32)


class FakeTextEmbedding:
    def __init__(self, model_name: str) -> None:
        if model_name == "missing":
            raise ValueError("Model missing is not supported in TextEmbedding")

    def embed(self, texts: list[str], batch_size: int) -> Iterator[Any]:
        for text in texts:
            yield np.array([len(text), 1.0, 0.0], dtype=np.float32)


@pytest.fixture
def _libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, attribute, value in (
        ("sentence_transformers", "SentenceTransformer", FakeSentenceTransformer),
        ("fastembed", "TextEmbedding", FakeTextEmbedding),
    ):
        module = ModuleType(name)
        setattr(module, attribute, value)
        monkeypatch.setitem(sys.modules, name, module)


CLASSES = pytest.mark.parametrize("kind", [SentenceTransformersEmbedder, FastEmbedEmbedder])


@CLASSES
@pytest.mark.usefixtures("_libraries")
async def test_library_embedder_returns_rows_and_learns_its_dimensions(
    kind: type[SentenceTransformersEmbedder | FastEmbedEmbedder],
) -> None:
    embedder = kind("some/model")
    with pytest.raises(EmbedderFailed, match="not known yet"):
        _ = embedder.dimensions
    assert (await embedder.embed([])).shape == (0, 3)
    assert embedder.dimensions == 3
    vectors = await embedder.embed(["abc", "", "a"])
    expected = np.array([[3, 1, 0], [0, 0, 0], [1, 1, 0]]) / np.sqrt([[10], [1], [2]])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert embedder.model.endswith(":some/model")
    await embedder.close()


@CLASSES
@pytest.mark.usefixtures("_libraries")
async def test_unknown_library_model_is_named(
    kind: type[SentenceTransformersEmbedder | FastEmbedEmbedder],
) -> None:
    embedder = kind("missing")
    with pytest.raises(EmbedderFailed, match=r":missing cannot be loaded.*Check the model's name"):
        await embedder.embed(["a"])
    await embedder.close()


@pytest.mark.parametrize(
    ("embedder", "module", "extra"),
    [
        (FastEmbedEmbedder("m"), "fastembed", "fastembed"),
        (SentenceTransformersEmbedder("m"), "sentence_transformers", "sentence-transformers"),
    ],
)
async def test_missing_library_error_names_extra(
    monkeypatch: pytest.MonkeyPatch, embedder: ThreadedEmbedder, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EmbedderFailed) as error_info:
        await embedder.embed(["a"])
    assert f"pip install 'memrecall-agent[{extra}]'" in error_info.value.hint
    await embedder.close()
