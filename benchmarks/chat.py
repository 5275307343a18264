"""What a chat without a model would quote at each floor of probability.

    python benchmarks/chat.py FOLDER… [--out FILE]

A folder is an evaluation set (docs/evaluation.md). Its questions are taken as chat turns, and so
are up to a hundred of the users' own messages without a question, each as of the moment when it was
said. Nothing tells the two apart but how likely the best hit of the recall is. For each floor:

- `statements`: answered with a quote, which is beside the point;
- `right`, `wrong`: answerable questions for which the first quote is evidence, or is not;
- `absent`: questions without an answer that get a quote.
"""

import sys

if not __package__:  # run as a file: this folder has modules named like those of the library
    sys.path.pop(0)

import argparse
import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from benchmarks.pairs import as_messages, open_set, share  # noqa: E402
from benchmarks.report import Figures, print_figures, say, write_figures  # noqa: E402
from memrecall import recall  # noqa: E402
from memrecall.memory import Library  # noqa: E402
from memrecall.text.language import is_question  # noqa: E402
from memrecall.types import read_iso_time  # noqa: E402

_STATEMENTS = 100
_FLOORS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


class Turn(NamedTuple):
    """A turn: what was asked for, and how likely the recall takes its first item to be that."""

    kind: str  # statement, answerable or absent
    confidence: float  # 0 if nothing is handed off
    is_right: bool


async def take_turn(
    library: Library, user: str, text: str, now: datetime | None, evidence: frozenset[str] | None
) -> Turn:
    """Recall for a message; `evidence` is None for a statement."""
    result = await recall(
        as_messages(text),
        user_id=user,
        library=library,
        as_of=now,
        clock=lambda: now or datetime.now(UTC),
    )
    kind = "statement" if evidence is None else "answerable" if evidence else "absent"
    first = [memory.memory_key for memory in result.memories[:1]]
    confidence = result.confidence if first else 0.0
    return Turn(kind, confidence, not (evidence or frozenset()).isdisjoint(first))


async def run(folder: Path, work: Path) -> list[Turn]:
    """Take all turns of a folder."""
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()]
    said = [row for row in rows if row["role"] == "user" and not is_question(row["content"])]
    said = said[:: max(1, len(said) // _STATEMENTS)][:_STATEMENTS]
    async with open_set(folder, work) as (library, questions):
        turns = [
            await take_turn(library, row["user_id"], row["content"], read_iso_time(row["ts"]), None)
            for row in said
        ]
        return turns + [
            await take_turn(
                library, each.user_id, each.query, each.horizon, frozenset(each.evidence)
            )
            for each in questions
        ]


def summarize(turns: list[Turn], floor: float) -> dict[str, float]:
    """Return the figures of a floor, in turns of a hundred."""

    def quoted(kind: str, *, is_right: bool | None = None) -> float:
        return 100 * share(
            turn.confidence > 0 and turn.confidence >= floor and is_right in (None, turn.is_right)
            for turn in turns
            if turn.kind == kind
        )

    return {
        "statements": quoted("statement"),
        "right": quoted("answerable", is_right=True),
        "wrong": quoted("answerable", is_right=False),
        "absent": quoted("absent"),
    }


def main() -> None:
    """Print a table for each author, and one of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--work", type=Path, default=Path("/tmp/memrecall-pairs"))  # noqa: S108
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    sets: dict[str, list[Turn]] = {}
    for folder in options.folders:
        sets[folder.name] = asyncio.run(run(folder.resolve(), options.work))
        say(f"{folder.name}: {len(sets[folder.name])} turns")
    sets["all"] = [turn for turns in sets.values() for turn in turns]
    tables: dict[str, Figures] = {
        name: {f"{floor:.1f}": summarize(turns, floor) for floor in _FLOORS}
        for name, turns in sets.items()
    }
    for name, table in tables.items():
        print_figures(f"{name}: quoted at a floor, of a hundred turns", table)
    if options.out is not None:
        write_figures(options.out, tables)


if __name__ == "__main__":
    main()
