"""Recorded extractions replay to the same results, byte for byte, and none is orphaned."""

import json

import pytest

from memrecall.model.cassette import ReplayClient

from .scenarios import FOLDER, SCENARIOS, result_text, run

AGAIN = "run `make cassettes` if the change is meant"


def test_every_cassette_has_a_scenario_and_every_scenario_a_cassette() -> None:
    wanted = {f"{name}{end}" for name in SCENARIOS for end in (".jsonl", ".result.json")}
    assert {file.name for file in FOLDER.iterdir()} == wanted, AGAIN


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_cassette_replays_to_its_result(name: str) -> None:
    client = ReplayClient(FOLDER / f"{name}.jsonl")
    results = await run(SCENARIOS[name], client)
    client.assert_exhausted()
    assert result_text(results) == (FOLDER / f"{name}.result.json").read_text("utf-8"), AGAIN


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("standard.en", ["model", "model", "model", "model"]),
        ("mended.en", ["model", "model", "model", "model"]),
        ("useless.en", ["rules", "rules", "rules", "rules"]),
        ("offline.en", ["rules", "rules", "rules", "rules"]),
    ],
)
def test_each_shows_what_it_is_named_after(name: str, by: list[str]) -> None:
    results = json.loads((FOLDER / f"{name}.result.json").read_text("utf-8"))
    assert [result["by"] for result in results.values()] == by
    problems = [result["problem"] for result in results.values()]
    assert all(problems) == (name == "useless.en"), problems
    assert results["facts"]["facts"]
