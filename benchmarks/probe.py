"""One measurement in a new process: `python -m benchmarks.probe` prints a line of JSON.

The cost of a first search and the memory of an index can only be measured in a process that has
done nothing before.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

_HERE = Path(__file__).resolve().parent.parent
QUESTION = "When did we talk about the trip? 上次说的旅行是哪天？"


def first_search(
    location: str, user: str, *, cache: Path, model: str = "", snapshots: bool = True, **more: Any
) -> dict[str, float]:
    """Measure a new process's first search for a user."""
    arguments: dict[str, object] = {"db": location, "user": user, "cache": cache, "model": model}
    words = [f"--{name}={value}" for name, value in {**arguments, **more}.items()]
    command = [sys.executable, "-m", "benchmarks.probe", *words]
    if not snapshots:
        command.append("--no-snapshots")
    process = subprocess.run(command, cwd=_HERE, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(process.stdout)
    return figures


def median_search(repeats: int, *args: Any, **options: Any) -> dict[str, float]:
    """Return the median of each figure over several new processes."""
    runs = [first_search(*args, **options) for _ in range(repeats)]
    return {name: median(run[name] for run in runs) for name in runs[0]}


def help_seconds(repeats: int = 5) -> float:
    """Return the median CPU time of `memrecall --help`."""
    command = [str(Path(sys.executable).with_name("memrecall")), "--help"]
    seconds: list[float] = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(seconds)


def resident() -> float:
    """Return the resident memory of this process in megabytes; NaN without psutil."""
    try:
        import psutil
    except ImportError:
        return float("nan")
    return float(psutil.Process().memory_info().rss) / 1e6


def peak() -> float:
    """Return the peak memory of this process in megabytes."""
    try:
        # Not ru_maxrss, which includes the memory of the parent process.
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    return float(kilobytes) * 1024 / 1e6


async def _probe(options: argparse.Namespace) -> dict[str, float]:
    from benchmarks.vectors import NameOnly
    from memrecall.memory import Library
    from memrecall.scope import Scope
    from memrecall.search import SearchRequest
    from memrecall.settings import Settings
    from memrecall.store import Store

    embedder = NameOnly(options.model, options.dimensions) if options.model else None
    settings = Settings(
        db=options.db, cache_dir=options.cache, snapshots=options.snapshots, index_memory_mb=4096
    )
    request = SearchRequest(QUESTION, mode="keyword")
    figures: dict[str, float] = {}
    async with Library(await Store.open(options.db, create=False), embedder, settings) as library:
        if options.empty:
            # Exclude what any search loads (character tables, code): it is not part of the index.
            await library.search(Scope(options.empty), request)
            figures["empty_mb"] = resident()
        cpu_started, wall = time.process_time(), time.perf_counter()
        feed = library.store.feed(options.user)
        version = await feed.version()
        assert version is not None, f"there is no user {options.user}"
        async with library.cache.open(feed, version) as columns:
            assert columns is not None
            figures["rows"] = columns.rows
            figures["vectors_mb"] = columns.vectors.nbytes(columns.rows) / 1e6
        figures["load_cpu"] = time.process_time() - cpu_started
        figures["load_wall"] = time.perf_counter() - wall
        await library.search(Scope(options.user), request)
        figures["total_cpu"] = time.process_time()
        figures["search_cpu"] = time.process_time() - cpu_started - figures["load_cpu"]
        for _ in range(options.searches):
            await library.search(Scope(options.user), request)
        figures["full_mb"] = resident()
        figures["counted_mb"] = library.cache.nbytes() / 1e6
        figures["peak_mb"] = peak()
    return figures


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--model", default="", help="whose vectors to load; none if empty")
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--empty", default="", help="a user with next to nothing to search first")
    parser.add_argument("--searches", type=int, default=0, help="more searches after the first")
    parser.add_argument("--no-snapshots", dest="snapshots", action="store_false")
    print(json.dumps(asyncio.run(_probe(parser.parse_args()))))


if __name__ == "__main__":
    _main()
