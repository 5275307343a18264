"""What is done for a text grows with the text and no faster, whatever the text is made of."""

import pytest

from benchmarks.leaks import (
    ADVERSARIAL,
    CHUNK,
    COST,
    GROWTH,
    MEGABYTE,
    MODES,
    TOOLS,
    drain,
    fill,
    measure_cost,
    measure_growth,
    read_ordinary,
    stream,
)
from memrecall.text import LeakFilter
from memrecall.text.leaks.json_calls import MAX_JSON_LENGTH
from memrecall.text.leaks.matchers import Reasoning
from tests.cases import check_each
from tests.counting import Characters, count_calls, counted

BUSY = 2.0  # how much a busy machine may disturb a ratio of CPU times
TRIES = 3  # a busy machine disturbs some of them
SAMPLE = 16_000
PART = MAX_JSON_LENGTH  # characters: no more is ever held back
TEXTS = read_ordinary()
# Calls of functions for four characters, at most; some have more marks a line than any document.
CALLS = {"English prose": 6, "list of spans": 20, "stray backticks": 20}
CALLS_OF_DOCUMENTS = 14


def test_ordinary_text_in_small_chunks_takes_few_calls() -> None:
    def check(case: tuple[str, Reasoning]) -> None:
        name, mode = case
        text = fill(TEXTS[name], SAMPLE)
        assert stream(text, mode) == text  # and the automaton is made for what is in it
        calls = count_calls(lambda: stream(text, mode))
        assert calls / (SAMPLE / CHUNK) < CALLS.get(name, CALLS_OF_DOCUMENTS)

    check_each([(name, mode) for name in TEXTS for mode in MODES], check)


def count_parts(pattern: str) -> list[int]:
    """Count the characters used for each of three equal parts of a text, read by one filter."""
    whole = CHUNK * len(pattern)  # repetitions of the pattern in whole chunks
    size = -(-PART // whole) * whole
    text, leaks, counts = fill(pattern, 3 * size), LeakFilter(TOOLS), []
    drain(text)  # makes the automaton for what is in it
    for start in range(0, len(text), size):
        used = Characters()
        with counted(used):
            for at in range(start, start + size, CHUNK):
                leaks.feed(text[at : at + CHUNK])
        counts.append(used.number)
    return counts


def test_adversarial_text_takes_linear_work() -> None:
    def check(name: str) -> None:
        _, second, third = count_parts(ADVERSARIAL[name])
        assert third < 1.2 * second  # where work is quadratic, 1.67 times as much

    check_each(ADVERSARIAL, check)


def grows_linearly(pattern: str, size: int) -> bool:
    return any(measure_growth(pattern, size, runs=1) < GROWTH * BUSY for _ in range(TRIES))


@pytest.mark.long
@pytest.mark.parametrize("name", TEXTS)
def test_filtering_a_megabyte_in_chunks_costs_little_more_than_copying(name: str) -> None:
    text = fill(TEXTS[name], MEGABYTE)
    for mode in MODES:
        assert any(measure_cost(text, mode, runs=1) < COST * BUSY for _ in range(TRIES)), mode


@pytest.mark.long
@pytest.mark.parametrize("name", TEXTS)
def test_time_grows_linearly_up_to_ten_megabytes(name: str) -> None:
    assert grows_linearly(TEXTS[name], MEGABYTE)


@pytest.mark.long
def test_adversarial_text_takes_linear_time() -> None:
    def check(name: str) -> None:
        assert grows_linearly(ADVERSARIAL[name], MEGABYTE // 100)

    check_each(ADVERSARIAL, check)
