"""What a chat stores of questions and answers does not hide what they are about."""

import json
from typing import Any

import pytest

from memrecall import Scope, recall
from memrecall.agent.trace_events import ResultEvent
from memrecall.chat import SingleChat, ToolResult
from memrecall.memory import Library
from memrecall.testing import ScriptedClient, say
from memrecall.types import NewMessage, Role

from .stage import patient

WHO = "xiao"
SHRIMP = "我不吃辣，海鲜也过敏，上次吃了虾脖子肿了一圈。"
TALK = (
    ("我下周去成都出差。", "好的，记下了。"),
    (SHRIMP, "好的，都排除。"),
    ("阳台上的薄荷又长高了。", "可以剪一些泡茶。"),
    ("显示器换成了 27 寸的。", "眼睛会舒服些。"),
)


@pytest.fixture
async def told(library: Library) -> Library:
    said = [
        NewMessage(message_id=f"m{at}{role.value[0]}", role=role, content=text)
        for at, pair in enumerate(TALK)
        for role, text in zip((Role.USER, Role.ASSISTANT), pair, strict=True)
    ]
    await library.add_messages(Scope(WHO, session_id="before"), said)
    return library


async def events_of(library: Library, session: str, words: str, client: Any) -> list[Any]:
    """What the forced recall of a turn gives the model."""
    chat = SingleChat(library, Scope(WHO, session_id=session), client, options=patient())
    results = [event async for event in chat.stream(words) if isinstance(event, ToolResult)]
    recalled: list[Any] = json.loads(results[0].content)["events"]
    return recalled


@pytest.mark.parametrize("words", ["我吃了虾会怎样来着？", "我吃虾过敏", "我对海鲜过敏吗？"])
async def test_repeated_question_is_answered_each_time(told: Library, words: str) -> None:
    for day in range(4):
        client = ScriptedClient([say("你不吃辣，海鲜过敏。")])
        events = await events_of(told, f"day{day}", words, client)
        assert SHRIMP in [event["text"] for event in events]
        assert words not in [event["text"] for event in events]


async def test_answer_ranks_below_its_sources(told: Library) -> None:
    answer = "你对海鲜过敏，也不吃辣。"
    for day in range(3):
        await events_of(told, f"day{day}", "我对海鲜过敏吗？", ScriptedClient([say(answer)]))
    result = await recall("海鲜过敏是怎么回事？", user_id=WHO, library=told)
    searched = next(event for event in result.trace.events if isinstance(event, ResultEvent))
    found = (searched.output or {})["results"]
    texts = [line["content_preview"] for line in found]
    assert texts.count(answer) == 1
    assert texts.index(SHRIMP) < texts.index(answer)
    assert "m1u" in found[texts.index(answer)]["made_from"]


async def test_rules_do_not_quote_their_own_answers(told: Library) -> None:
    answers = []
    for day in range(3):
        chat = SingleChat(told, Scope(WHO, session_id=f"day{day}"), options=patient())
        answers.append((await chat.answer("我对海鲜过敏吗？")).text)
    assert len(set(answers)) == 1
    assert answers[0].count("“") == 1
    assert SHRIMP in answers[0]


async def test_statement_with_question_word_is_quoted(library: Library) -> None:
    said = NewMessage(role=Role.USER, content="赵磊吃素，老板什么都吃。")
    await library.add_messages(Scope(WHO, session_id="before"), [said])
    answer = await SingleChat(library, Scope(WHO, session_id="now"), options=patient()).answer(
        "赵磊吃什么？"
    )
    assert "赵磊吃素" in answer.text
