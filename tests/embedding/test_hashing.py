"""The hash embedder: similarity by spelling, and a direction for every text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.embedding.embedders import HashEmbedder


async def test_texts_with_common_words_are_closer() -> None:
    a, b, c = await HashEmbedder().embed(
        ["the cat sat on the mat", "a cat sat on a mat", "quarterly budget review"]
    )
    assert a @ b > a @ c + 0.3


async def test_chinese_texts_with_common_bigrams_are_closer() -> None:
    a, b, c = await HashEmbedder().embed(["我不吃辣椒", "他也不吃辣椒", "会议改到周五"])
    assert a @ b > a @ c + 0.3


async def test_case_and_spaces_are_ignored() -> None:
    a, b = await HashEmbedder().embed(["Hello  World", "hello world"])
    np.testing.assert_array_equal(a, b)


@given(st.text(min_size=1), st.integers(1, 70))
async def test_hash_vector_is_unit_or_zero(text: str, dimensions: int) -> None:
    vectors = await HashEmbedder(dimensions).embed([text])
    assert vectors.shape == (1, dimensions)
    assert np.linalg.norm(vectors) == pytest.approx(1 if text.strip() else 0, abs=1e-6)


async def test_hash_vector_of_one_dimension_is_not_zero() -> None:
    vectors = await HashEmbedder(1).embed([f"{n * n}{'!' * (n % 5)}" for n in range(200)])
    assert set(vectors.flat) == {-1, 1}


def test_model_name_has_dimensions() -> None:
    assert HashEmbedder().model == "hash-64"
    assert HashEmbedder(128).model == "hash-128"
