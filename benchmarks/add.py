"""What `add` of one short message costs without a model: statements, thread hops and CPU.

    python benchmarks/add.py [--against FOLDER] [--rounds 3] [--out FILE]

With `--against`, another checkout is measured in turn with this one, by the same interpreter. The
store has 120 messages; CPU is that of all threads, also in units of one embedding of a short text.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__ and "MEASURE" not in os.environ:
    sys.path[0] = str(REPOSITORY)

_ADDS = 40
_CALM = 1.5  # seconds, for background work on what was stored
_MESSAGE = "I moved to {} street {} and my sister Ann visits on Friday."


class _Watch:
    """Counts the statements and the calls of executors of all threads."""

    def __init__(self) -> None:
        self.hops = 0
        self.statements = 0

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take an event of `sys.setprofile`."""
        if event == "call" and frame.f_code.co_name == "run_in_executor":
            self.hops += 1


async def measure() -> dict[str, float]:
    """Return the cost of one `add` in this process."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    from memrecall import AsyncMemory
    from memrecall.embedding import make_embedder

    watch = _Watch()

    @event.listens_for(Engine, "before_cursor_execute")
    def count(*_: Any) -> None:
        watch.statements += 1

    with tempfile.TemporaryDirectory() as folder:
        async with AsyncMemory(db=f"{folder}/add.db", user_id="u") as memory:
            for day in range(40):
                texts = [f"On day {day} I bought a {what}." for what in ("lamp", "chair", "book")]
                batch = [{"role": "user", "content": text} for text in texts]
                await memory.add(batch, infer=False)
            for number in range(5):
                await memory.add(_MESSAGE.format("Long", number))
            await asyncio.sleep(_CALM)
            watch.statements = 0
            threading.setprofile(watch.note)
            sys.setprofile(watch.note)
            await memory.add(_MESSAGE.format("Short", 1))
            sys.setprofile(None)
            threading.setprofile(None)
            statements, hops = watch.statements, watch.hops
            await asyncio.sleep(_CALM)
            before, began = time.process_time(), time.perf_counter()
            for number in range(_ADDS):
                await memory.add(_MESSAGE.format("High", number))
            wall = time.perf_counter() - began
            cpu = time.process_time() - before
            await asyncio.sleep(_CALM)
            later = time.process_time() - before  # with vectors, and with what else follows
        embedder = make_embedder("local")
        assert embedder is not None
        texts = [f"where did {number} go?" for number in range(100)]
        await embedder.embed(texts[:1])
        before = time.process_time()
        for text in texts:
            await embedder.embed([text])
        unit = (time.process_time() - before) / len(texts)
    return {
        "statements": statements,
        "thread hops": hops,
        "CPU ms": 1e3 * cpu / _ADDS,
        "wall ms": 1e3 * wall / _ADDS,
        "CPU ms with what follows": 1e3 * later / _ADDS,
        "units of one embedding": cpu / _ADDS / unit,
    }


def run(checkout: Path) -> dict[str, float]:
    """Return the cost in a new process of a checkout."""
    own = {"MEMRECALL_CONFIG": os.devnull, "MEMRECALL_MODEL": "", "MEASURE": "1"}
    environment = {**os.environ, **own, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(Path(__file__).resolve())]
    process = subprocess.run(
        command, env=environment, cwd=checkout, capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the folder of another checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    from benchmarks.report import print_figures, write_figures

    checkouts = {"this": REPOSITORY}
    if arguments.against:
        checkouts["against"] = arguments.against.resolve()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for _ in range(arguments.rounds):
        for name, checkout in checkouts.items():
            runs[name].append(run(checkout))
    rows = {
        name: {key: statistics.median(each[key] for each in done) for key in done[0]}
        for name, done in runs.items()
    }
    print_figures("one add of a short message, no model", rows)
    if arguments.out:
        write_figures(arguments.out, {"one add of a short message, no model": rows})


if __name__ == "__main__":
    if "MEASURE" in os.environ:
        del os.environ["MEASURE"]
        sys.path[0] = os.environ["PYTHONPATH"]
        print(json.dumps(asyncio.run(measure())))
    else:
        main()
