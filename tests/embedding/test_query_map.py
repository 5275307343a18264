"""The map from the vectors of questions towards those of answers."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.embedding.embedders import LOCAL_DIMENSIONS, LOCAL_MODEL, HashEmbedder
from memrecall.embedding.maps import QueryMap, load_query_map, map_file
from memrecall.memory import Library
from memrecall.settings import Settings
from memrecall.store import Store

SIZE = 6
VECTORS = st.lists(st.integers(-9, 9), min_size=SIZE, max_size=SIZE).filter(any)


def unit(values: list[int]) -> npt.NDArray[np.float32]:
    vector = np.array(values, dtype=np.float32)
    return vector / np.linalg.norm(vector)


@given(VECTORS)
def test_map_without_change_leaves_vectors(values: list[int]) -> None:
    vector = unit(values)
    mapped = QueryMap(np.zeros((SIZE, SIZE), dtype=np.float16)).apply(vector)
    np.testing.assert_allclose(mapped, vector, atol=1e-6)


@given(VECTORS, st.integers(0, 2**32 - 1))
def test_mapped_vector_has_length_1(values: list[int], seed: int) -> None:
    change = np.random.default_rng(seed).normal(0, 0.3, (SIZE, SIZE)).astype(np.float16)
    mapped = QueryMap(change).apply(unit(values))
    assert mapped.dtype == np.float32
    assert np.linalg.norm(mapped) == pytest.approx(1, abs=1e-5)


def test_map_adds_the_change_to_the_identity() -> None:
    change = np.zeros((2, 2), dtype=np.float16)
    change[1, 0] = 1.0
    mapped = QueryMap(change).apply(np.array([1, 0], dtype=np.float32))
    np.testing.assert_allclose(mapped, [0.5**0.5, 0.5**0.5], rtol=1e-6)


def test_zero_vector_stays_zero() -> None:
    mapped = QueryMap(np.zeros((2, 2), dtype=np.float16)).apply(np.zeros(2, dtype=np.float32))
    assert mapped.tolist() == [0, 0]


@pytest.mark.parametrize("model", ["hash-64", "openai:text-embedding-3", "fastembed:BAAI/bge", ""])
def test_unknown_models_have_no_map(model: str) -> None:
    assert load_query_map(model) is None


def test_shipped_map_belongs_to_the_local_model() -> None:
    change = np.load(map_file(LOCAL_MODEL))
    assert (change.dtype, change.shape) == (np.float16, (LOCAL_DIMENSIONS, LOCAL_DIMENSIONS))
    assert np.isfinite(change).all()
    loaded = load_query_map(LOCAL_MODEL)
    assert loaded is not None
    assert load_query_map(LOCAL_MODEL) is loaded  # read once
    vector = np.zeros(LOCAL_DIMENSIONS, dtype=np.float32)
    vector[0] = 1
    mapped = loaded.apply(vector)
    assert np.linalg.norm(mapped) == pytest.approx(1, abs=1e-5)
    assert 0 < mapped @ vector < 0.9999  # moved, and not far


async def test_questions_are_mapped(
    store: Store, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An embedder with the name of the local model has its map without the time to load it.
    monkeypatch.setattr(HashEmbedder, "model", LOCAL_MODEL)
    embedder = HashEmbedder(LOCAL_DIMENSIONS)
    library = Library(store, embedder, Settings(db=location, snapshots=False))
    text = "What do I drink?"
    plain = (await embedder.embed([text]))[0]
    vector = await library.engine.embed_query(text)
    query_map = load_query_map(LOCAL_MODEL)
    assert query_map is not None
    np.testing.assert_array_equal(vector, query_map.apply(plain))
    assert not np.array_equal(vector, plain)


async def test_other_embedders_are_not_mapped(store: Store, location: str) -> None:
    embedder = HashEmbedder()
    library = Library(store, embedder, Settings(db=location, snapshots=False))
    vector = await library.engine.embed_query("tea")
    np.testing.assert_array_equal(vector, (await embedder.embed(["tea"]))[0])
