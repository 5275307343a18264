"""Recorded extractions replay to the same results, byte for byte, and none is orphaned."""

import json

from memrecall.model.cassette import ReplayClient
from tests.cases import check_each, check_each_async

from .scenarios import FOLDER, SCENARIOS, result_text, run

HINT = "run `make cassettes` if the change is meant"


def test_cassettes_match_scenarios() -> None:
    expected = {f"{name}{end}" for name in SCENARIOS for end in (".jsonl", ".result.json")}
    assert {file.name for file in FOLDER.iterdir()} == expected, HINT


async def test_replay_gives_recorded_result() -> None:
    async def check(name: str) -> None:
        client = ReplayClient(FOLDER / f"{name}.jsonl")
        results = await run(SCENARIOS[name], client)
        client.assert_exhausted()
        assert result_text(results) == (FOLDER / f"{name}.result.json").read_text("utf-8"), HINT

    await check_each_async(SCENARIOS, check)


SOURCES: list[tuple[str, list[str]]] = [
    ("standard.en", ["model", "model", "model", "model"]),
    ("standard.zh", ["model", "rules", "model", "model"]),  # without known memories, no model call
    ("mended.en", ["model", "model", "model", "model"]),
    ("mended.zh", ["model", "model", "model", "model"]),
    ("useless.en", ["rules", "rules", "rules", "rules"]),
    ("useless.zh", ["rules", "rules", "rules", "rules"]),
]


def test_recorded_results_name_their_source() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        name, sources = case
        results = json.loads((FOLDER / f"{name}.result.json").read_text("utf-8"))
        assert [result["by"] for result in results.values()] == sources
        problems = [result["problem"] for result in results.values()]
        expected = name.startswith("useless")
        assert [bool(problem) for problem in problems] == [expected] * 4, problems
        assert results["facts"]["facts"]

    check_each(SOURCES, check)


CALLS: list[tuple[str, int]] = [
    ("standard.en", 4),
    ("standard.zh", 3),
    ("mended.en", 5),
    ("mended.zh", 6),
    ("useless.en", 8),
    ("useless.zh", 8),
]


def test_recorded_number_of_model_calls() -> None:
    def check(case: tuple[str, int]) -> None:
        name, calls = case
        assert len((FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()) == calls

    check_each(CALLS, check)
