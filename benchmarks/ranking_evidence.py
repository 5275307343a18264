"""Labelled questions with the ranking features of each candidate and the correct rows.

The features come from the functions that the search itself calls, so that fitted weights apply
there.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.report import say
from memrecall.evaluation.corpus import Corpus, check_labels, import_corpus, read_corpus
from memrecall.evaluation.questions import Question, read_questions
from memrecall.importers.jsonl import read_entry
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.search.index.columns import Columns
from memrecall.search.index.rows import Rows
from memrecall.search.ranking import features
from memrecall.search.ranking.scores import RankingFeatures, RankingWeights, combine
from memrecall.search.ranking.selection import visible_rows
from memrecall.settings import Settings

Mask = npt.NDArray[np.bool_]
Order = npt.NDArray[np.intp]

_TOLD_EVERY = 100  # questions


@dataclass(frozen=True, slots=True)
class Example:
    """A question and its candidates, in the order that breaks ties."""

    evidence: RankingFeatures
    keys: tuple[str, ...]
    right: Mask
    wanted: int  # number of pieces of evidence, whether candidates or not

    def ranked(self, weights: RankingWeights) -> tuple[npt.NDArray[np.float32], Order]:
        """Return the score of each candidate, and the candidates from best to worst."""
        scores = combine(self.evidence, weights)
        return scores, np.argsort(-scores, kind="stable")


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """The questions of one folder."""

    name: str
    examples: tuple[Example, ...]


async def read_set(
    folder: Path, work: Path, *, embedder: str = "local", left_out: Collection[str] = ()
) -> LabelledSet:
    """Collect the features of a folder's questions, without excluded categories.

    The corpus is imported into a database in `work`; a complete one is reused.
    """
    question_set = read_questions(folder / "queries.jsonl")
    corpus = read_corpus(folder / "corpus.jsonl", read_entry)
    check_labels(question_set, corpus)
    name = folder.name
    database = work / f"{name}-{corpus.sha256[:12]}-{embedder.replace('/', '_')}.db"
    settings = Settings(db=str(database), embedder=embedder, durability="normal", snapshots=False)
    questions = [
        question for question in question_set.questions if question.category not in left_out
    ]
    async with await Library.open(settings) as library:
        await _import(library, corpus, name)
        examples = []
        for count, question in enumerate(questions, 1):
            examples.append(await _example(library, corpus, question))
            if count % _TOLD_EVERY == 0 or count == len(questions):
                say(f"{name}: {count} of {len(questions)} questions")
    return LabelledSet(name, tuple(examples))


async def _import(library: Library, corpus: Corpus, name: str) -> None:
    stats = await library.stats()
    stored_count = int(stats["messages"]) + int(stats["memories"])
    if stored_count == corpus.size and not stats.get("not_embedded"):
        say(f"{name}: {stored_count:,} lines are already stored")
        return
    remaining = corpus.size

    def advance(lines: int) -> None:
        nonlocal remaining
        remaining -= lines
        say(f"{name}: {remaining:,} lines to import")

    await import_corpus(library, corpus, advance)


async def _example(library: Library, corpus: Corpus, question: Question) -> Example:
    """Return the candidates of an evaluation's search for a question."""
    await library.store.owners.set_time_zone(question.user_id, question.time_zone or "UTC")
    horizon = question.horizon
    now = horizon or corpus.now(question.user_id)
    until = horizon and horizon + timedelta(microseconds=1)
    request = SearchRequest(question.query, until=until, now=now)
    scope = Scope(question.user_id, session_id=question.session_id)
    evidence, keys = await _gather(library, scope, request, now)
    right = np.array([key in question.evidence for key in keys], dtype=np.bool_)
    return Example(evidence, keys, right, len(question.evidence))


async def _gather(
    library: Library, scope: Scope, request: SearchRequest, now: datetime
) -> tuple[RankingFeatures, tuple[str, ...]]:
    """Run the steps of `features.rank` up to the features."""
    engine, feed = library.engine, library.store.feed(scope.user_id)
    user = await feed.version()
    assert user is not None, f"{scope.user_id} was imported"
    search = engine._begin(scope, request, feed, user)
    vector, _ = await engine._embed(search)
    async with library.cache.open(feed, user) as columns:
        assert columns is not None
        query = features.RankingQuery(request, None, vector, user.version, now, user.time_zone)
        alive = columns.alive(user.version)
        visible = visible_rows(columns, scope, request, alive, now)
        lexical = features._lexical_scores(columns, query, alive)
        semantic = features._semantic_scores(columns, query)
        matches = features._matching_rows(columns, query, semantic, lexical)
        rows = _in_order_of_equals(columns, np.flatnonzero(visible.open & matches))
        counted = features._counted_rows(columns, request, alive, visible)
        values = features.compute_features(columns, query, lexical, semantic, counted, rows)
        return values, tuple(columns.table.keys[row] for row in rows)


def _in_order_of_equals(columns: Columns, rows: Rows) -> Rows:
    """Order by time, newest first, then by key, so that a stable sort gives the search's order."""
    table = columns.table
    ordered = sorted(rows.tolist(), key=lambda row: (-int(table.ts[row]), table.keys[row]))
    return np.array(ordered, dtype=np.int64)
