"""The rules that answer the chat prompts when no model is set: what was recalled, or "unknown"."""

import json
import re
from collections.abc import Sequence
from typing import Any

from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, LLMMessage

from memrecall.agent.offline import RULES as RECALL_RULES
from memrecall.agent.offline.needs import is_greeting, needs_recall
from memrecall.agent.offline.vocabulary import QUESTION_MARKERS
from memrecall.chat.phrases import say
from memrecall.chat.tools import MENTIONED, RECALL
from memrecall.chat.visible_text import SILENCE
from memrecall.model.offline import Rule, RuleAnswer, RuleClient, RuleRequest
from memrecall.model.prompts import Language
from memrecall.text_length import truncate_text

_QUOTED = 2
_LONGEST = 300
_TELL_ME = re.compile(r"告诉我|提醒我|说说|\b(?:tell|remind) me\b", re.IGNORECASE)
_ASKED = re.compile(r"(?:[?？]|[吗呢]|来着)\W*$")  # 什么 alone is no question: 他什么都吃
_TEXTS: dict[str, tuple[str, str]] = {
    "user": ("On {day} you said: “{text}”", "{day} 你说过：“{text}”"),
    "assistant": ("On {day} I said: “{text}”", "{day} 我说过：“{text}”"),
    "other": ("{speaker}, {day}: “{text}”", "{speaker}，{day}：“{text}”"),
    "unknown": (
        "I do not know: I find nothing about it in what was said.",
        "我不知道：在说过的话里没有找到。",
    ),
    "failed": (
        "I cannot look it up at the moment, so I do not know.",
        "现在查不到以前的内容，所以我不知道。",
    ),
    "noted": ("All right.", "好的。"),
}


def offline_chat_client() -> RuleClient:
    """A model client that needs no model: it answers the chat and recall prompts by rules."""
    return RuleClient({**RECALL_RULES, **RULES})


def single_answer(request: RuleRequest) -> RuleAnswer:
    """The prompt `chat_single`: quote what was recalled, or say that it is not known."""
    return RuleAnswer(text=_answer(request))


def group_answer(request: RuleRequest) -> RuleAnswer:
    """The prompt `chat_group`: the same for who is mentioned; the others say nothing."""
    if _results(request.messages).get(MENTIONED) != say(request.language, "mentioned"):
        return RuleAnswer(text=SILENCE)
    return RuleAnswer(text=_answer(request))


RULES: dict[str, Rule] = {"chat_single": single_answer, "chat_group": group_answer}


def _answer(request: RuleRequest) -> str:
    language = request.language
    asked = _asked(request.messages)
    told = _load(_results(request.messages).get(RECALL, ""))
    events = told.get("events") or []
    if events and (_is_asking(asked) or needs_recall(asked, ()).needed):
        return "\n".join(_quote(event, language) for event in _evidence(events)[:_QUOTED])
    if not _is_asking(asked):
        return _text(language, "noted")
    failed = told.get("note") == say(language, "recall_failed")
    return _text(language, "failed" if failed else "unknown")


def _evidence(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What tells something at first hand: an assistant may repeat it, a question only asks."""
    first_hand = [event for event in events if event.get("speaker") != "assistant"] or events
    return [event for event in first_hand if not _ASKED.search(str(event["text"]))] or first_hand


def _asked(messages: Sequence[LLMMessage]) -> str:
    """What the turn recalled for: the query of its forced recall."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            for call in message.content:
                if call.name == RECALL:
                    return str(_load(call.arguments).get("query", ""))
    return ""


def _is_asking(text: str) -> bool:
    """Whether a text wants to be told something."""
    return not is_greeting(text) and any(
        pattern.search(text) for pattern in (*QUESTION_MARKERS, _TELL_ME)
    )


def _quote(event: dict[str, Any], language: Language) -> str:
    speaker = str(event["speaker"])
    name = speaker if speaker in ("user", "assistant") else "other"
    text = str(event["text"])
    shown = truncate_text(text, _LONGEST)
    return _text(language, name, speaker=speaker, day=str(event["time"])[:10], text=shown)


def _text(language: Language, name: str, /, **values: str) -> str:
    return _TEXTS[name][language == "zh"].format(**values)


def _results(messages: Sequence[LLMMessage]) -> dict[str, str]:
    """What the tools gave, by their names; the latest counts."""
    return {
        result.name: result.content
        for message in messages
        if isinstance(message, FunctionExecutionResultMessage)
        for result in message.content
    }


def _load(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
