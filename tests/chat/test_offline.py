"""Chat turns without a model: the rules answer."""

from memrecall.chat import SingleChat
from memrecall.memory import Library
from memrecall.scope import Scope
from tests.cases import check_each_async

from .chat_helpers import (
    LIN,
    LISBON,
    NOW,
    PEANUTS,
    QUESTION_EN,
    make_options,
)


async def test_rules_quote_messages(semantic_library: Library) -> None:
    cases: list[tuple[str, str]] = [
        ("我对什么东西过敏来着？", f"2026-03-02 你说过：“{PEANUTS}”"),
        (QUESTION_EN, f"On 2026-03-04 you said: “{LISBON}”"),
        ("你好", "好的。"),
        ("I bought a bicycle today.", "All right."),
        ("我不喜欢香菜", "好的。"),
    ]

    async def check(case: tuple[str, str]) -> None:
        question, answer = case
        end = await SingleChat(
            semantic_library, LIN, options=make_options(), clock=lambda: NOW
        ).answer(question)
        assert answer in end.text.splitlines()
        assert (end.model, end.degraded) == ("memrecall-offline", False)

    await check_each_async(cases, check)


async def test_rules_say_unknown_without_evidence(sqlite_library: Library) -> None:
    chat = SingleChat(sqlite_library, Scope("nobody"), options=make_options())
    assert (await chat.answer("What is my passport number?")).text.startswith("I do not know")
    assert (await chat.answer("我的护照号是多少？")).text.startswith("我不知道")


async def test_rules_answer_repeated_questions_about_new_messages(
    semantic_library: Library,
) -> None:
    chat = SingleChat(semantic_library, Scope("new"), options=make_options())
    await chat.answer("My cat is called Momo.")
    for question in ("What is my cat called?", "What was my cat called?"):
        assert "you said: “My cat is called Momo.”" in (await chat.answer(question)).text
