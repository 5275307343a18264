"""The tools of a turn, bound to its scope, and its recalls: the forced one and the model's own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memrecall.agent import RecalledMemory, Recaller, RecallResult
from memrecall.agent.loop import leaked_families
from memrecall.agent.phrases import to_json
from memrecall.agent.prompt import render
from memrecall.agent.tools import RECALL_MEMORY
from memrecall.agent.tools.search import MAX_QUERY
from memrecall.agent.tools.table import (
    Interface,
    function_schemas,
    normalize_tool_name,
    parse_arguments,
    require_tool,
    tools_for,
)
from memrecall.agent.trace import TraceEvent
from memrecall.chat.history import fit_texts
from memrecall.chat.options import ChatOptions
from memrecall.chat.phrases import tell
from memrecall.chat.tool_table import TextAnswer, TurnContext
from memrecall.errors import (
    CassetteMismatch,
    InvalidArgument,
    MemrecallError,
    ScriptExhausted,
)
from memrecall.messages import ConversationMessage
from memrecall.model import protocol
from memrecall.text.keywords import extract_keywords
from memrecall.text.snippets import snippets
from memrecall.types import Language, Role, format_time

_log = logging.getLogger(__name__)

ANSWER_CHARACTERS = 6_000
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
        self.options = options
        self.language = language
        self._messages = tuple(messages)
        self._remaining = options.own_recalls
        self._on_leak = on_leak
        self.count = 0
        self.keys: dict[str, None] = {}  # of the recalled memories, in order
        self.latest: list[dict[str, Any]] = []  # events for a request for all that is known

    async def force(self) -> TextAnswer:
        """Run the recall that every turn makes, for its messages."""
        return await self._recall(self._messages)

    async def ask(self, query: str) -> TextAnswer:
        """Run a recall for the model, or refuse it beyond the limit."""
        if self._remaining <= 0:
            note = tell(self.language, "cap_reached", cap=self.options.recalls)
            return TextAnswer(content=_empty(note), is_error=True)
        self._remaining -= 1
        return await self._recall([*self._messages, ConversationMessage(Role.USER, query)])

    async def _recall(self, messages: Sequence[ConversationMessage]) -> TextAnswer:
        self.count += 1
        try:
            async with asyncio.timeout(self.options.recall_seconds + _GRACE):
                result = await self.recaller.recall(messages, observer=self._observe)
        except (CassetteMismatch, ScriptExhausted):
            raise  # A mismatched cassette and an exhausted script are errors of the caller.
        except Exception as error:  # Whatever fails here, the turn must be answered.
            return self._failure(type(error).__name__)
        return self._to_answer(result, messages[-1].text)

    def _observe(self, event: TraceEvent) -> None:
        if self._on_leak is not None:
            for family in leaked_families(event):
                self._on_leak(family)

    def _failure(self, reason: str) -> TextAnswer:
        _log.warning("a turn continues without its recall: %s", reason)
        return TextAnswer(content=_empty(tell(self.language, "recall_failed")), is_error=True)

    def _to_answer(self, result: RecallResult, query: str) -> TextAnswer:
        if not result.handoff.success:
            return self._failure(result.stop_reason.value)
        count = result.withheld
        withheld = tell(self.language, "withheld", count=count) if count else ""
        if not result.memories:
            note = withheld or tell(self.language, "nothing_recalled")
            return TextAnswer(content=_empty(note, self.latest))
        # For a recalled answer its own sources are noted, so that chains of answers stay short.
        for memory in result.memories:
            self.keys.update(dict.fromkeys(memory.made_from or [memory.memory_key]))
        payload = {
            "events": memory_events(result.memories, query, self.language),
            "confidence": round(result.confidence, 2),
            "certainty": result.certainty.value,
            **({"note": withheld} if withheld else {}),
            **({"latest": self.latest} if self.latest else {}),
        }
        return TextAnswer(content=to_json(payload), results=len(result.memories))


def _empty(note: str, latest: Sequence[dict[str, Any]] = ()) -> str:
    more = {"latest": latest} if latest else {}
    return to_json({"events": [], "note": note, **more})


def memory_events(
    memories: Sequence[RecalledMemory], query: str, language: Language
) -> list[dict[str, Any]]:
    """Return memories as events, in order; long ones are cut to the passage about the query."""
    contents = [memory.content for memory in memories]
    texts = fit_texts(contents, ANSWER_CHARACTERS)
    words = [keyword.word for keyword in extract_keywords(query[:MAX_QUERY])]
    return [
        _event(memory, text if text == memory.content else _passage(memory, words, len(text)))
        | memory.describe_certainty(language)
        for memory, text in zip(memories, texts, strict=True)
    ]


def _passage(memory: RecalledMemory, words: Sequence[str], length: int) -> str:
    return snippets(memory.content, words, length=length, limit=1, before="", after="")[0]


def _event(memory: RecalledMemory, text: str) -> dict[str, Any]:
    return {
        "time": format_time(memory.ts),
        **({"speaker": memory.by} if memory.by else {}),
        **_outdated_since(memory),
        "text": text,
        "key": memory.memory_key,
        **_score(memory),
    }


def _score(memory: RecalledMemory) -> dict[str, float]:
    """Return the probability, or the score of a search that gave none."""
    score = memory.relevance_score if memory.probability is None else memory.probability
    return {} if score is None else {"score": round(score, 2)}


def _outdated_since(memory: RecalledMemory) -> dict[str, str]:
    """Return since when the memory that a message states is superseded, if it is."""
    if memory.kind != "message" or memory.valid_to is None:
        return {}
    return {"outdated_since": format_time(memory.valid_to)}


class TurnTools:
    """The tools of one turn; `answers` holds the results of the group's tools without arguments."""

    def __init__(
        self, recalls: TurnRecalls, answers: Mapping[str, TextAnswer] | None = None
    ) -> None:
        self.recalls = recalls
        self._remaining = recalls.options.tool_calls
        self._interface = Interface.GROUP_CHAT if answers else Interface.CHAT
        self._context = TurnContext(
            library=recalls.recaller.library,
            scope=recalls.recaller.scope,
            language=recalls.language,
            recall_query=recalls.ask,
            answers=dict(answers or {}),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(tools_for(self._interface))

    @property
    def schemas(self) -> tuple[protocol.ToolSchema, ...]:
        """The schemas for the model."""
        return function_schemas(self._interface, self._context.language)

    async def force(self, call: protocol.FunctionCall) -> protocol.FunctionExecutionResult:
        """Run a forged call; its recall does not count as one of the model's."""
        if call.name == RECALL_MEMORY:
            answer = await self.recalls.force()
        else:
            answer = self._context.answers[call.name]
        self._log(call, answer, "forged")
        return _result(call, answer)

    async def run(self, call: protocol.FunctionCall) -> protocol.FunctionExecutionResult:
        """Run a call of the model; an invalid call gets an error result."""
        try:
            self._count_call()
            answer = await self._run(normalize_tool_name(call.name), call.arguments)
        except MemrecallError as error:
            answer = TextAnswer(content=str(error), is_error=True)
        self._log(call, answer, "called")
        return _result(call, answer)

    def _count_call(self) -> None:
        if self._remaining <= 0:
            cap = self.recalls.options.tool_calls
            raise InvalidArgument(tell(self.recalls.language, "too_many_calls", cap=cap))
        self._remaining -= 1

    def _log(self, call: protocol.FunctionCall, answer: TextAnswer, how: str) -> None:
        """Log a call by name and sizes, and its arguments only if contents may be logged."""
        name = normalize_tool_name(call.name)
        _log.info(
            "%s (%s) returned: characters in %d, results %d, characters out %d%s%s",
            name if name in self.names else "an unknown tool",
            how,
            len(call.arguments),
            answer.results,
            len(answer.content),
            ", failed" if answer.is_error else "",
            f": {call.arguments}" if self.recalls.options.log_contents else "",
        )

    async def _run(self, name: str, text: str) -> TextAnswer:
        language = self._context.language
        tool = require_tool(name, self._interface, language)
        arguments = parse_arguments(tool, text, lenient=True, language=language)
        result = await tool.run(self._context, arguments)
        if isinstance(result, TextAnswer):
            return result
        return TextAnswer(content=render(result, language))


def _result(call: protocol.FunctionCall, answer: TextAnswer) -> protocol.FunctionExecutionResult:
    return protocol.FunctionExecutionResult(
        content=answer.content, name=call.name, call_id=call.id, is_error=answer.is_error
    )
