"""Postings as arrays, compared with plain word counts."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memrecall.search.index.postings import (
    QueryCost,
    Segment,
    Vocabulary,
    bigram_key,
    build_segment,
    merge_segments,
)
from memrecall.search.ranking.lexical import index_tokens
from memrecall.text import analyze
from memrecall.text.tokens import is_cjk

WORDS = st.sampled_from(
    ["数据库", "配置", "火锅", "，", "tea", "teas", "db_config", "C++", "不吃辣", "v1.2"]
)
TEXTS = st.lists(st.lists(WORDS, max_size=6).map(" ".join), min_size=1, max_size=12)


def lines(texts: list[str]) -> list[str]:
    return [analyze(text).to_search_text() for text in texts]


def find_key(vocabulary: Vocabulary, token: str) -> int:
    if len(token) == 2 and all(map(is_cjk, token)):
        return bigram_key(vocabulary[token[0]], vocabulary[token[1]])
    return vocabulary[token]


def postings(segment: Segment, key: int) -> dict[int, int]:
    ((start, end),) = segment.spans(np.array([key], dtype=np.int64))
    entries = zip(segment.docs[start:end], segment.frequencies[start:end], strict=True)
    return {int(doc): int(count) for doc, count in entries}


@given(TEXTS)
def test_postings_count_all_tokens(texts: list[str]) -> None:
    vocabulary = Vocabulary()
    segment = build_segment(lines(texts), vocabulary)
    counts = [Counter(index_tokens(text)) for text in texts]
    assert segment.lengths.tolist() == [sum(count.values()) for count in counts]
    for token in set().union(*counts):
        expected = {row: count[token] for row, count in enumerate(counts) if token in count}
        assert postings(segment, find_key(vocabulary, token)) == expected


@given(TEXTS, st.integers(1, 5))
def test_merged_segments_equal_one_segment(texts: list[str], size: int) -> None:
    vocabulary = Vocabulary()
    whole = build_segment(lines(texts), vocabulary)
    parts = [texts[at : at + size] for at in range(0, len(texts), size)]
    merged = merge_segments([build_segment(lines(part), vocabulary) for part in parts])
    assert merged.rows == whole.rows
    for name in ("keys", "offsets", "docs", "frequencies", "lengths", "atoms", "atom_offsets"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name), name)


@given(TEXTS, st.lists(WORDS, min_size=1, max_size=3).map(" ".join))
def test_phrase_search_equals_plain_scan(texts: list[str], phrase: str) -> None:
    atoms = [atom for atom in analyze(phrase).atoms if atom != "|"]
    if not atoms:
        return
    vocabulary = Vocabulary()
    segment = build_segment(lines(texts), vocabulary)
    phrase_keys = [np.array([vocabulary[atom]], dtype=np.int32) for atom in atoms]

    def contains(text: str) -> bool:
        words = analyze(text).atoms
        size = len(atoms)
        return any(words[at : at + size] == atoms for at in range(len(words) - size + 1))

    expected = [row for row, text in enumerate(texts) if contains(text)]
    assert segment.rows_with_phrase(phrase_keys, QueryCost()).tolist() == expected


def test_term_frequency_is_capped_at_255() -> None:
    vocabulary = Vocabulary()
    segment = build_segment(lines(["tea " * 1000]), vocabulary)
    assert postings(segment, vocabulary["tea"]) == {0: 255}


def test_rows_without_terms_have_no_postings() -> None:
    segment = build_segment(lines(["", "!!!", "tea"]), Vocabulary())
    assert segment.rows == 3
    assert segment.lengths.tolist() == [0, 0, 1]
