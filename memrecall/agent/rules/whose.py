"""Whose words a request asks for: the user's own, or the assistant's."""

import re
from typing import Literal

from memrecall.agent.rules.words import (
    SAYING_EN,
    SAYING_ZH,
    SERVING_EN,
    SERVING_ZH,
    any_of,
    ignoring_case,
)

Whose = Literal["user", "assistant"]

_PAST_ZH = (
    "(?:之前|以前|上次|上回|昨天|刚才|刚刚|那天|曾经|还|都|也|当时|最近|跟我|和我|对我|向我"
    "|[^，。？！你我]{0,6}?)"
)
_PAST_EN = "(?:'ve|'d| have| had| did| just| once| already| ever| also| previously)*"
_TO_YOU = "(?<![跟和对向与给问])"  # 跟你说: it is not you who speaks
_ASSISTANT = (
    re.compile(rf"{_TO_YOU}[你您]{_PAST_ZH}(?:{any_of(SERVING_ZH)})"),
    re.compile(rf"{_TO_YOU}[你您]{_PAST_ZH}(?:{any_of(SAYING_ZH)})(?:过|的|了|到)"),
    re.compile("你的(?:建议|推荐|回答|回复|答复)"),
    ignoring_case(
        rf"\byou{_PAST_EN}\s+(?:{any_of(SAYING_EN)}|{any_of(SERVING_EN)})\b",
        r"\byour\s+(?:\w+\s+)?(?:suggestion|advice|recommendation|answer|reply|proposal)s?\b",
    ),
)
_USER = (
    re.compile(rf"我(?:[跟和对向]你)?{_PAST_ZH}(?:{any_of(SAYING_ZH)})(?:过|的|了|到)"),
    re.compile("我(?:最|很|比较|不|都|平时|一直|一般)*(?:喜欢|讨厌|爱吃|爱喝|爱看|偏好|习惯|爱)"),
    ignoring_case(
        rf"\bi{_PAST_EN}\s+(?:{any_of(SAYING_EN)})\b",
        r"\b(?:do|did|what|which)\s+i\s+(?:\w+\s+)?(?:like|prefer|hate|dislike|love)\b",
        r"\bmy\s+(?:\w+\s+)?(?:favou?rite|preference|preferred|taste)",
    ),
)
_TOGETHER = re.compile(r"我们|咱们?|\bwe\b|\bour\b|\bus\b", re.IGNORECASE)


def whose_words(text: str) -> Whose | None:
    """The role whose messages are asked for; None if either may have said it."""
    if any(pattern.search(text) for pattern in _ASSISTANT):
        return "assistant"
    if _TOGETHER.search(text):
        return None
    return "user" if any(pattern.search(text) for pattern in _USER) else None
