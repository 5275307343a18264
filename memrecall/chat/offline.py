"""Rules that answer the chat prompts without a model: quote what was recalled, or nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from memrecall import model
from memrecall.agent.offline.needs import find_courtesy, is_greeting
from memrecall.agent.offline.references import find_references
from memrecall.agent.offline.request import extract_content_words
from memrecall.agent.offline.vocabulary import QUESTION_MARKERS
from memrecall.agent.tools import IS_MENTIONED, RECALL_MEMORY
from memrecall.chat.phrases import tell
from memrecall.chat.visible_text import SILENCE
from memrecall.json_objects import load_json_object
from memrecall.model import protocol
from memrecall.text.language import fill_phrase, language_of, read_phrases
from memrecall.text.tokens import word_coverage
from memrecall.text_length import truncate_text
from memrecall.types import Language

_MOST_QUOTES = 2
# The probability or relevance of the best event, below which the answer is that nothing is known.
_LEAST_PROBABLE, _LEAST_RELEVANT = 0.3, 0.6
# The same if no quote has a word of the question: of such answers to the authors C and G, 25 of 62
# with a lower probability were right, and 78 of 123 with a higher one.
_LEAST_PROBABLE_ALONE = 0.4
_QUOTED_SHARE = 0.5  # of the first quote's probability: a less likely one is not quoted beside it
_MEMORY_KEY = "mem_"  # how the keys of extracted memories begin
_LONGEST_QUOTE = 300
_TELL_ME = re.compile(r"告诉我|提醒我|说说|\b(?:tell|remind) me\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？\n]*")
# 什么 alone does not make a question: 他什么都吃.
_QUESTION_END = re.compile(r"(?:[?？]|[吗呢]|来着)\W*$")
_TEXTS = read_phrases(Path(__file__).with_name("offline.json"))
_text = partial(fill_phrase, _TEXTS)
# Earlier answers of the rules that say nothing about anything.
_EMPTY_ANSWERS = frozenset(
    text
    for name in ("unknown", "failed", "noted", "hello", "thanks", "bye")
    for text in _TEXTS[name]
)


def offline_chat_client() -> model.RuleClient:
    """Return a client that answers the chat prompts without a model."""
    return model.RuleClient({"chat_single": single_answer, "chat_group": group_answer})


def single_answer(language: Language, messages: Sequence[protocol.LLMMessage]) -> str:
    """Answer the prompt `chat_single`: quote what was recalled, or say that it is unknown."""
    query = _recall_query(messages)
    result = _tool_results(messages).get(RECALL_MEMORY)
    output = load_json_object(result.content) if result is not None else None
    events = _likely(_evidence(output.get("events") or []), query) if output is not None else []
    if events and asks_for_answer(query):
        return "\n".join(_quote(event, language) for event in events[:_MOST_QUOTES])
    if not _is_question(query):
        courtesy = find_courtesy(query)
        return _text(language_of(query), courtesy) if courtesy else _text(language, "noted")
    has_failed = result is not None and result.is_error
    return _text(language, "failed" if has_failed else "unknown")


def group_answer(language: Language, messages: Sequence[protocol.LLMMessage]) -> str:
    """Answer the prompt `chat_group` the same way if mentioned, else stay silent."""
    result = _tool_results(messages).get(IS_MENTIONED)
    if result is None or result.content != tell(language, "mentioned"):
        return SILENCE
    return single_answer(language, messages)


def _evidence(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return first-hand statements that hold: not what assistants repeat, and never a question."""
    statements = [
        event
        for event in events
        if not only_asks(str(event["text"]))
        and event["text"] not in _EMPTY_ANSWERS
        and "outdated_since" not in event
    ]
    return [event for event in statements if event.get("speaker") != "assistant"] or statements


def _likely(events: list[dict[str, Any]], query: str) -> list[dict[str, Any]]:
    """Return the first event and those at least half as likely; none if the first is not."""
    best = _chance(events[0]) if events else 0.0
    if best < _LEAST_PROBABLE and max((_score(e) for e in events), default=0) < _LEAST_RELEVANT:
        return []
    likely = [event for event in events if _chance(event) >= _QUOTED_SHARE * best]
    words = extract_content_words(query)
    shares = any(word_coverage(words, str(event["text"])) for event in likely[:_MOST_QUOTES])
    return likely if shares or not words or best >= _LEAST_PROBABLE_ALONE else []


def _score(event: dict[str, Any]) -> float:
    return float(event.get("score") or 0.0)


def _chance(event: dict[str, Any]) -> float:
    """Return an event's probability, or its score if the search gave none."""
    return float(event.get("probability") or _score(event))


def only_asks(text: str) -> bool:
    """Return True if a text states nothing: each sentence is a question or a greeting."""
    sentences = [sentence for sentence in _SENTENCE.findall(text) if sentence.strip()]
    return bool(sentences) and all(
        _QUESTION_END.search(sentence) or is_greeting(sentence) for sentence in sentences
    )


def _recall_query(messages: Sequence[protocol.LLMMessage]) -> str:
    for message in reversed(messages):
        if isinstance(message, protocol.AssistantMessage) and not isinstance(message.content, str):
            for call in message.content:
                if call.name == RECALL_MEMORY:
                    return str((load_json_object(call.arguments) or {}).get("query", ""))
    return ""


def asks_for_answer(text: str) -> bool:
    """Return True if a message asks something or refers to something."""
    return _is_question(text) or bool(find_references(text))


def _is_question(text: str) -> bool:
    return not is_greeting(text) and any(
        pattern.search(text) for pattern in (*QUESTION_MARKERS, _TELL_ME)
    )


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
