"""Recorded extractions replay to the same results, byte for byte, and none is orphaned."""

import json

from memrecall.model.cassette import ReplayClient
from tests.cases import check_each, check_each_async

from .scenarios import FOLDER, SCENARIOS, result_text, run

AGAIN = "run `make cassettes` if the change is meant"


def test_every_cassette_has_a_scenario_and_every_scenario_a_cassette() -> None:
    wanted = {f"{name}{end}" for name in SCENARIOS for end in (".jsonl", ".result.json")}
    assert {file.name for file in FOLDER.iterdir()} == wanted, AGAIN


async def test_a_cassette_replays_to_its_result() -> None:
    async def check(name: str) -> None:
        client = ReplayClient(FOLDER / f"{name}.jsonl")
        results = await run(SCENARIOS[name], client)
        client.assert_exhausted()
        assert result_text(results) == (FOLDER / f"{name}.result.json").read_text("utf-8"), AGAIN

    await check_each_async(SCENARIOS, check)


DECIDED_BY: list[tuple[str, list[str]]] = [
    ("standard.en", ["model", "model", "model", "model"]),
    ("standard.zh", ["model", "rules", "model", "model"]),  # nothing known, nothing asked
    ("mended.en", ["model", "model", "model", "model"]),
    ("mended.zh", ["model", "model", "model", "model"]),
    ("useless.en", ["rules", "rules", "rules", "rules"]),
    ("useless.zh", ["rules", "rules", "rules", "rules"]),
    ("offline.en", ["rules", "rules", "rules", "rules"]),
    ("offline.zh", ["rules", "rules", "rules", "rules"]),
]


def test_each_shows_what_it_is_named_after() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        name, by = case
        results = json.loads((FOLDER / f"{name}.result.json").read_text("utf-8"))
        assert [result["by"] for result in results.values()] == by
        problems = [result["problem"] for result in results.values()]
        wanted = name.startswith("useless")
        assert [bool(problem) for problem in problems] == [wanted] * 4, problems
        assert results["facts"]["facts"]

    check_each(DECIDED_BY, check)


ASKED: list[tuple[str, int]] = [
    ("standard.en", 4),
    ("standard.zh", 3),
    ("mended.en", 5),
    ("mended.zh", 5),
    ("useless.en", 8),
    ("useless.zh", 8),
]


def test_each_asks_as_often_as_it_must() -> None:
    def check(case: tuple[str, int]) -> None:
        name, asked = case
        assert len((FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()) == asked

    check_each(ASKED, check)
