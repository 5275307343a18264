"""The rules keep up with a chat: a thousand messages in well under two seconds of one core."""

import time
from datetime import UTC

import pytest

from memrecall.memory.extraction import RuleExtractor

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


async def measure() -> float:
    start = time.process_time()
    await RuleExtractor().facts(MESSAGES, now=NOW, zone=UTC)
    return time.process_time() - start


async def test_a_thousand_messages() -> None:
    assert len(MESSAGES) == 1_000
    await RuleExtractor().facts(MESSAGES[:10], now=NOW, zone=UTC)  # dictionaries load once
    assert min([await measure(), await measure()]) < 2.0


@pytest.mark.parametrize(
    "text",
    [
        "I " * 20_000,
        "my " * 20_000,
        "我" * 20_000,
        "我们的" * 10_000,
        "a, and I " * 5_000,
        "on Friday " * 5_000,
        "，我住在" * 5_000,
        "<a>" * 10_000,
        '"' * 20_000,
        "I live in " + "x" * 100_000,
    ],
)
async def test_no_text_is_read_for_long(text: str) -> None:
    start = time.process_time()
    await RuleExtractor().facts(talk(text), now=NOW, zone=UTC)
    assert time.process_time() - start < 5.0
