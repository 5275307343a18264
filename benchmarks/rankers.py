"""Other search libraries over the same tokens, for comparison."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.report import Stopwatch, Time
from memrecall.search.ranking.lexical import query_terms
from memrecall.text.tokens import BREAK, analyze, is_cjk

Tokens = list[str]
Ask = Callable[[Tokens], object]

_BEST = 10
_FIELD = "body"


def text_tokens(text: str) -> Tokens:
    """Return the tokens that memrecall indexes for a text."""
    analysis = analyze(text)
    pairs = (a + b for a, b in pairwise(analysis.atoms) if is_cjk(a) and is_cjk(b))
    return [*(atom for atom in analysis.atoms if atom != BREAK), *analysis.extras, *pairs]


def question_tokens(text: str) -> Tokens:
    """Return the tokens that memrecall looks up for a question, without stop words."""
    return ["".join(term) for term in query_terms(text)]


def rank_bm25(texts: Sequence[Tokens]) -> Ask:
    """Score all rows with `rank-bm25`."""
    from rank_bm25 import BM25Okapi

    ask: Ask = BM25Okapi(texts).get_scores
    return ask


def tantivy(texts: Sequence[Tokens]) -> Ask:
    """Return the ten best rows of `tantivy`; any token may match."""
    import tantivy as library

    builder = library.SchemaBuilder()
    # The text is tokenised already: split at spaces only, so that Chinese works.
    builder.add_text_field(_FIELD, tokenizer_name="whitespace", index_option="freq")
    schema = builder.build()
    index = library.Index(schema)
    writer = index.writer(256_000_000, 1)
    for tokens in texts:
        writer.add_document(library.Document(**{_FIELD: [" ".join(tokens)]}))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query_tokens: Tokens) -> object:
        should = library.Occur.Should
        terms = (
            (should, library.Query.term_query(schema, _FIELD, t, "freq")) for t in query_tokens
        )
        return searcher.search(library.Query.boolean_query(list(terms)), _BEST, count=False)

    return search


LEXICAL: dict[str, Callable[[Sequence[Tokens]], Ask]] = {
    "tantivy, best 10": tantivy,
    "rank-bm25, scores alone": rank_bm25,
}


def scan(matrix: npt.NDArray[np.float32], vector: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Return the ten best rows of a plain numpy scan of all cosines."""
    scores = matrix @ vector
    best = np.argpartition(scores, -_BEST)[-_BEST:]
    return best[np.argsort(-scores[best])]


def time_each(work: Callable[[Any], object], items: Iterable[Any]) -> list[Time]:
    """Return the time of each item."""
    times: list[Time] = []
    for item in items:
        watch = Stopwatch()
        work(item)
        times.append(watch.read())
    return times
