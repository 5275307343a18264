"""Fits the map from the vectors of questions to those of their answers.

    python benchmarks/fit_query_map.py --data FOLDER… --validate FOLDER… --work FOLDER

A folder is an evaluation set: corpus.jsonl and queries.jsonl (docs/evaluation.md). The tables
compare searches by meaning alone: without a map, with it, and with a map that never saw the set's
source. The maps are written to the work folder, where `fit_ranking.py --maps` finds them; only
`--out` writes the map that the package uses. The same sets give the same bytes.

The package's map is fitted to KdConv, FriendsQA, Molweni, LifeBench (all Apache-2.0), MADial-Bench
(MIT) and the authors A to E of fixtures/authored. LoCoMo, LoCoMo-Plus and CMRC 2018, whose licences
restrict use, only check it.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402

from benchmarks.evaluation_sets import (  # noqa: E402
    WORK,
    EvaluationSet,
    add_folder_options,
    begin_search,
    check_names,
    fit_without,
    map_path,
    open_library,
    read_evaluation_set,
    source_of,
    tell_progress,
)
from benchmarks.query_map_fits import (  # noqa: E402
    Apply,
    Floats,
    MapQuestion,
    MapSet,
    apply_change,
    fit_linear,
    measure,
)
from benchmarks.report import Figures, print_figures, say, write_figures  # noqa: E402
from memrecall.evaluation.datasets import Question  # noqa: E402
from memrecall.memory import Library  # noqa: E402
from memrecall.search.ranking.ranker import visible_rows  # noqa: E402

NO_MAP, MAP, OTHERS = "no map", "map", "map of the others"


async def read_map_set(
    evaluation_set: EvaluationSet, work: Path, *, embedder: str = "local"
) -> MapSet:
    """Embed the questions of a set as a hybrid search does, before the map."""
    asked = [question for question in evaluation_set.questions if question.answerable]
    rows: dict[str, Floats] = {}
    questions = []
    async with open_library(evaluation_set, work, embedder) as library:
        for done, question in enumerate(asked, 1):
            result = await _map_question(library, evaluation_set, question, rows)
            if len(result.right):
                questions.append(result)
            tell_progress(evaluation_set.name, done, len(asked))
    return MapSet(evaluation_set.name, tuple(questions))


async def _map_question(
    library: Library, evaluation_set: EvaluationSet, question: Question, rows: dict[str, Floats]
) -> MapQuestion:
    """Read a question; `rows` keeps the vectors of each user."""
    search = await begin_search(library, evaluation_set.corpus, question)
    vector = await library.engine.embed_conversation(search)
    async with library.cache.open(search.feed, search.user) as columns:
        assert columns is not None
        user_id = question.user_id
        if user_id not in rows:
            rows[user_id] = columns.vectors.dump(columns.rows).astype(np.float32)
        alive = columns.alive(search.version)
        visible = visible_rows(columns, search.scope, search.request, alive, search.now)
        is_open = visible.open & columns.embedded(search.version)
        is_right = np.array([key in question.evidence for key in columns.table.keys])
    right = np.flatnonzero(is_right & is_open)
    return MapQuestion(vector, rows[user_id], is_open, right, len(question.evidence))


def fit_maps(
    sets: Sequence[MapSet],
) -> tuple[npt.NDArray[np.float16], dict[str, npt.NDArray[np.float16]]]:
    """Return the map of all sets, and for each source the map of the others."""
    by_name = {map_set.name: map_set for map_set in sets}
    dimensions = _dimensions(sets)

    def fit(names: Sequence[str]) -> npt.NDArray[np.float16]:
        say(f"fitting a map to {', '.join(names) or 'nothing'}")
        return fit_linear([by_name[name] for name in names], dimensions)

    return fit(list(by_name)), fit_without(list(by_name), fit)


def _dimensions(sets: Sequence[MapSet]) -> int:
    return len(sets[0].questions[0].vector)


def compare(sets: Sequence[MapSet], maps: Mapping[str, Mapping[str, Apply]]) -> dict[str, Figures]:
    """Return a table for each metric: sets in rows, the maps of each set in columns."""
    tables: dict[str, Figures] = {"recall@10": {}, "MRR": {}}
    for map_set in sets:
        figures = {name: measure(map_set, apply) for name, apply in maps[map_set.name].items()}
        for metric, rows in tables.items():
            rows[map_set.name] = {name: values[metric] for name, values in figures.items()}
    return tables


def study_maps(
    train: Sequence[MapSet], check: Sequence[MapSet], work: Path
) -> tuple[npt.NDArray[np.float16], dict[str, Figures]]:
    """Fit the maps, write them to the work folder, and return the map and the tables."""
    change, others = fit_maps(train)
    np.save(map_path(work), change)
    for source, other in others.items():
        np.save(map_path(work, source), other)
    maps: dict[str, dict[str, Apply]] = {}
    for map_set in [*train, *check]:
        other = others.get(source_of(map_set.name), change)
        maps[map_set.name] = {
            NO_MAP: lambda vector: vector,
            MAP: apply_change(change),
            OTHERS: apply_change(other),
        }
    return change, compare([*train, *check], maps)


async def study(options: argparse.Namespace) -> tuple[npt.NDArray[np.float16], dict[str, Figures]]:
    """Read all sets, fit the maps and compare them."""
    sets = [
        await read_map_set(read_evaluation_set(folder), options.work)
        for folder in [*options.data, *options.validate]
    ]
    train, check = sets[: len(options.data)], sets[len(options.data) :]
    return study_maps(train, check, options.work)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_folder_options(parser, data="sets to fit to", validate="sets to check on")
    parser.add_argument(
        "--work", type=Path, default=WORK, help="where imported sets and all maps are kept"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the map there, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    check_names(parser, [*options.data, *options.validate])
    return options


def main() -> None:
    """Fit, print the tables, write the files."""
    options = _read_options()
    options.work.mkdir(parents=True, exist_ok=True)
    change, tables = asyncio.run(study(options))
    for title, rows in tables.items():
        print_figures(f"{title} by meaning alone", rows)
    if options.out is not None:
        np.save(options.out, change)
    if options.json is not None:
        write_figures(options.json, tables)


if __name__ == "__main__":
    main()
