"""The work of the leak filter grows linearly with the text, for any text."""

import itertools
from functools import cache

import pytest

from memrecall.text import LeakFilter
from memrecall.text.leaks import LeakMode
from memrecall.text.leaks.calls import MAX_JSON_LENGTH
from tests.cases import check_each
from tests.counting import Characters, count_calls, counting_calls

from .leak_texts import ADVERSARIAL, CHUNK, MODES, TOOLS, fill, read_ordinary, stream

pytestmark = pytest.mark.texts

SAMPLE = 16_000
PART = MAX_JSON_LENGTH  # characters, the most that is ever held back
read_texts = cache(read_ordinary)  # not on import: it filters all documents
# The most function calls for four characters; some texts have more marks than documents.
CALLS = {"list of spans": 44, "stray backticks": 36}
DOCUMENT_CALLS = 32


def test_ordinary_text_in_small_chunks_takes_few_calls() -> None:
    def check(case: tuple[str, LeakMode]) -> None:
        name, mode = case
        text = fill(read_texts()[name], SAMPLE)
        assert stream(text, mode) == text  # also builds the automaton for the text
        calls = count_calls(lambda: stream(text, mode))
        assert calls / (SAMPLE / CHUNK) < CALLS.get(name, DOCUMENT_CALLS)

    check_each([(name, mode) for name in read_texts() for mode in MODES], check)


def count_parts(pattern: str, mode: LeakMode) -> list[int]:
    """Count the characters used for each of three equal parts of a text, read by one filter."""
    whole = CHUNK * len(pattern)  # repetitions of the pattern in whole chunks
    size = -(-PART // whole) * whole
    text, counts = fill(pattern, 3 * size), []
    stream(text, mode)  # builds the automaton for the text
    leaks = LeakFilter(TOOLS, reasoning="auto", mode=mode)
    for start in range(0, len(text), size):
        used = Characters()
        with counting_calls(used):
            for at in range(start, start + size, CHUNK):
                leaks.feed(text[at : at + CHUNK])
        counts.append(used.number)
    return counts


def test_adversarial_text_takes_linear_work() -> None:
    def check(case: tuple[str, LeakMode]) -> None:
        name, mode = case
        _, second, third = count_parts(ADVERSARIAL[name], mode)
        assert third < 1.2 * second  # quadratic work would be 1.67 times as much

    # Both modes of every text take a minute; `benchmarks/leaks.py` measures them in strict mode.
    modes = itertools.cycle(MODES)
    check_each([(name, next(modes)) for name in ADVERSARIAL], check)
