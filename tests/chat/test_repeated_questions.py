"""Stored questions and answers do not outrank the messages that they are about."""

import json
from typing import Any

import pytest

from memrecall import Scope, recall
from memrecall.agent.trace import ResultEvent
from memrecall.chat import SingleChat, ToolResult
from memrecall.memory import Library
from memrecall.testing import ScriptedClient, say
from memrecall.types import NewMessage, Role

from .chat_helpers import make_options

USER = "xiao"
SHRIMP = "我不吃辣，海鲜也过敏，上次吃了虾脖子肿了一圈。"
CONVERSATION = (
    ("我下周去成都出差。", "好的，记下了。"),
    (SHRIMP, "好的，都排除。"),
    ("阳台上的薄荷又长高了。", "可以剪一些泡茶。"),
    ("显示器换成了 27 寸的。", "眼睛会舒服些。"),
)


@pytest.fixture
async def chat_library(semantic_library: Library) -> Library:
    messages = [
        NewMessage(message_id=f"m{at}{role.value[0]}", role=role, content=text)
        for at, pair in enumerate(CONVERSATION)
        for role, text in zip((Role.USER, Role.ASSISTANT), pair, strict=True)
    ]
    await semantic_library.add_messages(Scope(USER, session_id="before"), messages)
    await semantic_library.vectors.settle()
    return semantic_library


async def forced_recall_events(
    library: Library, session: str, words: str, client: Any
) -> list[Any]:
    """Return the events that the forced recall of a turn gives the model."""
    chat = SingleChat(library, Scope(USER, session_id=session), client, options=make_options())
    results = [event async for event in chat.stream(words) if isinstance(event, ToolResult)]
    events: list[Any] = json.loads(results[0].content)["events"]
    return events


@pytest.mark.parametrize("words", ["我吃了虾会怎样来着？", "我吃虾过敏", "我对海鲜过敏吗？"])
async def test_repeated_question_is_answered_each_time(chat_library: Library, words: str) -> None:
    for day in range(4):
        client = ScriptedClient([say("你不吃辣，海鲜过敏。")])
        events = await forced_recall_events(chat_library, f"day{day}", words, client)
        assert SHRIMP in [event["text"] for event in events]
        assert words not in [event["text"] for event in events]


async def test_answer_ranks_below_its_sources(chat_library: Library) -> None:
    answer = "你对海鲜过敏，也不吃辣。"
    for day in range(3):
        await forced_recall_events(
            chat_library, f"day{day}", "我对海鲜过敏吗？", ScriptedClient([say(answer)])
        )
    result = await recall("海鲜过敏是怎么回事？", user_id=USER, library=chat_library)
    search_event = next(event for event in result.trace.events if isinstance(event, ResultEvent))
    hits = (search_event.output or {})["results"]
    texts = [line["content_preview"] for line in hits]
    assert texts.count(answer) == 1
    assert texts.index(SHRIMP) < texts.index(answer)
    assert "m1u" in hits[texts.index(answer)]["made_from"]


async def test_rules_do_not_quote_their_own_answers(chat_library: Library) -> None:
    answers = []
    for day in range(3):
        chat = SingleChat(chat_library, Scope(USER, session_id=f"day{day}"), options=make_options())
        answers.append((await chat.answer("我对海鲜过敏吗？")).text)
    assert len(set(answers)) == 1
    assert answers[0].count("“") == 1
    assert SHRIMP in answers[0]


async def test_statement_with_question_word_is_quoted(semantic_library: Library) -> None:
    message = NewMessage(role=Role.USER, content="赵磊吃素，老板什么都吃。")
    await semantic_library.add_messages(Scope(USER, session_id="before"), [message])
    await semantic_library.vectors.settle()
    answer = await SingleChat(
        semantic_library, Scope(USER, session_id="now"), options=make_options()
    ).answer("赵磊吃什么？")
    assert "赵磊吃素" in answer.text
