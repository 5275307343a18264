"""The order of the first rows: a small network over what tells them apart.

The ranking of all rows has to be cheap. For the first twenty, more can be compared: the texts token
by token, a row together with the line before it, whether a later one says the same again. The
network gives each row, and "none of them", a share of one. Whether there is an answer at all is
told better by how well the best rows fit in absolute terms, so that a linear model of that decides
how much all rows have together.
`benchmarks/fit_rerank.py` fits it and names the data.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from memrecall.embedding.base import TEXT_CHARACTERS
from memrecall.embedding.maps import LocalTokenVectors, best_matches
from memrecall.search.index import Floats, Mask, Rows
from memrecall.search.index.columns import MEMORY, NONE, ROLES
from memrecall.search.index.vectors import VectorBlocks
from memrecall.search.ranking.features import PAUSE, find_speakers
from memrecall.search.ranking.ranker import Ranking
from memrecall.search.ranking.scores import QuerySupport, to_relevance
from memrecall.text.language import FIRST_PERSON, is_question

RERANKED = 20
_HOUR = 3_600_000_000  # microseconds; statements of one hour are one conversation
_LONG_BOOK, _BOOK_SHARE = 200, 0.9  # rows; how many of them stand alone
_ASKED = 300  # characters of a query's last line whose spelling is compared
_REACH = 4  # lines before a row in which it may have been asked for
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_WORD = re.compile(r"[a-z0-9]+|[^\W_a-z0-9]+")
_NUMBER = re.compile("[0-9一二三四五六七八九十百千万两]")
_WEIGHTS = Path(__file__).with_name("rerank.npz")


class RerankFeatures(NamedTuple):
    """What the network reads: numbers and the vector of each candidate, numbers of the query.

    `fit` says in absolute terms how well each candidate fits the query.
    """

    rows: Floats
    vectors: Floats
    query: Floats
    fit: Floats


def can_rerank(ranking: Ranking) -> bool:
    """Return True for a search by words and meaning among the lines of conversations.

    Elsewhere the network does worse than the ranking of all rows: about a speaker whom the query
    names, and in long notes and books, where no line answers another.
    """
    query, columns = ranking.query, ranking.columns
    if ranking.support is None or query.query is not None or query.vector is None:
        return False
    if not len(ranking.rows):
        return False
    if not isinstance(columns.vectors, VectorBlocks) or query.request.kind == "knowledge":
        return False
    lone, rows = ranking.features["lone"], ranking.support.rows
    is_book = rows > _LONG_BOOK and float(np.mean(lone)) >= _BOOK_SHARE
    return (
        len(query.vector) == columns.vectors.dimensions
        and not is_book
        and not find_speakers(query.request.query, columns.speakers(query.version))
    )


def with_lines_before(ranking: Ranking, places: Sequence[int]) -> list[int]:
    """Return the rows at some places and the messages before them."""
    rows = ranking.rows[list(places)]
    before = _rows_before(ranking, rows)
    return list(dict.fromkeys([*rows.tolist(), *before[before >= 0].tolist()]))


def _rows_before(ranking: Ranking, rows: Rows) -> Rows:
    """Return the message before each row in its conversation; -1: none, or there is none itself."""
    ts = ranking.columns.table.ts
    before = ranking.columns.neighbours(ranking.query.version)[0][rows].astype(np.int64)
    before[(rows < 0) | (ts[rows] - ts[before] > PAUSE)] = -1
    return before


def rerank(
    ranking: Ranking, places: Sequence[int], texts: Mapping[int, str], tokens: LocalTokenVectors
) -> Ranking:
    """Return a ranking with its first places in the network's order."""
    # An unconfirmed claim stays below what the user said, whatever the network makes of it.
    if not places or (ranking.columns.table.conflicts[ranking.rows[list(places)]] != NONE).any():
        return ranking
    network = load_network()
    features = rerank_features(ranking, places, texts, tokens)
    shares = network.shares(features)
    order = np.argsort(-shares, kind="stable")
    chances, answered = network.chances(features, shares), network.answer_share(features, shares)
    return ranking.reorder([places[at] for at in order], chances[order], answered)


def rerank_features(
    ranking: Ranking,
    places: Sequence[int],
    texts: Mapping[int, str],
    tokens: LocalTokenVectors,
    backwards: bool = False,
) -> RerankFeatures:
    """Return what the network reads of a ranking's first places; the fit lets time run backwards.

    What is asked for is late in the histories that authors write. Only of a change that is so.
    """
    lines = _Lines.of(ranking, places, texts)
    columns = _row_features(ranking, places, lines)
    columns |= _time_features(ranking, places, lines, backwards)
    columns |= _token_features(ranking.query.request.query, lines, tokens)
    columns |= _spelling_features(ranking.query.request.query, lines)
    rows = np.stack([np.asarray(column, dtype=np.float32) for column in columns.values()], axis=1)
    vectors = cast(VectorBlocks, ranking.columns.vectors).take(lines.rows)
    fit = np.stack([ranking.features[name][list(places)] for name in _FIT], axis=1)
    return RerankFeatures(rows, vectors, _query_features(ranking, columns), fit)


