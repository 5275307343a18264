"""BM25 scores compared with rank-bm25, and the rows in their statistics."""

import math

import numpy as np
import pytest
from rank_bm25 import BM25Okapi

from memrecall.search.index.columns import Columns
from memrecall.search.index.postings import build_segment
from memrecall.search.ranking.lexical import K1, B, all_terms, bm25, index_tokens, rank_texts
from memrecall.text import analyze

from ..cases import check_each

TEXTS = [
    *("我不吃辣，火锅只点清汤", "周末去吃火锅吧，辣的那种"),
    *("The database config is in db_config_001", "数据库配置在 /etc/app/settings.toml"),
    *("tea or coffee? tea, always tea", "", "重新部署数据库 database deploy"),
]
QUERIES = ["火锅", "数据库 配置", "database config", "tea", "db_config_001", "什么也没有 nothing"]


class LuceneIdf(BM25Okapi):  # type: ignore[misc]
    """rank-bm25 with Lucene's idf, which is never negative."""

    def _calc_idf(self, nd: dict[str, int]) -> None:
        self.idf = {
            word: math.log(1 + (self.corpus_size - freq + 0.5) / (freq + 0.5))
            for word, freq in nd.items()
        }


def make_columns(texts: list[str]) -> Columns:
    columns = Columns("epoch")
    lines = [analyze(text).to_search_text() for text in texts]
    columns.segments = [
        build_segment(lines[:3], columns.vocabulary),
        build_segment(lines[3:], columns.vocabulary),
    ]
    columns.table._size = len(texts)
    return columns


def test_scores_equal_rank_bm25() -> None:
    baseline = LuceneIdf([index_tokens(text) for text in TEXTS], k1=K1, b=B)
    columns, all_rows = make_columns(TEXTS), np.ones(len(TEXTS), dtype=np.bool_)

    def compare(query: str) -> None:
        expected = baseline.get_scores(index_tokens(query))
        result = bm25(columns, all_terms(query), all_rows)
        np.testing.assert_allclose(result.scores, expected, rtol=1e-4, atol=1e-5)

    check_each(QUERIES, compare)


def test_dead_rows_do_not_change_statistics() -> None:
    texts = [*TEXTS, "火锅 火锅 数据库 tea"]
    alive = np.array([True] * len(TEXTS) + [False])
    with_dead = bm25(make_columns(texts), all_terms("火锅 数据库"), alive)
    without = bm25(make_columns(TEXTS), all_terms("火锅 数据库"), alive[:-1])
    np.testing.assert_allclose(with_dead.scores[:-1], without.scores, rtol=1e-6)
    assert sum(with_dead.weights.values()) == pytest.approx(sum(without.weights.values()))


def test_coverage_is_the_weight_of_matching_terms() -> None:
    all_rows = np.ones(len(TEXTS), dtype=np.bool_)
    row = np.array([4])
    full = bm25(make_columns(TEXTS), all_terms("tea"), all_rows).coverage(row)
    half = bm25(make_columns(TEXTS), all_terms("tea zeppelin"), all_rows).coverage(row)
    assert 0 < half[0] < full[0] <= 1


def test_rank_texts_without_a_database() -> None:
    assert rank_texts(TEXTS, "数据库配置") == [3, 6]
    assert rank_texts(TEXTS, "zeppelin") == []
    assert rank_texts([], "tea") == []
    assert rank_texts(["tea"], "!!!") == []
