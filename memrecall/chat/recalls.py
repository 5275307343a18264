"""The recalls of one turn: the forced one and the model's own, up to the limit."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from memrecall.agent import RecalledMemory, Recaller, RecallResult
from memrecall.agent.dispatch import leaked_families
from memrecall.agent.prompt_view import to_json
from memrecall.agent.tools.chat import MAX_QUERY
from memrecall.agent.tools.models import TextAnswer
from memrecall.agent.trace import TraceEvent
from memrecall.chat.history import fit_texts
from memrecall.chat.options import ChatOptions
from memrecall.chat.phrases import say, say_count
from memrecall.errors import CassetteMismatch, ScriptExhausted
from memrecall.messages import ConversationMessage
from memrecall.text.keywords import extract_keywords
from memrecall.text.snippets import snippets
from memrecall.types import Language, Role, format_time

_log = logging.getLogger(__name__)

ANSWER_CHARACTERS = 6_000
_SHORTEST = 200  # characters that a truncated text keeps
_GRACE = 2.0  # seconds beyond the limit that a recall keeps itself


class TurnRecalls:
    """The recalls of one turn; a failed recall does not fail the turn."""

    def __init__(
        self,
        recaller: Recaller,
        messages: Sequence[ConversationMessage],
        options: ChatOptions,
        language: Language,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self.recaller = recaller
        self._messages = tuple(messages)
        self._options = options
        self._language = language
        self._remaining = options.own_recalls
        self._on_leak = on_leak
        self.count = 0
        self.keys: dict[str, None] = {}  # of the recalled memories, in order

    async def force(self) -> TextAnswer:
        """Run the recall that every turn makes, for its messages."""
        return await self._recall(self._messages)

    async def ask(self, query: str) -> TextAnswer:
        """Run a recall for the model, or refuse it beyond the limit."""
        if self._remaining <= 0:
            cap = self._options.recalls
            note = say_count(self._language, "cap_reached", cap, cap=cap)
            return TextAnswer(content=_empty(note), is_error=True)
        self._remaining -= 1
        return await self._recall([*self._messages, ConversationMessage(Role.USER, query)])

    async def _recall(self, messages: Sequence[ConversationMessage]) -> TextAnswer:
        self.count += 1
        try:
            async with asyncio.timeout(self._options.recall_seconds + _GRACE):
                result = await self.recaller.recall(messages, observer=self._observe)
        except (CassetteMismatch, ScriptExhausted):
            raise  # A mismatched cassette and an exhausted script are errors of the caller.
        except Exception as error:  # Whatever fails here, the turn must be answered.
            _log.warning("a turn continues without its recall: %s", type(error).__name__)
            return TextAnswer(content=_empty(say(self._language, "recall_failed")), is_error=True)
        return self._to_answer(result, messages[-1].text)

    def _observe(self, event: TraceEvent) -> None:
        """Report the leaks of the recall's own model."""
        if self._on_leak is not None:
            for family in leaked_families(event):
                self._on_leak(family)

    def _to_answer(self, result: RecallResult, query: str) -> TextAnswer:
        if not result.handoff.success:
            _log.warning("a turn continues without its recall: %s", result.stop_reason.value)
            return TextAnswer(content=_empty(say(self._language, "recall_failed")), is_error=True)
        if not result.memories:
            return TextAnswer(content=_empty(say(self._language, "nothing_recalled")))
        # For a recalled answer its own sources are noted, so that chains of answers stay short.
        for memory in result.memories:
            self.keys.update(dict.fromkeys(memory.made_from or [memory.memory_key]))
        payload = {
            "events": memory_events(result.memories, query),
            "confidence": round(result.confidence, 2),
        }
        return TextAnswer(content=to_json(payload), results=len(result.memories))


def _empty(note: str) -> str:
    return to_json({"events": [], "note": note})


def memory_events(memories: Sequence[RecalledMemory], query: str) -> list[dict[str, Any]]:
    """Return memories as events, in order; long ones are cut to the passage about the query."""
    contents = [memory.content for memory in memories]
    texts = fit_texts(contents, ANSWER_CHARACTERS, _SHORTEST)
    words = [keyword.word for keyword in extract_keywords(query[:MAX_QUERY])]
    return [
        _event(memory, text if text == memory.content else _passage(memory, words, len(text)))
        for memory, text in zip(memories, texts, strict=True)
    ]


def _passage(memory: RecalledMemory, words: Sequence[str], length: int) -> str:
    return snippets(memory.content, words, length=length, limit=1, before="", after="")[0]


def _event(memory: RecalledMemory, text: str) -> dict[str, Any]:
    return {
        "time": format_time(memory.ts),
        "speaker": memory.speaker or memory.role or memory.memory_type,
        "text": text,
        "key": memory.memory_key,
        "score": None if memory.relevance_score is None else round(memory.relevance_score, 4),
    }
