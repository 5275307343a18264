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


def test_recorded_results_are_the_models_unless_it_is_useless() -> None:
    def check(name: str) -> None:
        results = json.loads((FOLDER / f"{name}.result.json").read_text("utf-8"))
        extracted, summary = results["extracted"], results["summary"]
        is_useless = name.startswith("useless")
        assert bool(extracted["problem"]) == is_useless
        assert bool(extracted["dropped"]) == name.startswith("verified")
        assert summary["by"] == ("text" if is_useless else "model")
        assert bool(extracted["facts"]) == (not is_useless and name != "verified.zh")

    check_each(SCENARIOS, check)


CALLS = {"standard": 2, "verified": 3, "mended.en": 2, "mended.zh": 3, "useless": 4}


def test_recorded_number_of_model_calls() -> None:
    def check(name: str) -> None:
        calls = CALLS.get(name) or CALLS[name.partition(".")[0]]
        assert len((FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()) == calls

    check_each(SCENARIOS, check)
