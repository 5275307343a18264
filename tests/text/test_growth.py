"""The work on a user's text grows with its length, whatever the text is."""

import time
from collections.abc import Iterable
from operator import attrgetter

import pytest

from tests.cases import check_each
from tests.counting import count_calls
from tests.text.growth import READERS, GeneratedText, Reader, generate_texts

pytestmark = pytest.mark.texts

WARM_UP = "我 live in 北京. \u1e9b 昨天"  # loads tables and dictionaries
FACTOR = 8  # of the text
MOST_GROWTH = 20  # quadratic work would be 64 times as much
TRIES = 3  # because a busy machine disturbs some attempts
NOISE_SECONDS = 0.01  # Shorter times say nothing.
FEW_CALLS = 5_000


def cpu_seconds(read: Reader, text: str) -> float:
    start = time.thread_time()
    read(text)
    return time.thread_time() - start


def grows_linearly(read: Reader, text: str) -> bool:
    """Return True if the CPU time of a text is linear in that of its beginning."""
    beginning = text[: len(text) // FACTOR]
    for _ in range(TRIES):
        seconds = cpu_seconds(read, text)
        if seconds < NOISE_SECONDS or seconds < MOST_GROWTH * cpu_seconds(read, beginning):
            return True
    return False


def check_growth(texts: Iterable[GeneratedText], size: int) -> None:
    for read in READERS.values():
        read(WARM_UP)

    def check(text: GeneratedText) -> None:
        content = text.make(FACTOR * size)
        slow = [name for name, read in READERS.items() if not grows_linearly(read, content)]
        assert slow == []

    check_each(texts, check)


def test_cpu_time_grows_with_the_text() -> None:
    check_growth(generate_texts([1]), 250)


def test_function_calls_grow_with_the_text() -> None:
    def check(name: str) -> None:
        read = READERS[name]
        for text in filter(attrgetter("is_repeated"), generate_texts([2])):
            content = text.make(FACTOR * 100)
            read(content)  # fills the caches of words
            few, many = (count_calls(lambda t=t: read(t)) for t in (content[:100], content))  # type: ignore[misc]
            assert many < max(MOST_GROWTH * few, FEW_CALLS), text

    check_each(READERS, check)


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("find_times", "2026年"),
        ("find_times", "last week of "),
        ("find_times", "从去年五月三日到"),
        ("search of an index", '"a b" '),
        ("search of an index", "我"),
        ("search", "我"),
        ("highlights of its words", "tea "),
        ("analyze", "\ufdfa"),
        ("snippets", "\ufdfa"),
    ],
)
def test_texts_that_once_were_slow(name: str, fragment: str) -> None:
    size = FACTOR * 1_200
    text = (fragment * size)[:size]
    READERS[name](WARM_UP)
    assert grows_linearly(READERS[name], text)
    # More than linear growth up to here would take far longer than this.
    assert any(cpu_seconds(READERS[name], text) < 2 for _ in range(TRIES))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 9))
def test_cpu_time_grows_with_a_long_text(seed: int) -> None:
    check_growth(generate_texts([seed]), 4_000)
