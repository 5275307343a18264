"""`Memory` compared with mem0: adds and searches per second.

    pip install -e '.[peers]'
    python benchmarks/memory.py [--messages 300] [--searches 100] [--json FILE]

Both store one message per call without inference, then conversations of twenty messages per call,
and then search in turn; both with memrecall's local embedder (mem0's own is replaced) and each with
its default local store. Every text is embedded before the clock starts, so that the stores are
compared and not the embedder. Nothing leaves the machine.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from benchmarks.peers import SWITCHES, WARM_UP, make_mem0  # noqa: E402
from benchmarks.report import number, say  # noqa: E402
from memrecall import Memory  # noqa: E402
from memrecall.embedding import Vectors, make_embedder  # noqa: E402
from memrecall.search.ranking.scores import BACKGROUND  # noqa: E402
from memrecall.settings import Settings  # noqa: E402

Json = dict[str, Any]

USER = "bench"
TURN = 20
_THINGS = ("green tea", "a bicycle", "jazz", "山里散步", "拿铁咖啡", "chess", "旧书店", "sourdough")
_PLACES = ("Paris", "北京", "Oslo", "杭州", "Lisbon", "成都", "Kyoto", "广州")


class KnownVectors:
    """An embedder with the precomputed vectors of all texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        inner = make_embedder("local")
        assert inner is not None
        self.model = inner.model
        matrix = asyncio.run(_embed(inner, texts))
        self.dimensions = int(matrix.shape[1])
        self._rows = dict(zip(texts, matrix, strict=True))

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors in the order of the texts."""
        import numpy as np

        return np.stack([self._rows[text] for text in texts])

    async def close(self) -> None:
        """Do nothing."""

    def lists(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors in the format of mem0."""
        return [self._rows[text].tolist() for text in texts]


async def _embed(inner: Any, texts: Sequence[str]) -> Vectors:
    vectors: Vectors = await inner.embed(list(texts))
    await inner.close()
    return vectors


def invented(count: int) -> list[str]:
    """Return distinct messages."""
    return [
        f"Day {n}: I tried {_THINGS[n % 8]} in {_PLACES[n // 8 % 8]}, number {n * 7919 % 10_007}."
        for n in range(count)
    ]


def make_questions(count: int) -> list[str]:
    """Return questions about the messages."""
    return [f"Where did I try {_THINGS[n % 8]}, number {n * 31 % 997}?" for n in range(count)]


def open_memrecall(folder: Path, embedder: KnownVectors) -> tuple[Any, Callable[[], None]]:
    """Open `Memory` on a SQLite file with full durability."""
    file = str(folder / "memrecall.db")
    settings = Settings(db=file, embedder="local", cache_dir=str(folder))
    memory = Memory(settings=settings, embedder=embedder)
    return memory, memory.close


def open_mem0(folder: Path, embedder: KnownVectors) -> tuple[Any, Callable[[], None]]:
    """Open mem0 with Qdrant in a folder; its model is never called."""
    memory = make_mem0(folder, embedder.dimensions, embedder.lists)
    return memory, memory.close


def measure_adds(name: str, memory: Any, texts: Sequence[str]) -> Json:
    """Add messages one by one, then conversations."""
    half = len(texts) // 2
    memory.add(WARM_UP, user_id="nobody", infer=False)  # warm-up
    say(f"{name}: adding")
    started = time.perf_counter()
    for text in texts[:half]:
        memory.add(text, user_id=USER, infer=False)
    singly = half / (time.perf_counter() - started)
    started = time.perf_counter()
    for start in range(half, len(texts), TURN):
        turn = [{"role": "user", "content": text} for text in texts[start : start + TURN]]
        memory.add(turn, user_id=USER, infer=False)
    in_turns = (len(texts) - half) / (time.perf_counter() - started)
    return {"adds a second, one a call": singly, f"adds a second, {TURN} a call": in_turns}


def measure_searches(memories: Mapping[str, Any], questions: Sequence[str]) -> dict[str, Json]:
    """Ask each question of all of them in turn: other load of the machine affects all."""
    say("searching")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in memories}
    for question in (questions[0], *questions):
        for name, memory in memories.items():
            started = time.perf_counter(), time.process_time()
            page = _search(name, memory, question)
            ended = time.perf_counter(), time.process_time()
            times[name].append((ended[0] - started[0], ended[1] - started[1]))
            assert page["results"], f"{name} found nothing"
    figures = {}
    for name in memories:
        wall, cpu = zip(*times[name][1:], strict=True)  # without the warm-up
        figures[name] = {
            "searches a second": len(wall) / sum(wall),
            "search p50, ms": 1000 * median(wall),
            "search p50, CPU ms": 1000 * median(cpu),
        }
    return figures


def _search(name: str, memory: Any, question: str) -> Any:
    if name == "mem0":
        return memory.search(question, top_k=10, filters={"user_id": USER}, threshold=0.0)
    return memory.search(question, user_id=USER, limit=10, kinds="memory")


def main() -> int:
    """Run both; return 1 if memrecall is slower in anything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.update(SWITCHES)
    texts, questions = invented(options.messages), make_questions(options.searches)
    say("embedding")
    embedder = KnownVectors([WARM_UP, *texts, *questions, *BACKGROUND])
    figures: dict[str, Json] = {}
    with ExitStack() as stack:
        memories = {}
        for name, make in (("memrecall", open_memrecall), ("mem0", open_mem0)):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            memories[name], close = make(Path(folder), embedder)
            stack.callback(close)
            figures[name] = measure_adds(name, memories[name], texts)
        for name, searches in measure_searches(memories, questions).items():
            figures[name] |= searches
    versions = {"memrecall": version("memrecall-agent"), "mem0": version("mem0ai")}
    print(f"{options.messages} messages, {options.searches} searches, {versions}")
    behind = False
    for figure, memrecall_value in figures["memrecall"].items():
        mem0_value = figures["mem0"][figure]
        ratio = memrecall_value / mem0_value
        times = 1 / ratio if figure.endswith("ms") else ratio
        behind |= times < 1
        print(
            f"{figure:32} memrecall {number(memrecall_value):>10}   mem0 {number(mem0_value):>10}"
            f"   {times:.1f} times as fast"
        )
    if options.json:
        options.json.write_text(json.dumps({"versions": versions, "figures": figures}, indent=1))
    return int(behind)


if __name__ == "__main__":
    sys.exit(main())
