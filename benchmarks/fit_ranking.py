"""Fits the weights of hybrid search and the calibration of its scores to labelled questions.

    python benchmarks/fit_ranking.py --data FOLDER… --validate FOLDER…

A folder is an evaluation set: corpus.jsonl and queries.jsonl (docs/evaluation.md). There are two
fits. The first gives weights, which are rounded and written by hand into
`memrecall/search/ranking/scores.py`; the second uses the weights in that file and gives the
coefficients of `memrecall/search/ranking/calibration.py`. Each set has equal weight, however many
questions it has. Only tables are written, and the same sets give the same tables.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks.ranking_evidence import LabelledSet, read_set  # noqa: E402
from benchmarks.ranking_fits import (  # noqa: E402
    COMMITTED,
    HELD,
    Results,
    fit_calibration,
    fit_weights,
    judge,
    recall,
)
from benchmarks.report import say  # noqa: E402
from memrecall.search.ranking.scores import FEATURES, HYBRID  # noqa: E402

Figures = dict[str, dict[str, float]]  # rows of named figures
Some = TypeVar("Some")
Fit = TypeVar("Fit")

SOURCE, FITTED, OTHERS = "in the source", "fitted", "fitted to the others"


def leave_one_out(sets: Sequence[Some], fit: Callable[[Sequence[Some]], Fit]) -> list[Fit]:
    """Return, for each set, the fit to the other sets; a single set is fitted to itself."""
    if len(sets) == 1:
        return [fit(sets)]
    return [fit([other for other in sets if other is not left_out]) for left_out in sets]


def study_ranking(
    train: Sequence[LabelledSet], check: Sequence[LabelledSet], held: Sequence[str] = HELD
) -> dict[str, Figures]:
    """Return fitted weights, and recall@10 with them, with the current ones and leave-one-out."""
    say("fitting the weights")
    fit = partial(fit_weights, held=held)
    fitted = fit(train)
    apart = [*leave_one_out(train, fit), *[fitted] * len(check)]
    weights = {
        name: {SOURCE: getattr(HYBRID, name), FITTED: getattr(fitted, name)} for name in FEATURES
    }
    recalls = {}
    for labelled, other in zip([*train, *check], apart, strict=True):
        choices = {SOURCE: HYBRID, FITTED: fitted, OTHERS: other}
        recalls[labelled.name] = {
            name: recall(labelled, chosen) for name, chosen in choices.items()
        }
    return {"weights": weights, "recall@10": recalls}


def study_calibration(
    train: Sequence[LabelledSet], check: Sequence[LabelledSet]
) -> dict[str, Figures]:
    """Return fitted coefficients, and their calibration on sets they were not fitted to."""
    say("fitting the calibration")
    results = [Results.of(labelled) for labelled in train]
    fitted = fit_calibration(results)
    apart = [*leave_one_out(results, fit_calibration), *[fitted] * len(check)]
    results += [Results.of(labelled) for labelled in check]
    names = [labelled.name for labelled in [*train, *check]]
    committed, fitted_values = asdict(COMMITTED), asdict(fitted)
    return {
        "coefficients": {
            name: {SOURCE: committed[name], FITTED: fitted_values[name]} for name in committed
        },
        f"chances, {SOURCE}": {
            name: judge(result, COMMITTED) for name, result in zip(names, results, strict=True)
        },
        f"chances, {OTHERS}": {
            name: judge(result, other)
            for name, result, other in zip(names, results, apart, strict=True)
        },
    }


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


def print_table(title: str, rows: Figures) -> None:
    """Print one row per name, one column per figure."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in next(iter(rows.values())):
        table.add_column(name, justify="right")
    for name, figures in rows.items():
        table.add_row(name, *(f"{value:.3f}" for value in figures.values()))
    # As wide as it needs to be, also where the output is a file.
    Console(width=None if sys.stdout.isatty() else 170).print(table)


async def study(options: argparse.Namespace) -> dict[str, Figures]:
    """Run all requested studies and print their tables."""
    sets = [
        await read_set(folder, options.work, left_out=options.leave_out)
        for folder in [*options.data, *options.validate]
    ]
    train, check = sets[: len(options.data)], sets[len(options.data) :]
    held = [name for name in HELD if name not in options.free]
    tables = study_ranking(train, check, held) | study_calibration(train, check)
    return tables | study_parts(sets) if options.parts else tables


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folders: dict[str, Any] = {"type": _folder, "nargs": "+", "metavar": "FOLDER"}
    parser.add_argument("--data", required=True, help="sets to fit to", **folders)
    parser.add_argument("--validate", default=[], help="sets to check on", **folders)
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
        "--work",
        type=Path,
        default=Path(tempfile.gettempdir()) / "memrecall-fit-ranking",
        help="where imported sets are kept for the next time",
    )
    parser.add_argument("--parts", action="store_true", help="switch off each weight in turn, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    names = [folder.name for folder in [*options.data, *options.validate]]
    if len(set(names)) < len(names):
        parser.error(f"tables name sets by their folders, which must differ: {', '.join(names)}")
    return options


def _folder(text: str) -> Path:
    return Path(text).resolve()  # "." has a name, too


def main() -> None:
    """Fit, print the tables, write the file."""
    options = _read_options()
    options.work.mkdir(parents=True, exist_ok=True)
    tables = asyncio.run(study(options))
    for title, rows in tables.items():
        print_table(title, rows)
    if options.json is not None:
        options.json.write_text(json.dumps(tables, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
