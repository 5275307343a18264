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
        ("standard.zh", ["model", "rules", "model", "model"]),  # nothing known, nothing asked
        ("mended.en", ["model", "model", "model", "model"]),
        ("mended.zh", ["model", "model", "model", "model"]),
        ("useless.en", ["rules", "rules", "rules", "rules"]),
        ("useless.zh", ["rules", "rules", "rules", "rules"]),
        ("offline.en", ["rules", "rules", "rules", "rules"]),
        ("offline.zh", ["rules", "rules", "rules", "rules"]),
    ],
)
def test_each_shows_what_it_is_named_after(name: str, by: list[str]) -> None:
    results = json.loads((FOLDER / f"{name}.result.json").read_text("utf-8"))
    assert [result["by"] for result in results.values()] == by
    problems = [result["problem"] for result in results.values()]
    wanted = name.startswith("useless")
    assert [bool(problem) for problem in problems] == [wanted] * 4, problems
    assert results["facts"]["facts"]


@pytest.mark.parametrize(
    ("name", "asked"),
    # An unusable answer is asked for once more: a broken list of facts is mended without.
    [
        ("standard.en", 4),
        ("standard.zh", 3),
        ("mended.en", 5),
        ("mended.zh", 5),
        ("useless.en", 8),
        ("useless.zh", 8),
    ],
)
def test_each_asks_as_often_as_it_must(name: str, asked: int) -> None:
    assert len((FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()) == asked
