"""Random usage counters of one week, for the screenshots."""

import random
from datetime import UTC, datetime, timedelta

from memrecall.server.metrics import confidence_label, latency_label
from memrecall.store import Counters

_QUARTERS = 7 * 24 * 4
_LEAKS = ("dsml", "hermes", "llama_json")
_ENDS = ("handoff", "seconds", "model_failed", "no_tool_support")


async def add_traffic(counters: Counters, seed: int = 3) -> None:
    """Store counters of a week that is busy by day, with levels that grow to the current ones."""
    generator = random.Random(seed)  # noqa: S311 -- not for security
    now, levels = datetime.now(UTC), await counters.measure_levels()
    for quarter in range(_QUARTERS + 1):
        at = now - timedelta(minutes=15 * (_QUARTERS - quarter))
        await counters.add(_count_quarter(generator, busy=5 if 8 <= at.hour < 20 else 1), at, 30)
        share = 0.4 + 0.6 * quarter / _QUARTERS
        scaled = {name: round(level * share) for name, level in levels.items()}
        await counters.set_levels(scaled, at, 30)


def _count_quarter(generator: random.Random, busy: int) -> dict[tuple[str, str], tuple[int, float]]:
    counts: dict[tuple[str, str], tuple[int, float]] = {}

    def add(name: str, label: str) -> None:
        counts[name, label] = (counts.get((name, label), (0, 0.0))[0] + 1, 0.0)

    for _ in range(generator.randint(0, 6 * busy)):
        add("searches", generator.choice(("lexical", "semantic", "neighbors")))
        add("search_seconds", latency_label(generator.lognormvariate(-4.5, 0.8)))
    for _ in range(generator.randint(0, 2 * busy)):
        add("recalls", generator.choices(_ENDS, (92, 3, 3, 2))[0])
        add("recall_seconds", latency_label(generator.lognormvariate(-1.0, 0.9)))
        add("iterations", generator.choices("123", (7, 2, 1))[0])
        add("windows", generator.choices(("5", "10", "20"), (7, 2, 1))[0])
        add("confidence", confidence_label(generator.betavariate(5, 2)))
        add("abstained", generator.choices(("yes", "no"), (1, 8))[0])
    if generator.random() < 0.1:
        add("leaks", generator.choice(_LEAKS))
    if generator.random() < 0.04:
        add("errors", "503")
    return counts
