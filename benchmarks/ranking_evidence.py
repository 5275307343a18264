"""Labelled questions with the ranking features of their best candidates and the correct rows.

The features come from the functions that the search itself calls, so that fitted weights apply
there. A set also has foreign questions: those of other sets, asked of its users, who cannot answer
them.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.evaluation_sets import (
    EvaluationSet,
    begin_search,
    open_library,
    source_of,
    tell_progress,
)
from memrecall.embedding.maps import QueryMap
from memrecall.evaluation.datasets import Corpus, Question
from memrecall.memory import Library
from memrecall.search.engine import Search
from memrecall.search.index import Rows
from memrecall.search.index.columns import Columns
from memrecall.search.ranking import features
from memrecall.search.ranking.ranker import matching_rows, visible_rows
from memrecall.search.ranking.scores import (
    HYBRID,
    KEYWORD,
    QuerySupport,
    RankingFeatures,
    RankingWeights,
    combine,
)

Floats32 = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Order = npt.NDArray[np.intp]

FOREIGN = 150  # questions asked of each set's users
_SEED = 1
_KEPT = 200  # best candidates of a question by the committed weights
_KEPT_ALONE = 60  # best candidates by words alone, and by meaning alone


@dataclass(frozen=True, slots=True)
class Example:
    """A question and its best candidates, in the order that breaks ties."""

    evidence: RankingFeatures
    words: Floats32  # the score of each candidate in a search by words alone
    keys: tuple[str, ...]
    right: Mask
    wanted: int  # number of pieces of evidence, whether candidates or not
    support: QuerySupport
    source: str  # where the question comes from

    def ranked(self, weights: RankingWeights) -> tuple[Floats32, Order]:
        """Return the score of each candidate, and the candidates from best to worst."""
        scores = combine(self.evidence, weights)
        return scores, np.argsort(-scores, kind="stable")


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """The questions of one folder, and foreign ones asked of its users."""

    name: str
    examples: tuple[Example, ...]
    foreign: tuple[Example, ...] = ()

    @property
    def source(self) -> str:
        """The source that its conversations come from."""
        return source_of(self.name)


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question and the source it comes from, which may not be that of the user asked."""

    question: Question
    source: str


def foreign_questions(
    evaluation_set: EvaluationSet, others: Sequence[EvaluationSet], count: int = FOREIGN
) -> list[AskedQuestion]:
    """Return questions of other sources in the set's language, as many of each set."""
    givers = [
        other
        for other in others
        if other.source != evaluation_set.source and other.language == evaluation_set.language
    ]
    users = sorted(evaluation_set.corpus.keys)
    chance = random.Random(_SEED)
    result = []
    for giver in givers:
        answerable = [question for question in giver.questions if question.answerable]
        size = min(len(answerable), -(-count // len(givers)))
        for at, question in enumerate(chance.sample(answerable, size)):
            # What was visible in its own store says nothing about this one.
            changes = {
                "user_id": users[at % len(users)],
                "evidence": (),
                "as_of": None,
                "session_id": None,
            }
            result.append(AskedQuestion(question.model_copy(update=changes), giver.source))
    return result


async def read_set(
    evaluation_set: EvaluationSet,
    work: Path,
    *,
    embedder: str = "local",
    foreign: Sequence[AskedQuestion] = (),
    query_map: QueryMap | None = None,
) -> LabelledSet:
    """Collect the features of a set's questions; `query_map` replaces that of the embedder."""
    source, corpus = evaluation_set.source, evaluation_set.corpus
    asked = [AskedQuestion(question, source) for question in evaluation_set.questions]
    examples = []
    async with open_library(evaluation_set, work, embedder) as library:
        if query_map is not None:
            library.engine._query_map = query_map
        for done, item in enumerate([*asked, *foreign], 1):
            examples.append(await _example(library, corpus, item))
            tell_progress(evaluation_set.name, done, len(asked) + len(foreign))
    own, others = examples[: len(asked)], examples[len(asked) :]
    return LabelledSet(evaluation_set.name, tuple(own), tuple(others))


async def _example(library: Library, corpus: Corpus, item: AskedQuestion) -> Example:
    """Run the steps of a search up to the features."""
    search = await begin_search(library, corpus, item.question)
    vector, _ = await library.engine.embed_request(search)
    noise = await library.engine.measure_noise(vector)
    query = features.RankingQuery(
        search.request, None, vector, search.version, search.now, search.zone, noise
    )
    async with library.cache.open(search.feed, search.user) as columns:
        assert columns is not None
        return _make_example(columns, search, query, item)


def _make_example(
    columns: Columns, search: Search, query: features.RankingQuery, item: AskedQuestion
) -> Example:
    """Compute what `ranker.rank` computes, and keep the best candidates."""
    alive = columns.alive(query.version)
    visible = visible_rows(columns, search.scope, query.request, alive, query.now)
    counted = visible.counted
    scores = features.score_rows(columns, query, alive, counted)
    assert scores.threads is not None
    matches = matching_rows(columns, query, scores)
    rows = _in_order_of_equals(columns, np.flatnonzero(visible.open & matches))
    values = features.compute_features(columns, query, scores, counted, rows)
    alone = replace(scores, threads=None)
    words = combine(features.compute_features(columns, query, alone, counted, rows), KEYWORD)
    keys = [columns.table.keys[row] for row in rows]
    right = np.array([key in item.question.evidence for key in keys], dtype=np.bool_)
    kept = _best_candidates(values, words, right)
    return Example(
        evidence={name: value[kept] for name, value in values.items()},
        words=words[kept],
        keys=tuple(keys[at] for at in kept),
        right=right[kept],
        wanted=len(item.question.evidence),
        support=features.query_support(query, scores, scores.threads, counted),
        source=item.source,
    )


def _best_candidates(values: RankingFeatures, words: Floats32, right: Mask) -> Order:
    """Return the candidates that any ranking may put first, and all right ones."""
    kept = np.flatnonzero(right)
    rankings = (
        (combine(values, HYBRID), _KEPT),
        (words, _KEPT_ALONE),
        (values["cosine"], _KEPT_ALONE),
    )
    for scores, count in rankings:
        kept = np.union1d(kept, np.argsort(-scores, kind="stable")[:count])
    return kept


def _in_order_of_equals(columns: Columns, rows: Rows) -> Rows:
    """Order by time, newest first, then by key, so that a stable sort gives the search's order."""
    table = columns.table
    ordered = sorted(rows.tolist(), key=lambda row: (-int(table.ts[row]), table.keys[row]))
    return np.array(ordered, dtype=np.int64)
