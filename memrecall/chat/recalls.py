"""The recalls of one turn: the forced one and the model's own, counted against the cap."""

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
from memrecall.model.prompts import Language
from memrecall.text.keywords import extract_keywords
from memrecall.text.snippets import snippets
from memrecall.types import Role, format_time

_log = logging.getLogger(__name__)

ANSWER_CHARACTERS = 6_000
_SHORTEST = 200  # of a text, when many share the room
_GRACE = 2.0  # seconds: a recall keeps its own limit; this is for what hangs around it


class TurnRecalls:
    """Recalls for one turn, in the turn's scope. Nothing that fails in one fails the turn."""

    def __init__(
        self,
        recaller: Recaller,
        said: Sequence[ConversationMessage],
        options: ChatOptions,
        language: Language,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self.recaller = recaller
        self._said = tuple(said)
        self._options = options
        self._language = language
        self._left = options.own_recalls
        self._on_leak = on_leak
        self.count = 0
        self.keys: dict[str, None] = {}  # of what was recalled

    async def force(self) -> TextAnswer:
        """The recall that every turn makes: for what was said."""
        return await self._recall(self._said)

    async def ask(self, query: str) -> TextAnswer:
        """A recall that the model asks for; beyond the cap it is refused."""
        if self._left <= 0:
            cap = self._options.recalls
            note = say_count(self._language, "cap_reached", cap, cap=cap)
            return TextAnswer(content=_empty(note), is_error=True)
        self._left -= 1
        return await self._recall([*self._said, ConversationMessage(Role.USER, query)])

    async def _recall(self, messages: Sequence[ConversationMessage]) -> TextAnswer:
        self.count += 1
        try:
            async with asyncio.timeout(self._options.recall_seconds + _GRACE):
                result = await self.recaller.recall(messages, observer=self._observe)
        except (CassetteMismatch, ScriptExhausted):
            raise  # a cassette that does not fit and a script that ran out are the caller's to see
        except Exception as error:  # whatever fails in here, the user is owed an answer
            _log.warning("a turn goes on without its recall: %s", type(error).__name__)
            return TextAnswer(content=_empty(say(self._language, "recall_failed")), is_error=True)
        return self._tell(result, messages[-1].text)

    def _observe(self, event: TraceEvent) -> None:
        """The recall's own model may write calls as text, too."""
        if self._on_leak is not None:
            for family in leaked_families(event):
                self._on_leak(family)

    def _tell(self, result: RecallResult, asked: str) -> TextAnswer:
        if not result.handoff.success:
            _log.warning("a turn goes on without its recall: %s", result.stop_reason.value)
            return TextAnswer(content=_empty(say(self._language, "recall_failed")), is_error=True)
        if not result.memories:
            return TextAnswer(content=_empty(say(self._language, "nothing_recalled")))
        for memory in result.memories:  # an answer's own sources, so that the way back stays short
            self.keys.update(dict.fromkeys(memory.made_from or [memory.memory_key]))
        told = {
            "events": tell_events(result.memories, asked),
            "confidence": round(result.confidence, 2),
        }
        return TextAnswer(content=to_json(told), results=len(result.memories))


def _empty(note: str) -> str:
    return to_json({"events": [], "note": note})


def tell_events(memories: Sequence[RecalledMemory], asked: str) -> list[dict[str, Any]]:
    """The memories, the most useful first; of long ones the passage that speaks of what was asked.

    The room is shared, and what the short ones leave free is the long ones'.
    """
    contents = [memory.content for memory in memories]
    texts = fit_texts(contents, ANSWER_CHARACTERS, _SHORTEST)
    words = [keyword.word for keyword in extract_keywords(asked[:MAX_QUERY])]
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
