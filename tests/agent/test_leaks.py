"""Detection of tool calls that a model wrote as text."""

import logging

import pytest

from memrecall.agent.loop import has_leaked_call

from ..cases import check_each

CALLS = (
    '<tool_call>{"name": "handoff", "arguments": {}}</tool_call>',
    '我先查一下。\n{"tool": "search_memories", "arguments": {"query": "数据库"}}',
    "functions.handoff {}",
    'search_memories(query="database")',
    "Action: search_memories\nAction Input: database",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>handoff<｜tool▁sep｜>{}",
    "<think>I should search.</think><tool_call>\n<function=search_memories>",
)
WORDS = (
    "It is port 5433.",
    "用户说的是数据库配置。",
    "I would use the tool search_memories for that.",
    "<think>Shall I write <tool_call>{}</tool_call>?</think>It is port 5433.",
    "The user quoted `<tool_call>` on 3 May.",
)


def test_leaked_call_is_detected_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def check(text: str) -> None:
        caplog.clear()
        assert has_leaked_call(text, "some-model")
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        assert "some-model" in record.getMessage()
        assert "database" not in record.getMessage()

    check_each(CALLS, check)


def test_plain_text_is_not_a_leaked_call(caplog: pytest.LogCaptureFixture) -> None:
    def check(text: str) -> None:
        caplog.clear()
        assert not has_leaked_call(text, "some-model")
        assert caplog.records == []

    check_each(WORDS, check)


def test_unknown_tool_name_of_a_leak_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert has_leaked_call('<invoke name="my_secret"><parameter name="x">', "some-model")
    assert "my_secret" not in caplog.text
