"""Fits the weights of hybrid search and the calibration of its scores to labelled questions.

    python benchmarks/fit_ranking.py --data FOLDER… --validate FOLDER… --maps WORK

A folder is an evaluation set: corpus.jsonl and queries.jsonl (docs/evaluation.md). There are two
fits. The first gives weights, which are rounded and written by hand into
`memrecall/search/ranking/scores.py`; the second uses the weights in that file and gives those of
`memrecall/search/ranking/scores.py`. Each set has equal weight, however many questions it has.
Only tables are written, and the same sets give the same tables.

The map of questions is fitted to the same sets (`fit_query_map.py`), where it does better than on
others. With `--maps`, each set is therefore read with the map that never saw its source.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

import numpy as np  # noqa: E402

from benchmarks.calibration_fits import (  # noqa: E402
    COMMITTED,
    CalibrationSet,
    CalibrationWeights,
    fit_calibration,
    judge,
    leave_out,
)
from benchmarks.evaluation_sets import (  # noqa: E402
    WORK,
    EvaluationSet,
    add_folder_options,
    check_names,
    fit_without,
    map_path,
    read_evaluation_set,
    source_of,
)
from benchmarks.ranking_evidence import LabelledSet, foreign_questions, read_set  # noqa: E402
from benchmarks.ranking_fits import (  # noqa: E402
    HELD,
    by_meaning,
    by_weights,
    by_words,
    fit_weights,
    measure,
    recall,
)
from benchmarks.report import Figures, print_figures, say, write_figures  # noqa: E402
from memrecall.embedding.maps import QueryMap  # noqa: E402
from memrecall.search.ranking.scores import FEATURES, HYBRID, RankingWeights  # noqa: E402

SOURCE, FITTED, OTHERS = "in the source", "fitted", "fitted to the others"


def study_ranking(
    train: Sequence[LabelledSet], check: Sequence[LabelledSet], held: Sequence[str] = HELD
) -> dict[str, Figures]:
    """Return fitted weights, and recall@10 and MRR with them and with other rankings."""
    say("fitting the weights")
    by_name = {labelled.name: labelled for labelled in train}
    fitted = fit_weights(train, held)
    others = _fit_others(by_name, fitted, held)
    tables: dict[str, Figures] = {"weights": {}, "recall@10": {}, "MRR": {}}
    for name in FEATURES:
        tables["weights"][name] = {SOURCE: getattr(HYBRID, name), FITTED: getattr(fitted, name)}
    for labelled in [*train, *check]:
        rankers = {
            SOURCE: by_weights(HYBRID),
            FITTED: by_weights(fitted),
            OTHERS: by_weights(others.get(labelled.source, fitted)),
            "words alone": by_words,
            "meaning alone": by_meaning,
        }
        figures = {name: measure(labelled, ranker) for name, ranker in rankers.items()}
        for metric in ("recall@10", "MRR"):
            tables[metric][labelled.name] = {name: of[metric] for name, of in figures.items()}
    return tables


def _fit_others(
    by_name: dict[str, LabelledSet], fitted: RankingWeights, held: Sequence[str]
) -> dict[str, RankingWeights]:
    """Return for each source the weights of the others; a single source has only its own."""

    def fit(names: Sequence[str]) -> RankingWeights:
        return fit_weights([by_name[name] for name in names], held) if names else fitted

    return fit_without(list(by_name), fit)


def study_calibration(
    train: Sequence[LabelledSet], check: Sequence[LabelledSet]
) -> dict[str, Figures]:
    """Return fitted weights, and the calibration in the source, fitted and leave-one-out."""
    say("fitting the calibration")
    sets = [CalibrationSet.of(labelled) for labelled in train]
    fitted = fit_calibration(sets)
    others: dict[str, CalibrationWeights] = {}
    for source in dict.fromkeys(labelled.source for labelled in train):
        others[source] = fit_calibration(leave_out(sets, source) or sets)
    sets += [CalibrationSet.of(labelled) for labelled in check]
    return {
        "answer weights": _compare(COMMITTED.answer._asdict(), fitted.answer._asdict()),
        "row weights": _compare(COMMITTED.row._asdict(), fitted.row._asdict()),
        f"calibration, {SOURCE}": {each.name: judge(each, COMMITTED) for each in sets},
        f"calibration, {FITTED}": {each.name: judge(each, fitted) for each in sets},
        f"calibration, {OTHERS}": {
            each.name: judge(each, others.get(source_of(each.name), fitted)) for each in sets
        },
    }


def _compare(committed: dict[str, float], fitted: dict[str, float]) -> Figures:
    return {name: {SOURCE: committed[name], FITTED: fitted[name]} for name in committed}


def study_parts(sets: Sequence[LabelledSet]) -> dict[str, Figures]:
    """Return the recall@10 of each set with one feature disabled."""
    choices = {"all": HYBRID}
    for name in FEATURES:
        if getattr(HYBRID, name):
            choices[f"without {name}"] = replace(HYBRID, **{name: 0.0})
    say(f"disabling {len(choices) - 1} features in turn")
    figures = {
        name: {labelled.name: recall(labelled, weights) for labelled in sets}
        for name, weights in choices.items()
    }
    return {"recall@10, one kind of evidence switched off": figures}


def load_map(folder: Path, source: str) -> QueryMap:
    """Return the map that never saw a source, or that of all sets if none was fitted to it."""
    file = map_path(folder, source)
    return QueryMap(np.load(file if file.is_file() else map_path(folder)))


async def study(options: argparse.Namespace) -> dict[str, Figures]:
    """Run all requested studies."""
    read = partial(read_evaluation_set, excluded=options.leave_out)
    train, check = (
        [read(folder) for folder in folders] for folders in (options.data, options.validate)
    )
    # What is only checked must not take part in a fit, nor may its questions.
    train_sets = await _read_sets(train, train, options)
    check_sets = await _read_sets(check, [*train, *check], options)
    held = [name for name in HELD if name not in options.free]
    tables = study_ranking(train_sets, check_sets, held)
    tables |= study_calibration(train_sets, check_sets)
    return tables | study_parts([*train_sets, *check_sets]) if options.parts else tables


async def _read_sets(
    sets: Sequence[EvaluationSet], givers: Sequence[EvaluationSet], options: argparse.Namespace
) -> list[LabelledSet]:
    return [
        await read_set(
            given,
            options.work,
            foreign=foreign_questions(given, givers),
            query_map=None if options.maps is None else load_map(options.maps, given.source),
        )
        for given in sets
    ]


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_folder_options(
        parser,
        data="sets to fit to",
        validate="sets to check on",
    )
    parser.add_argument(
        "--free",
        nargs="+",
        default=[],
        choices=HELD,
        metavar="WEIGHT",
        help=f"fit some of the weights that are kept as they are: {', '.join(HELD)}",
    )
    parser.add_argument(
        "--leave-out",
        nargs="*",
        default=["adversarial"],
        metavar="CATEGORY",
        help="questions whose evidence is no answer (default: adversarial)",
    )
    parser.add_argument(
        "--maps",
        type=Path,
        metavar="WORK",
        help="work folder of fit_query_map.py (default: the map of the package for all sets)",
    )
    parser.add_argument(
        "--work", type=Path, default=WORK, help="where imported sets are kept for the next time"
    )
    parser.add_argument("--parts", action="store_true", help="switch off each weight in turn, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    check_names(parser, [*options.data, *options.validate])
    return options


def main() -> None:
    """Fit, print the tables, write the file."""
    options = _read_options()
    options.work.mkdir(parents=True, exist_ok=True)
    tables = asyncio.run(study(options))
    for title, rows in tables.items():
        print_figures(title, rows)
    if options.json is not None:
        write_figures(options.json, tables)


if __name__ == "__main__":
    main()
