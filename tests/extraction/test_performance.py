"""Cost of the rules: linear in the length of the conversation, for any text."""

import math
import re
import time
from collections.abc import Sequence
from datetime import UTC
from functools import cache
from importlib.resources import files

import pytest

from memrecall.extraction import Utterance
from memrecall.extraction.quotations import MAX_MESSAGE
from memrecall.extraction.rules.extractor import _read_facts
from memrecall.extraction.sentences import MAX_SENTENCE
from tests.cases import check_each
from tests.counting import count_calls

from .transcripts import NOW, parse_turns

pytestmark = pytest.mark.texts

MESSAGES = parse_turns(
    *(
        "I moved to Berlin last week and I work as a nurse. What should I cook tonight?",
        "我叫李明，在北京大学学习计算机科学。下周三我要去北京出差，帮我订个酒店吧",
        "Thanks, that is a great idea! Could you explain how the second step works in more detail?",
        "今天天气不错，我们去公园走走吧，顺便买点水果回来",
        "assistant| Here are three ideas: soup, salad, and a stew. Which one do you like?",
    )
    * 200
)

ENGLISH = ["my ", "a, and I ", "<a>", "<a1>", '"', "“", "e.g. ", "really ", "I live in Rome. "]
CHINESE = ["我们的", "，我住在", "上周", "每", "和", "应该是", "我住在北京。"]


def extract(messages: Sequence[Utterance]) -> None:
    """Extract facts in this thread, whatever their length."""
    _read_facts(messages, NOW, UTC, ())


def repeat(part: str, size: int) -> list[Utterance]:
    return parse_turns("I live in " + (part * size)[:size])


def seconds(messages: Sequence[Utterance], limit: float = 0.0) -> float:
    """Return the processor time of one extraction, the best of up to six.

    Another program can make a run slower, never faster: the first run below `limit` is enough.
    """
    best = math.inf
    for _ in range(6 if limit else 2):
        start = time.process_time()
        extract(messages)
        best = min(best, time.process_time() - start)
        if best < limit:
            break
    return best


@cache
def baseline() -> float:
    """Return the time of an ordinary message, below which measurements are noise."""
    extract(MESSAGES[:10])
    return seconds(MESSAGES[:5])


def check_sentence_growth(part: str) -> None:
    """Grow the text by half up to a sentence, so that exponential growth fails early."""
    size, previous = 10.0, baseline()
    while size <= MAX_SENTENCE:
        limit = 8 * max(previous, baseline())
        current = seconds(repeat(part, int(size)), limit)
        assert current < limit, f"{size:.0f} characters"
        size, previous = 1.5 * size, current


def check_message_growth(part: str) -> None:
    """Extract from eight times the text: linear work takes 8 times as long, quadratic 64."""
    check_sentence_growth(part)
    limit = 28 * max(seconds(repeat(part, MAX_MESSAGE // 16)), baseline())
    assert seconds(repeat(part, MAX_MESSAGE // 2), limit) < limit


def table_words() -> list[str]:
    """Return every word that can start or continue a pattern of the tables."""
    tables = files("memrecall.extraction.rules") / "tables"
    texts = [file.read_text("utf-8") for folder in tables.iterdir() for file in folder.iterdir()]
    return sorted({word for text in texts for word in re.findall(r"[a-z]+|[\u4e00-\u9fff]+", text)})


def test_english_messages_take_linear_time() -> None:
    check_each(ENGLISH, check_message_growth)


def test_chinese_messages_take_linear_time() -> None:
    check_each(CHINESE, check_message_growth)


def test_repeated_table_words_take_bounded_time() -> None:
    check_each(table_words()[::120], check_sentence_growth)


@pytest.mark.long
def test_every_repeated_table_word_takes_bounded_time() -> None:
    check_each([f"{word} " for word in table_words()], check_sentence_growth)
    check_each(table_words(), check_sentence_growth)


def test_calls_grow_linearly_with_messages() -> None:
    extract(MESSAGES[:10])  # dictionaries load once
    small = count_calls(lambda: extract(MESSAGES[:50]))
    large = count_calls(lambda: extract(MESSAGES[:200]))
    assert large < 4.4 * small
    assert large / 200 < 1_600


def check_calls(part: str, size: int) -> None:
    """Count the calls for a text and for a quarter of it; quadratic work is 16 times as much."""
    extract(repeat(part, 100))
    small = count_calls(lambda: extract(repeat(part, size // 4)))
    large = count_calls(lambda: extract(repeat(part, size)))
    assert large < 4.4 * small
    assert large < 120 * size, "calls per character"


TEXTS = [*ENGLISH[:6], *CHINESE[:3]]


DATES = [
    *(
        *("2026-03-04 ", "12 December, ", "3月4日", "周四上午九点", "from 3 May to 4 May "),
        "2月29日、",
    ),
    *("下周三\nMay, 30\n", "the 19th. ", "我3月4日去北京，", "I fly to Rome on 3 May. "),
]


def test_calls_grow_linearly_with_text() -> None:
    check_each([*TEXTS, *DATES], lambda part: check_calls(part, 2_000))


def test_text_beyond_limit_is_ignored() -> None:
    def check(part: str) -> None:
        at_limit = count_calls(lambda: extract(repeat(part, MAX_MESSAGE)))
        assert count_calls(lambda: extract(repeat(part, 20 * MAX_MESSAGE))) < 1.1 * at_limit

    check_each(["我", '"', "x"], check)
