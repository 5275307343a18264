"""Answers to the chat prompts without a model: quotes of what was recalled, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from memrecall import model
from memrecall.agent import Certainty
from memrecall.agent.conversation import find_courtesy
from memrecall.agent.tools import IS_MENTIONED, RECALL_MEMORY
from memrecall.agent.tools.search import compare_texts
from memrecall.chat.turn import tell
from memrecall.chat.visible_text import SILENCE
from memrecall.json_objects import load_json_object
from memrecall.library.library import Library
from memrecall.model import protocol
from memrecall.scope import Permission, Scope
from memrecall.store import MemoryQuery, MessageFilter
from memrecall.text.language import fill_phrase, language_of, read_phrases
from memrecall.text_length import truncate_text
from memrecall.types import Language, Role, format_time

_MOST_QUOTES = 2
_LEAST_PROBABLE = 0.5  # of the first quote (`benchmarks/chat.py`)
_QUOTED_SHARE = 0.5  # of the first quote's probability: a less likely one is not quoted
_MEMORY_KEY = "mem_"  # how the keys of extracted memories begin
_LONGEST_QUOTE = 300
_TEXTS = read_phrases(Path(__file__).with_name("offline.json"))
_text = partial(fill_phrase, _TEXTS)
_MOST_MEMORIES, _MOST_MESSAGES, _READ = 3, 4, 30
_ASKED = ("What do you know about me?", "你知道关于我的什么？")


def offline_chat_client() -> model.RuleClient:
    """Return a client that answers the chat prompts without a model."""
    return model.RuleClient({"chat_single": single_answer, "chat_group": group_answer})


def single_answer(language: Language, messages: Sequence[protocol.LLMMessage]) -> str:
    """Answer the prompt `chat_single`: quote what was recalled, or say that nothing was found.

    Whether a message asks for anything is not judged: how likely it is that the best hit is what
    was meant tells a statement from a question.
    """
    query = _recall_query(messages)
    if (courtesy := find_courtesy(query)) is not None:
        return _text(language_of(query), courtesy)
    result = _tool_results(messages).get(RECALL_MEMORY)
    if result is not None and result.is_error:
        return _text(language, "failed")
    output = load_json_object(result.content) if result is not None else None
    recalled = output or {}
    events = _likely(_evidence(recalled.get("events") or []))
    if latest := recalled.get("latest"):
        return "\n".join([_text(language, "latest"), *(_quote(each, language) for each in latest)])
    if not events:
        return _text(language, "nothing")
    is_sure = recalled.get("certainty") == Certainty.SURE
    lines = [] if is_sure else [_text(language, "possible")]
    return "\n".join([*lines, *(_quote(event, language) for event in events[:_MOST_QUOTES])])


def group_answer(language: Language, messages: Sequence[protocol.LLMMessage]) -> str:
    """Answer the prompt `chat_group` the same way if mentioned, else stay silent."""
    result = _tool_results(messages).get(IS_MENTIONED)
    if result is None or result.content != tell(language, "mentioned"):
        return SILENCE
    return single_answer(language, messages)


def _evidence(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return first-hand statements that hold: not what is asked, or what assistants repeat."""
    statements = [
        event
        for event in events
        if "outdated_since" not in event and not is_lone_question(event["text"])
    ]
    return [event for event in statements if event.get("speaker") != "assistant"] or statements


def _likely(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first event and those at least half as likely; none if the first is not."""
    chances = [float(event.get("score", 0.0)) for event in events]
    if not chances or chances[0] < _LEAST_PROBABLE:
        return []
    least = max(_LEAST_PROBABLE, _QUOTED_SHARE * chances[0])
    return [event for event, chance in zip(events, chances, strict=True) if chance >= least]


def _recall_query(messages: Sequence[protocol.LLMMessage]) -> str:
    for message in reversed(messages):
        if isinstance(message, protocol.AssistantMessage) and not isinstance(message.content, str):
            for call in message.content:
                if call.name == RECALL_MEMORY:
                    return str((load_json_object(call.arguments) or {}).get("query", ""))
    return ""


def _quote(event: dict[str, Any], language: Language) -> str:
    speaker = str(event.get("speaker", ""))
    name = speaker if speaker in ("user", "assistant") else "other"
    if not speaker or str(event.get("key")).startswith(_MEMORY_KEY):  # not in these words
        name = "memory"
    text = truncate_text(str(event["text"]), _LONGEST_QUOTE)
    return _text(language, name, speaker=speaker, day=str(event["time"])[:10], text=text)


def _tool_results(
    messages: Sequence[protocol.LLMMessage],
) -> dict[str, protocol.FunctionExecutionResult]:
    return {
        result.name: result
        for message in messages
        if isinstance(message, protocol.FunctionExecutionResultMessage)
        for result in message.content
    }


async def find_latest(
    library: Library, scope: Scope, request: str, *, request_id: str, as_of: datetime | None
) -> list[dict[str, Any]]:
    """Return the latest memories and messages as events, if a request asks for all there is."""
    if not _asks_for_all(request):
        return []
    query = MemoryQuery(as_of=as_of)
    memories = (await library.store.memories(scope).page(query, limit=_READ)).items
    may_see = scope.allows(Permission.SENSITIVE)
    shown = [each for each in memories if may_see or not each.sensitive][:_MOST_MEMORIES]
    page = await library.store.timeline(scope).page(
        MessageFilter(role=Role.USER, until=as_of), page_size=_READ
    )
    sources = {key for memory in memories for key in memory.source_message_ids} | {request_id}
    told = [
        each
        for each in page.items
        if each.message_id not in sources
        and not is_lone_question(each.content)
        and not _asks_for_all(each.content)
    ]
    return [
        *({"time": format_time(m.since), "text": m.content, "key": m.memory_key} for m in shown),
        *(
            {"time": format_time(m.ts), "speaker": m.speaker or "user", "text": m.content}
            for m in told[:_MOST_MESSAGES]
        ),
    ]


def _asks_for_all(text: str) -> bool:
    """Return True if a text has the words of a request for all that is known."""
    return any(is_same for asked in _ASKED for is_same in compare_texts(asked, [text]))


def is_lone_question(text: str) -> bool:
    """Return True if a text is one sentence that ends with a question mark."""
    text = text.rstrip()
    return text.endswith(("?", "？")) and not any(mark in text[:-1] for mark in ".!?。！？\n")
