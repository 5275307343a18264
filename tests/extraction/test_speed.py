"""The rules keep up with a chat: what is done grows with what is said, and no faster."""

import time
from collections.abc import Sequence
from datetime import UTC

import pytest

from memrecall.extraction import RuleExtractor, Utterance
from memrecall.extraction.rules.sentences import MAX_MESSAGE
from tests.cases import check_each
from tests.counting import count_calls

from .talking import NOW, talk

MESSAGES = talk(
    *(
        "I moved to Berlin last week and I work as a nurse. What should I cook tonight?",
        "我叫李明，在北京大学学习计算机科学。下周三我要去北京出差，帮我订个酒店吧",
        "Thanks, that is a great idea! Could you explain how the second step works in more detail?",
        "今天天气不错，我们去公园走走吧，顺便买点水果回来",
        "assistant| Here are three ideas: soup, salad, and a stew. Which one do you like?",
    )
    * 200
)


TEXTS = ["I ", "my ", "我", "我们的", "a, and I ", "on Friday ", "，我住在", "<a>", '"', "x"]


def read(said: Sequence[Utterance]) -> None:
    """Extract facts; nothing in it waits, so it is run without an event loop."""
    with pytest.raises(StopIteration):
        RuleExtractor().facts(said, now=NOW, zone=UTC).send(None)


def fill(part: str, size: int) -> list[Utterance]:
    return talk("I live in " + (part * size)[:size])


def test_a_message_takes_a_bounded_number_of_calls() -> None:
    read(MESSAGES[:10])  # dictionaries load once
    few = count_calls(lambda: read(MESSAGES[:50]))
    many = count_calls(lambda: read(MESSAGES[:200]))
    assert many < 4.4 * few
    assert many / 200 < 1_500


def test_long_texts_take_linear_work() -> None:
    def check(part: str) -> None:
        read(fill(part, 100))
        few = count_calls(lambda: read(fill(part, 1_500)))
        assert count_calls(lambda: read(fill(part, 6_000))) < 4.4 * few

    check_each(TEXTS, check)


def test_no_more_than_a_part_of_a_long_text_is_read() -> None:
    def check(part: str) -> None:
        some = count_calls(lambda: read(fill(part, MAX_MESSAGE)))
        assert count_calls(lambda: read(fill(part, 20 * MAX_MESSAGE))) < 1.1 * some

    check_each(["我", '"', "x"], check)


def seconds(said: Sequence[Utterance]) -> float:
    start = time.process_time()
    read(said)
    return time.process_time() - start


@pytest.mark.long
def test_a_thousand_messages_take_linear_time() -> None:
    assert len(MESSAGES) == 1_000
    read(MESSAGES[:10])
    fastest = min(seconds(MESSAGES[:200]) for _ in range(3))
    assert min(seconds(MESSAGES) for _ in range(3)) < 10 * fastest  # quadratic: 25 times


@pytest.mark.long
def test_no_text_is_read_for_long() -> None:
    def check(part: str) -> None:
        some, more = fill(part, MAX_MESSAGE), fill(part, 20 * MAX_MESSAGE)
        fastest = min(seconds(some) for _ in range(3))
        assert min(seconds(more) for _ in range(3)) < 10 * fastest

    check_each(TEXTS, check)
