"""How many correct and invented facts of a model are stored, and which of them are marked.

    python benchmarks/facts.py FILE… [--show] [--out FILE]

A line of a file is a conversation with facts that a model could have taken from it, `correct` or
not, with the `fault` of those that are not (fixtures/extraction/README.md). A scripted model
answers with all of them; what a `Memory` has stored then is compared.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from benchmarks.report import Figures, print_figures, write_figures  # noqa: E402
from memrecall.memory import AsyncMemory  # noqa: E402
from memrecall.testing import ScriptedClient, say  # noqa: E402

_WRONG_VALUE = ("number", "date")


@dataclass
class Counts:
    """Facts of one author by what became of them."""

    facts: Counter[str] = field(default_factory=Counter)
    stored: Counter[str] = field(default_factory=Counter)
    marked: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, float]:
        """Return the shares that are claimed."""
        invented = [kind for kind in self.facts if kind != "correct"]
        values = [kind for kind in invented if kind in _WRONG_VALUE]

        def share(counter: Counter[str], kinds: list[str]) -> float:
            return sum(counter[k] for k in kinds) / max(1, sum(self.facts[k] for k in kinds))

        return {
            "correct facts": self.facts["correct"],
            "stored": share(self.stored, ["correct"]),
            "marked": share(self.marked, ["correct"]),
            "invented": sum(self.facts[kind] for kind in invented),
            "invented, marked": share(self.marked, invented),
            "wrong number or date": sum(self.facts[kind] for kind in values),
            "wrong number or date, marked": share(self.marked, values),
        }


async def run_case(case: dict[str, Any], counts: Counts, show: bool) -> None:
    """Store a conversation with a model that answers with the facts of the case."""
    numbers = {message["n"] for message in [*case["context"], *case["messages"]]}
    assert numbers == set(range(1, len(numbers) + 1)), case["id"]
    names = ("text", "about", "type", "sources", "negated")
    facts = [{name: fact[name] for name in names} for fact in case["facts"]]
    model = ScriptedClient([say(json.dumps({"facts": facts}, ensure_ascii=False))])
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncMemory(
            user_id="u", db=f"{folder}/facts.db", model_client=model, settings=None
        ) as memory:
            if case["context"]:
                library = (await memory._open()).library
                from memrecall.messages import parse_new_messages

                earlier = parse_new_messages(list(map(_to_message, case["context"])), None)
                await library.add_messages(memory._scope(), earlier)
            await memory.add(list(map(_to_message, case["messages"])))
            stored = {m["memory"]: m for m in (await memory.get_all(limit=200))["results"]}
    for fact in case["facts"]:
        kind = "correct" if fact["correct"] else fact.get("fault", "other")
        counts.facts[kind] += 1
        memory_item = stored.get(" ".join(fact["text"].split()))
        if memory_item is None:
            if fact["correct"]:
                print("  not stored:", fact["text"], file=sys.stderr)
            continue
        counts.stored[kind] += 1
        if not memory_item["checked"]:
            counts.marked[kind] += 1
        is_wrong = memory_item["checked"] == (kind in _WRONG_VALUE)
        if show and (is_wrong if kind in ("correct", *_WRONG_VALUE) else False):
            doubts = memory_item.get("doubts", [])
            print(f"  {case['id']} {kind} {doubts}: {fact['text']}", file=sys.stderr)


def _to_message(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "role": message["role"],
        "content": message["text"],
        "name": message.get("speaker"),
        "ts": message["ts"],
    }


async def run(files: list[Path], show: bool) -> tuple[Figures, Figures]:
    """Return the figures of each author, and the share of each fault that is marked."""
    rows: Figures = {}
    faults: Figures = {}
    for file in files:
        counts = Counts()
        for line in file.read_text("utf-8").splitlines():
            await run_case(json.loads(line), counts, show)
        name = file.parent.name if file.name == "cases.jsonl" else file.stem
        rows[name] = counts.figures()
        faults[name] = {
            kind: counts.marked[kind] / counts.facts[kind]
            for kind in ("number", "date", "negation", "person", "plan", "assistant", "other")
            if counts.facts[kind]
        }
    return rows, faults


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--show", action="store_true", help="print the facts judged wrongly")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    rows, faults = asyncio.run(run(arguments.files, arguments.show))
    print_figures("facts of a model", rows)
    print_figures("share of invented facts that is marked, by fault", faults)
    if arguments.out:
        # What other versions stored stays: they do not run this file.
        kept = json.loads(arguments.out.read_text("utf-8")) if arguments.out.exists() else {}
        write_figures(arguments.out, {**kept, "facts": rows, "faults": faults})


if __name__ == "__main__":
    main()
