"""The CPU time of single calls in process; a script that other checkouts run too.

It uses their package, so it imports only names that all of them have. It prints a JSON object:
the median milliseconds by call.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.vectors import made_up_vectors
from memrecall.embedding import make_embedder
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.settings import Settings
from memrecall.store import Store
from memrecall.types import NewMessage, Role

ROWS = 300
CALLS = 100
_THINGS = ("green tea", "a bicycle", "jazz", "山里散步", "拿铁咖啡", "chess", "旧书店", "sourdough")
_VECTORS = made_up_vectors(ROWS, 512)
_SCOPE = Scope("ann", session_id="today")


class FreeVectors:
    """An embedder that takes no time, so that only the rest is measured."""

    model = "free"
    dimensions = _VECTORS.shape[1]

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the same vectors each time."""
        vectors: npt.NDArray[np.float32] = _VECTORS[: len(texts)]
        return vectors

    async def close(self) -> None:
        """Do nothing."""


def _message(number: int) -> NewMessage:
    thing = _THINGS[number % len(_THINGS)]
    text = f"Day {number}: I tried {thing}, number {number * 7919 % 10007}."
    return NewMessage(role=Role.USER, content=text)


def _question(number: int) -> str:
    return f"Where did I try {_THINGS[number % len(_THINGS)]}, number {number}?"


async def _median(call: Callable[[int], Awaitable[object]]) -> float:
    times = []
    for number in range(CALLS):
        started = time.process_time()
        await call(number)
        times.append((time.process_time() - started) * 1000)
    return statistics.median(times[CALLS // 5 :])  # without the warm-up


async def measure() -> dict[str, float]:
    """Measure searches, an add and the embedding of a question."""
    figures = {}
    with tempfile.TemporaryDirectory(prefix="memrecall-benchmark-") as folder:
        settings = Settings(db=f"{folder}/bench.db", cache_dir=folder)
        library = Library(await Store.open(settings.db), FreeVectors(), settings)
        await library.add_messages(_SCOPE, [_message(number) for number in range(ROWS)])
        await library.vectors.settle()
        for mode in ("keyword", "hybrid"):

            async def search(number: int) -> None:
                await library.search(Scope("ann"), SearchRequest(_question(number), mode=mode))  # noqa: B023

            figures[f"{mode} search of {ROWS} rows"] = await _median(search)
        figures["single add"] = await _median(
            lambda number: library.add_messages(_SCOPE, [_message(ROWS + number)])
        )
        await library.vectors.settle()
        await library.store.close()
    embedder = make_embedder("local")
    assert embedder is not None
    figures["embedding of a question"] = await _median(
        lambda number: embedder.embed([_question(number)])
    )
    await embedder.close()
    return figures


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure())))