class _Lines(NamedTuple):
    """The candidates' rows, those before them (-1: none), and how the texts of both begin."""

    rows: Rows
    before: Rows
    texts: list[str]
    befores: list[str]

    @classmethod
    def of(cls, ranking: Ranking, places: Sequence[int], texts: Mapping[int, str]) -> "_Lines":
        rows = ranking.rows[list(places)]
        before = _rows_before(ranking, rows)
        begins = {row: text[:TEXT_CHARACTERS] for row, text in texts.items()}
        own, befores = ([begins.get(row, "") for row in at.tolist()] for at in (rows, before))
        return cls(rows, before, own, befores)


def _token_features(query: str, lines: _Lines, tokens: LocalTokenVectors) -> dict[str, Any]:
    """Compare the texts token by token: the rarer a token of the query, the more it counts."""
    asked = tokens.encode(query.strip().split("\n")[-1])
    told = [tokens.encode(text) for text in lines.texts]
    own = np.array([best_matches(asked, each) for each in told])
    before = np.array([best_matches(asked, tokens.encode(text)) for text in lines.befores])
    alone, both = own @ asked.weights, np.maximum(own, before) @ asked.weights
    return {
        "tokens": _relative(alone),
        "tokens_before": _relative(both),
        "tokens_best": np.full_like(both, both.max(initial=0)),
        "tokens_told": _relative(np.array([best_matches(e, asked) @ e.weights for e in told])),
    }


def _relative(values: Floats) -> Floats:
    """Return how far values are below the largest."""
    lowered: Floats = values - np.max(values, initial=-np.inf)
    return lowered


def _row_features(ranking: Ranking, places: Sequence[int], lines: _Lines) -> dict[str, Any]:
    table, query = ranking.columns.table, ranking.query
    rows, before = lines.rows, lines.before
    has_before = before >= 0
    at = list(places)
    scores = ranking.scores[at]
    vectors = cast(VectorBlocks, ranking.columns.vectors)  # see `can_rerank`
    own, previous = vectors.take(rows), vectors.take(before)
    asked = cast(Floats, query.vector)
    both = own + previous
    lengths = np.linalg.norm(both, axis=1, keepdims=True)
    asked_before = has_before & table.asks[before]
    features = {name: ranking.features[name][at] for name in _SEARCH_FEATURES}
    return features | {
        "score": _relative(scores),
        "place": np.log1p(np.arange(len(at))),
        "cosine": _relative(own @ asked),
        "cosine_before": _relative(previous @ asked),
        "cosine_both": _relative((both / np.maximum(lengths, 1e-9)) @ asked),
        "cosine_question": _asked_recently(ranking, lines, asked),
        "asks": table.asks[rows],
        "questions": [_question_share(text) for text in lines.texts],
        "asked_before": asked_before,
        "assistant": table.role[rows] == ROLES["assistant"],
        "other": table.role[rows] == ROLES["other"],
        "assistant_before": has_before & (table.role[before] == ROLES["assistant"]),
        "memory": table.kind[rows] == MEMORY,
        "first_person": [FIRST_PERSON.search(text) is not None for text in lines.texts],
        "number": [_NUMBER.search(text) is not None for text in lines.texts],
        "length": np.log1p([len(text.encode()) for text in lines.texts]),
    }


def _asked_recently(ranking: Ranking, lines: _Lines, asked: Floats) -> Floats:
    """Return how near the nearest question of the lines before each row is to the query."""
    vectors = cast(VectorBlocks, ranking.columns.vectors)
    nearest = np.zeros(len(lines.rows), dtype=np.float32)
    row = lines.before
    for _ in range(_REACH):
        is_asking = (row >= 0) & ranking.columns.table.asks[row]
        nearest = np.maximum(nearest, is_asking * (vectors.take(row) @ asked))
        row = _rows_before(ranking, row)
    return nearest


def _question_share(text: str) -> float:
    """Return the share of a text's sentences that ask something."""
    sentences = [part for part in _SENTENCE.findall(text) if part.strip()]
    return sum(map(is_question, sentences)) / max(len(sentences), 1)


def _spelling(text: str) -> frozenset[str]:
    """Return the runs of three letters, or of two Chinese characters, of a text."""
    words = _WORD.findall(text.casefold())
    size = {word: 3 if word.isascii() else 2 for word in words}
    return frozenset(
        word[at : at + size[word]] for word in words for at in range(len(word) - size[word] + 1)
    )


def _spelling_features(query: str, lines: _Lines) -> dict[str, Any]:
    """Compare the spelling, which is robust against typing errors and inflections."""
    asked = _spelling(query.strip().split("\n")[-1][:_ASKED])
    folded = ([text.casefold() for text in texts] for texts in (lines.texts, lines.befores))
    own, before = ([{run for run in asked if run in text} for text in texts] for texts in folded)
    both = [found | earlier for found, earlier in zip(own, before, strict=True)]
    total = max(len(asked), 1)
    return {
        "spelling": _relative(np.array([len(found) / total for found in own])),
        "spelling_before": _relative(np.array([len(found) / total for found in both])),
    }


