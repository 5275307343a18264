"""Recall in small stores: how many of the cases of `fixtures/first_hour` are right.

    python benchmarks/first_hour.py            half a, by language and category
    python benchmarks/first_hour.py b --json   half b, which is kept closed until the end

A case is right if the recall hands off all of its evidence, a piece of it first, or abstains if
there is none. Every case runs through `Recaller` with the rules and the local embedder.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from memrecall.agent import Recaller  # noqa: E402
from memrecall.memory import Library  # noqa: E402
from memrecall.scope import Scope  # noqa: E402
from memrecall.settings import Settings  # noqa: E402
from memrecall.types import NewMessage  # noqa: E402

FOLDER = REPOSITORY / "fixtures" / "first_hour"
Json = dict[str, Any]


def is_right(case: Json, keys: Sequence[str]) -> bool:
    """Return True if a recall handed off what a case wants."""
    evidence = set(case["evidence"])
    if not evidence:
        return not keys
    return evidence <= set(keys) and keys[0] in evidence


async def run(half: str) -> dict[tuple[str, str], list[bool]]:
    """Run the cases of a half; return for each language and category which ones are right."""
    outcomes: dict[tuple[str, str], list[bool]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        settings = Settings(db=f"{folder}/cases.db", embedder="local", snapshots=False)
        async with await Library.open(settings) as library:
            await _fill(library, half)
            for case in _read_lines(FOLDER / f"cases_{half}.jsonl"):
                keys = await _recall(library, case)
                outcomes[case["language"], case["category"]].append(is_right(case, keys))
    return outcomes


async def _fill(library: Library, half: str) -> None:
    sessions: dict[tuple[str, str], list[NewMessage]] = defaultdict(list)
    for row in _read_lines(FOLDER / f"stores_{half}.jsonl"):
        place = (row.pop("user_id"), row.pop("session_id"))
        sessions[place].append(NewMessage.model_validate(row))
    for (user, session), messages in sessions.items():
        await library.add_messages(Scope(user, session_id=session), messages)
    await library.vectors.settle()


async def _recall(library: Library, case: Json) -> list[str]:
    now = datetime.fromisoformat(case["now"])
    recaller = Recaller(library, Scope(case["user_id"]), clock=lambda: now)
    result = await recaller.recall(case["conversation"])
    return list(result.handoff.relevant_memory_keys)


def _read_lines(file: Path) -> Iterator[Json]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _show(outcomes: dict[tuple[str, str], list[bool]]) -> None:
    table = Table("language", "category", "right", "cases")
    for (language, category), right in sorted(outcomes.items()):
        table.add_row(language, category, str(sum(right)), str(len(right)))
    total = [right for part in outcomes.values() for right in part]
    table.add_row("all", "", str(sum(total)), str(len(total)))
    Console().print(table)


def main() -> None:
    """Run one half and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("half", nargs="?", choices=("a", "b"), default="a")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    outcomes = asyncio.run(run(arguments.half))
    if arguments.json:
        print(json.dumps({" ".join(name): right for name, right in sorted(outcomes.items())}))
    else:
        _show(outcomes)


if __name__ == "__main__":
    main()
