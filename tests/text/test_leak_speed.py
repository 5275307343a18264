"""Time grows with the text and no faster, whatever the text is made of."""

import pytest

from benchmarks.leaks import (
    ADVERSARIAL,
    COST,
    GROWTH,
    MEGABYTE,
    fill,
    measure_cost,
    measure_growth,
    read_ordinary,
    stream,
)

BUSY = 1.5  # how much a busy machine may disturb a ratio of CPU times
TEXTS = read_ordinary()


@pytest.mark.parametrize("name", TEXTS)
def test_a_megabyte_in_small_chunks_costs_little_more_than_copying_it(name: str) -> None:
    text = fill(TEXTS[name], MEGABYTE)
    assert stream(text) == text
    assert measure_cost(text, runs=3) < COST


@pytest.mark.parametrize("name", ["English prose", "Markdown"])
def test_ten_megabytes_take_ten_times_one(name: str) -> None:
    assert measure_growth(TEXTS[name], MEGABYTE, runs=1) < GROWTH * BUSY


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_text_that_is_made_to_hurt_takes_linear_time(name: str) -> None:
    assert measure_growth(ADVERSARIAL[name], MEGABYTE // 50, runs=2) < GROWTH * BUSY
