"""Recorded model calls replay to the same trace, and none is orphaned or stale."""

import json
from typing import Any

import pytest

from memrecall.agent import StopReason
from memrecall.errors import CassetteMismatch
from memrecall.memory import Library
from memrecall.model.cassette import ReplayClient

from ..cases import check_each, check_each_async
from .recall_helpers import on_both_engines
from .scenarios import FOLDER, SCENARIOS, run, trace_text

HOW_TO_RECORD = "run `make cassettes` if the change is meant"


def test_every_cassette_has_a_scenario_and_every_scenario_a_cassette() -> None:
    expected = {f"{name}{end}" for name in SCENARIOS for end in (".jsonl", ".trace.json")}
    assert {file.name for file in FOLDER.iterdir() if file.is_file()} == expected, HOW_TO_RECORD


@on_both_engines
async def test_every_cassette_replays_to_its_trace(message_library: Library) -> None:
    async def check(name: str) -> None:
        client = ReplayClient(FOLDER / f"{name}.jsonl")
        recall = await run(SCENARIOS[name], message_library, client)
        client.assert_exhausted()
        recorded = json.loads((FOLDER / f"{name}.trace.json").read_text("utf-8"))
        assert ignore_rounding(json.loads(trace_text(recall)), recorded) == recorded, HOW_TO_RECORD

    await check_each_async(SCENARIOS, check)


def ignore_rounding(value: Any, recorded: Any) -> Any:
    """Return a value with the recorded numbers where only rounding differs."""
    if isinstance(value, dict) and isinstance(recorded, dict):
        return {name: ignore_rounding(value[name], recorded.get(name)) for name in value}
    if isinstance(value, list) and isinstance(recorded, list) and len(value) == len(recorded):
        return list(map(ignore_rounding, value, recorded))
    are_floats = isinstance(value, float) and isinstance(recorded, float)
    return recorded if are_floats and abs(value - recorded) < 2e-4 else value


REASONS = {
    "standard.en": StopReason.HANDOFF,
    "nothing_found.zh": StopReason.HANDOFF,
    "window_expansion": StopReason.HANDOFF,
    "window_refused_twice": StopReason.OFF_TASK,
    "budget_forced_handoff": StopReason.MODEL_CALLS,
    "budget_end": StopReason.MODEL_CALLS,
    "misbehaves_text": StopReason.OFF_TASK,
    "misbehaves_leak": StopReason.NO_TOOL_SUPPORT,
    "misbehaves_silence": StopReason.OFF_TASK,
    "misbehaves_repeats": StopReason.OFF_TASK,
    "misbehaves_searches_on": StopReason.OFF_TASK,
    "misbehaves_arguments": StopReason.HANDOFF,
    "misbehaves_without_tools": StopReason.NO_TOOL_SUPPORT,
    "misbehaves_fails": StopReason.MODEL_FAILED,
}


def test_scenarios_end_as_their_names_say() -> None:
    def check(name: str) -> None:
        trace = json.loads((FOLDER / f"{name}.trace.json").read_text("utf-8"))
        assert trace["events"][-1]["stop_reason"] == REASONS[name]

    check_each(REASONS, check)


async def test_changed_conversation_is_a_located_mismatch(message_library: Library) -> None:
    client = ReplayClient(FOLDER / "standard.en.jsonl")
    with pytest.raises(CassetteMismatch, match=r"call 1 .* differs in messages: message 2"):
        await run(SCENARIOS["several_searches.en"], message_library, client)
