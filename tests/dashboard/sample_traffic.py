"""A week of a service's counters, made up, for pictures."""

import random
from datetime import UTC, datetime, timedelta

from memrecall.server.metrics import confidence_label, latency_label
from memrecall.store import Counters

_QUARTERS = 7 * 24 * 4
_LEAKS = ("dsml", "hermes", "llama_json")
_ENDS = ("handoff", "seconds", "model_failed", "no_tool_support")


async def add_traffic(counters: Counters, seed: int = 3) -> None:
    """Count as a service does that is busy by day; it ends with what is stored now."""
    chance = random.Random(seed)  # noqa: S311 -- pictures
    now, levels = datetime.now(UTC), await counters.measure_levels()
    for quarter in range(_QUARTERS + 1):
        at = now - timedelta(minutes=15 * (_QUARTERS - quarter))
        await counters.add(_quarter(chance, busy=5 if 8 <= at.hour < 20 else 1), at, 30)
        share = 0.4 + 0.6 * quarter / _QUARTERS
        grown = {name: round(level * share) for name, level in levels.items()}
        await counters.set_levels(grown, at, 30)


def _quarter(chance: random.Random, busy: int) -> dict[tuple[str, str], tuple[int, float]]:
    counted: dict[tuple[str, str], tuple[int, float]] = {}

    def add(name: str, label: str) -> None:
        counted[name, label] = (counted.get((name, label), (0, 0.0))[0] + 1, 0.0)

    for _ in range(chance.randint(0, 6 * busy)):
        add("searches", chance.choice(("lexical", "semantic", "neighbors")))
        add("search_seconds", latency_label(chance.lognormvariate(-4.5, 0.8)))
    for _ in range(chance.randint(0, 2 * busy)):
        add("recalls", chance.choices(_ENDS, (92, 3, 3, 2))[0])
        add("recall_seconds", latency_label(chance.lognormvariate(-1.0, 0.9)))
        add("iterations", chance.choices("123", (7, 2, 1))[0])
        add("windows", chance.choices(("5", "10", "20"), (7, 2, 1))[0])
        add("confidence", confidence_label(chance.betavariate(5, 2)))
        add("abstained", chance.choices(("yes", "no"), (1, 8))[0])
    if chance.random() < 0.1:
        add("leaks", chance.choice(_LEAKS))
    if chance.random() < 0.04:
        add("errors", "503")
    return counted
