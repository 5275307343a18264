"""mem0's documented calls answer in mem0's shapes; the differences that stay are documented."""

import json
from pathlib import Path

import pytest

from .mem0_calls import DIFFERENCES, RECORD, compare, record_memrecall, unexpected

ROOT = Path(__file__).parents[2]


@pytest.mark.concurrent
async def test_answers_have_the_shapes_of_mem0() -> None:
    recorded = json.loads(RECORD.read_text("utf-8"))
    assert unexpected(compare(recorded, await record_memrecall())) == []


def test_every_difference_is_documented() -> None:
    page = " ".join((ROOT / "docs" / "mem0.md").read_text("utf-8").split())
    assert [reason for reason in DIFFERENCES.values() if reason not in page] == []
