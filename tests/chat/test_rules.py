"""Turns with no model at all: rules answer."""

from memrecall.chat import SingleChat
from memrecall.memory import Library
from memrecall.scope import Scope
from tests.cases import check_each_async

from .stage import (
    ASKED_EN,
    LIN,
    LISBON,
    NOW,
    PEANUTS,
    patient,
)


async def test_rules_quote_messages(sensible: Library) -> None:
    cases: list[tuple[str, str]] = [
        ("我对什么东西过敏来着？", f"2026-03-02 你说过：“{PEANUTS}”"),
        (ASKED_EN, f"On 2026-03-04 you said: “{LISBON}”"),
        ("你好", "好的。"),
        ("I bought a bicycle today.", "All right."),
        ("我不喜欢香菜", "好的。"),
    ]

    async def check(case: tuple[str, str]) -> None:
        asked, answer = case
        end = await SingleChat(sensible, LIN, options=patient(), clock=lambda: NOW).answer(asked)
        assert answer in end.text.splitlines()
        assert (end.model, end.degraded) == ("memrecall-offline", False)

    await check_each_async(cases, check)


async def test_rules_say_unknown_without_evidence(lite: Library) -> None:
    nobody = SingleChat(lite, Scope("nobody"), options=patient())
    assert (await nobody.answer("What is my passport number?")).text.startswith("I do not know")
    assert (await nobody.answer("我的护照号是多少？")).text.startswith("我不知道")


async def test_rules_answer_repeated_questions_about_new_messages(sensible: Library) -> None:
    chat = SingleChat(sensible, Scope("new"), options=patient())
    await chat.answer("My cat is called Momo.")
    for asked in ("What is my cat called?", "What was my cat called?"):
        assert "you said: “My cat is called Momo.”" in (await chat.answer(asked)).text