_FIT = ("coverage", "cosine", "exact", "semantic", "lexical")
_FITTING = 3  # rows, of which the best fit counts
_SEARCH_FEATURES = (
    *("lexical", "exact", "coverage", "semantic", "wordless", "thread", "reply", "day"),
    *("time", "nearby", "speaker", "voice", "lone"),
)


def _time_features(
    ranking: Ranking, places: Sequence[int], lines: _Lines, backwards: bool
) -> dict[str, Any]:
    """Return how late each row is, and how like it the earlier and later rows of its speaker are.

    Only rows that answer the query about as well can replace one another.
    """
    table = ranking.columns.table
    ts, speaker, role = (values[lines.rows] for values in (table.ts, table.speaker, table.role))
    ts = -ts if backwards else ts
    vectors = cast(VectorBlocks, ranking.columns.vectors).take(lines.rows)
    nearness = np.exp(np.minimum(_relative(ranking.scores[list(places)]), 0))
    likeness = (vectors @ vectors.T) * nearness
    is_later: Mask = ts[None, :] - ts[:, None] > _HOUR
    of_same = (speaker[:, None] == speaker) & (role[:, None] == role)
    later, earlier = likeness * (is_later & of_same), likeness * (is_later.T & of_same)
    return {
        "order": np.mean(ts[:, None] > ts, axis=1),
        "replaced": np.max(later, axis=1, initial=0),
        "replaces": np.max(earlier, axis=1, initial=0),
    }


def _query_features(ranking: Ranking, columns: Mapping[str, Any]) -> Floats:
    text, support = ranking.query.request.query.strip(), cast(QuerySupport, ranking.support)
    last = text.split("\n")[-1]
    best = np.sort(ranking.scores)[::-1][:10]
    values = (
        is_question(last),
        FIRST_PERSON.search(last) is not None,
        "\n" in text,
        _NUMBER.search(last) is not None,
        np.log1p(support.words),
        np.log(max(support.rows, 2)),
        support.known,
        support.coverage,
        min(support.significance, 12.0),
        np.mean(columns["lone"]),
        np.max(columns["voice"]),
        np.max(columns["tokens_best"]),
        # How far the best score is above the next nine.
        float(best[0] - best[1:].mean()) if len(best) > 1 else 0.0,
    )
    return np.array(values, dtype=np.float32)


class RankingNetwork:
    """A hidden layer and a linear one, added up, and a linear score of "none of them"."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._weights = weights

    def shares(self, features: RerankFeatures) -> Floats:
        """Return the probability of each row; the rest up to one is the probability of none."""
        weights = self._weights
        meaning = (features.vectors - weights["centre"]) @ weights["directions"]
        rows = np.hstack([features.rows, meaning])
        rows = (rows - weights["row_mean"]) / weights["row_spread"]
        query = (features.query - weights["query_mean"]) / weights["query_spread"]
        inputs = np.hstack([rows, np.broadcast_to(query, (len(rows), len(query)))])
        hidden = np.tanh(inputs @ weights["inner"] + weights["inner_bias"])
        scores = rows @ weights["linear"] + hidden @ weights["outer"]
        none = query @ weights["none"] + weights["none_bias"]
        odds = np.exp(np.append(scores, none) - max(scores.max(), none))
        shares: Floats = (odds[:-1] / odds.sum()).astype(np.float32)
        return shares

    def answer_features(self, features: RerankFeatures, shares: Floats) -> Floats:
        """Return what tells whether there is an answer at all."""
        order = np.argsort(-shares, kind="stable")[:_FITTING]
        first = shares[order]
        second = first[1] if len(first) > 1 else 0.0
        sums = np.array([shares.sum(), first[0], first.sum()])
        best = features.fit[order].max(axis=0)
        return np.concatenate([_log_odds(sums), [first[0] - second], features.query, best])

    def answer_share(self, features: RerankFeatures, shares: Floats) -> float:
        """Return the probability that there is an answer."""
        weights = self._weights
        values = self.answer_features(features, shares) - weights["answer_mean"]
        odds = values / weights["answer_spread"] @ weights["answer"] + weights["answer_bias"]
        return float(to_relevance(odds.astype(np.float32))[0])

    def chances(self, features: RerankFeatures, shares: Floats) -> Floats:
        """Return the probability that a row answers: shares are too low where several do."""
        scale, bias = self._weights["chance"]
        answered = self.answer_share(features, shares)
        odds = scale * _log_odds(answered * shares / shares.sum()) + bias
        return to_relevance(odds.astype(np.float32))


def _log_odds(shares: Floats) -> Floats:
    odds: Floats = np.log(np.clip(shares, 1e-6, 1 - 1e-6) / np.clip(1 - shares, 1e-6, 1))
    return odds


@cache
def load_network() -> RankingNetwork:
    """Return the network of the package."""
    with np.load(_WEIGHTS) as arrays:
        return RankingNetwork({name: arrays[name].astype(np.float32) for name in arrays.files})
