"""Time grows with the text and no faster, whatever the text is made of."""

import pytest

from benchmarks.leaks import (
    ADVERSARIAL,
    COST,
    GROWTH,
    MEGABYTE,
    MODES,
    fill,
    measure_cost,
    measure_growth,
    read_ordinary,
    stream,
)
from memrecall.text.leaks.watches import Reasoning

BUSY = 1.5  # how much a busy machine may disturb a ratio of CPU times
TRIES = 3  # a busy machine disturbs some of them
DENSE = {"list of spans", "stray backticks"}  # more marks a line than in any document
SAMPLE = 50_000
TEXTS = read_ordinary()


def grows_linearly(pattern: str, size: int) -> bool:
    return any(measure_growth(pattern, size, runs=1) < GROWTH * BUSY for _ in range(TRIES))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TEXTS)
def test_a_megabyte_in_small_chunks_costs_little_more_than_copying_it(
    name: str, mode: Reasoning
) -> None:
    text = fill(TEXTS[name], MEGABYTE)
    assert stream(text[:SAMPLE], mode) == text[:SAMPLE]
    bound = COST * (BUSY if name in DENSE else 1)
    assert any(measure_cost(text, mode, runs=1) < bound for _ in range(TRIES))


def test_ten_megabytes_take_ten_times_one() -> None:
    assert grows_linearly(TEXTS["English prose"], MEGABYTE)


@pytest.mark.long
@pytest.mark.parametrize("name", TEXTS)
def test_ten_megabytes_of_anything_take_ten_times_one(name: str) -> None:
    assert grows_linearly(TEXTS[name], MEGABYTE)


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_text_that_is_made_to_hurt_takes_linear_time(name: str) -> None:
    assert grows_linearly(ADVERSARIAL[name], MEGABYTE // 100)
