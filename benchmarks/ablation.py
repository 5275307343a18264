"""What each word list and pattern of search and recall earns: all questions with it switched off.

    python benchmarks/ablation.py FOLDER… [--out FILE] [--only NAME]

A folder is an evaluation set (docs/evaluation.md). A row is a list that is switched off alone, and
the differences to all of them on, in questions of a hundred: of answerable questions, evidence
first and among the first three results of a search; first and at all among what a recall without a
model hands off; answered with nothing; and the AUROC of the confidence, in points. The weights that
were fitted with a list are not fitted again without it, so that what a list earns is not
understated.
"""

import sys

if not __package__:  # run as a file: this folder has modules named like those of the library
    sys.path.pop(0)

import argparse
import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from benchmarks.pairs import run, summarize  # noqa: E402
from benchmarks.report import Figures, print_figures, say, write_figures  # noqa: E402
from memrecall.agent.offline import policy  # noqa: E402
from memrecall.agent.tools import search  # noqa: E402
from memrecall.search import engine  # noqa: E402
from memrecall.search.ranking import features, lexical, rerank  # noqa: E402
from memrecall.text import keywords as text_keywords  # noqa: E402

_NEVER = re.compile(r"(?!)")
_NO_WORDS: frozenset[str] = frozenset()
_STOP_WORDS = ("STOP_TERMS", "STOP_CHARS", "STOP_WORDS")
Patch = tuple[Any, str, object]


def _always(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


# A list by what it does: the names in modules that are replaced, and what with.
LISTS: Mapping[str, tuple[Patch, ...]] = {
    "stop words of queries": tuple((lexical, name, _NO_WORDS) for name in _STOP_WORDS),
    "stop words of keywords": tuple((text_keywords, name, _NO_WORDS) for name in _STOP_WORDS),
    "questions": tuple((each, "is_question", _always(False)) for each in (features, rerank)),
    "first person": ((features, "FIRST_PERSON", _NEVER), (rerank, "FIRST_PERSON", _NEVER)),
    "times of a request": ((features, "find_times", _always([])),),
    "names of speakers": tuple(
        (each, "find_speakers", _always({})) for each in (features, rerank, engine)
    ),
    "names as the first person": ((engine, "to_first_person", lambda query, _: query),),
    "numbers in lines": ((rerank, "_NUMBER", _NEVER),),
    "greetings and thanks": ((policy, "is_greeting", _always(False)),),
    "lines before a follow-up": (
        (policy.Situation, "is_follow_up", property(_always(False))),
        (policy, "LIKELY", 0.0),
    ),
    "messages with the same words": (
        (search, "compare_texts", lambda _, texts: [False] * len(texts)),
    ),
}
FIGURES = {
    "search first": "search first",
    "search three": "three",
    "recall first": "recall first",
    "recall any": "any",
    "wrongly nothing": "none answerable",
    "AUROC": "auroc",
}


@contextmanager
def without(patches: tuple[Patch, ...]) -> Iterator[None]:
    """Replace names in modules for a while."""
    kept = [(module, name, getattr(module, name)) for module, name, _ in patches]
    try:
        for module, name, value in patches:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


async def measure(folders: list[Path], work: Path) -> dict[str, float]:
    """Return the figures of all questions of some sets, and of each set."""
    figures: dict[str, float] = {}
    answers = []
    for folder in folders:
        given = await run(folder, work)
        answers += given
        figures[f"recall any, {folder.name}"] = summarize(given)["any"]
        figures[f"search three, {folder.name}"] = summarize(given)["three"]
    whole = summarize(answers)
    return {name: whole[of] for name, of in FIGURES.items()} | figures


def main() -> None:
    """Measure with all lists, then without each of them, and print the differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--work", type=Path, default=Path("/tmp/memrecall-pairs"))  # noqa: S108
    parser.add_argument("--only", choices=LISTS, help="switch only this list off")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    folders = [folder.resolve() for folder in options.folders]
    base = asyncio.run(measure(folders, options.work))
    table: Figures = {"all on": {name: 100 * value for name, value in base.items()}}
    for name in [options.only] if options.only else LISTS:
        with without(LISTS[name]):
            figures = asyncio.run(measure(folders, options.work))
        table[name] = {each: 100 * (figures[each] - base[each]) for each in base}
        say(f"{name}: " + ", ".join(f"{each} {table[name][each]:+.1f}" for each in FIGURES))
    print_figures("switched off, in questions of a hundred", table)
    if options.out is not None:
        sets = ", ".join(folder.name for folder in folders)
        write_figures(options.out, {f"questions of {sets}, of a hundred": table})


if __name__ == "__main__":
    main()
