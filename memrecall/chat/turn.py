"""One turn: forced tool calls, then the model with its tools until it gives a clean answer."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from memrecall.chat.events import ChatEvent, TextChange, ToolCall, ToolResult
from memrecall.chat.options import ChatOptions
from memrecall.chat.phrases import tell
from memrecall.chat.tools import TurnTools
from memrecall.chat.visible_text import AnswerReasoning, MemberFilter, VisibleText
from memrecall.errors import CallerError, ModelFailed
from memrecall.model import protocol
from memrecall.model.failures import to_model_failure
from memrecall.timing import seconds_left
from memrecall.types import Language

Events = AsyncGenerator[ChatEvent, None]

ASSISTANT, USER = "assistant", "user"  # AutoGen sends sources as names, which must be ASCII
_ID_LENGTH = 24


@dataclass(slots=True)
class TurnStart:
    """What a turn begins with: the context, the tools and the forced calls."""

    messages: list[protocol.LLMMessage]
    tools: TurnTools
    forged: Sequence[protocol.FunctionCall]
    language: Language
    names: Sequence[str] = ()  # of the group member that answers
    others: Sequence[str] = ()  # the names of the other members
    may_pass: bool = False  # silence is an answer


class Turn:
    """One turn; after `play`, `visible`, `degraded`, `silent` and `usage` are its outcome."""

    def __init__(
        self,
        client: protocol.ChatCompletionClient,
        start: TurnStart,
        options: ChatOptions,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self.model = str(getattr(client, "model", "") or type(client).__name__)
        member_filter = (
            MemberFilter(start.names, start.others, may_pass=start.may_pass)
            if start.names
            else None
        )
        self.visible = VisibleText(
            start.tools.names,
            self.model,
            AnswerReasoning(client, options.reasoning),
            mode=options.leak_mode,
            member_filter=member_filter,
            on_leak=on_leak,
        )
        self.degraded = False
        self.silent = False
        self.finish_reason = "stop"
        self.model_calls = 0
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0}
        self._client = client
        self._start = start
        self._messages = list(start.messages)
        self._most_calls = options.model_calls
        self._seconds = options.seconds
        self._without_tools = not client.model_info["function_calling"]
        self._reply: protocol.CreateResult | None = None
        self._is_over = False
        self._ids = {call.id for call in start.forged}

    @property
    def recalls(self) -> int:
        """The number of recalls that were run."""
        return self._start.tools.recalls.count

    @property
    def sources(self) -> tuple[str, ...]:
        """The keys of the recalled memories, in order."""
        return tuple(self._start.tools.recalls.keys)

    async def play(self) -> Events:
        """Yield the turn's events; raise ModelFailed if the model cannot answer."""
        for call in self._start.forged:
            async for event in self._run_calls([call], forged=True):
                yield event
        deadline = time.monotonic() + min(self._seconds, seconds_left(self._seconds))
        while not self._is_over and self.model_calls < self._most_calls:
            async with aclosing(self._play_round(deadline)) as events:
                async for event in events:
                    yield event
        if self.degraded and not self.visible.text:
            for event in self.visible.add(tell(self._start.language, "no_answer")):
                yield event

    async def _play_round(self, deadline: float) -> Events:
        """Ask the model once; run its tool calls or end the turn.

        If the answer is not clean, the next round asks again without tools.
        """
        without_tools = self._without_tools or self.model_calls == self._most_calls - 1
        async with aclosing(self._ask(without_tools, deadline)) as deltas:
            async for delta in deltas:
                yield delta
        if self._reply is None:  # the server refuses requests with tools
            self._without_tools = True
            return
        content = self._reply.content
        if not isinstance(content, str) and content and not without_tools:
            calls = [self._with_unique_id(call) for call in content]
            async for event in self._run_calls(calls, self._reply.thought):
                yield event
            return
        is_answered = isinstance(content, str) and self._is_answered(without_tools)
        self._is_over = is_answered or without_tools
        self.degraded = without_tools and not is_answered
        self._without_tools = True

    def _is_answered(self, without_tools: bool) -> bool:
        """Return True if the answer is clean text, or a silence that is allowed.

        What it said before its last call is an answer too, unless it had to stop calling.
        """
        visible = self.visible
        self.silent = visible.is_silent and self._start.may_pass and not visible.text
        has_text = visible.has_text or (visible.is_repeated and not without_tools)
        return self.silent or (has_text and not visible.has_leaks)

    async def _ask(self, without_tools: bool, deadline: float) -> AsyncGenerator[TextChange, None]:
        """Yield the text events of one answer; set `_reply`, or None if tools are refused."""
        self._reply = None
        self.visible.begin()
        self.model_calls += 1
        messages, tools = self._messages, self._start.tools.schemas
        if without_tools:
            messages = remove_calls(messages, self.visible.text, self._start.language)
            tools = ()
        try:
            async with aclosing(self._client.create_stream(messages, tools=tools)) as chunks:
                is_streamed = False
                while (chunk := await self._next(chunks, deadline)) is not None:
                    if isinstance(chunk, protocol.CreateResult):
                        self._reply = chunk
                        self.finish_reason = chunk.finish_reason
                        self.usage["prompt_tokens"] += chunk.usage.prompt_tokens
                        self.usage["completion_tokens"] += chunk.usage.completion_tokens
                        is_new = isinstance(chunk.content, str) and not is_streamed
                        chunk = str(chunk.content) if is_new else ""
                    is_streamed = is_streamed or bool(chunk)
                    for event in self.visible.feed(chunk):
                        yield event
            has_calls = self._reply is not None and not isinstance(self._reply.content, str)
            for event in self.visible.end(has_calls=has_calls):
                yield event
        except ModelFailed as error:
            if error.kind != "no_tools" or without_tools:
                raise
        finally:  # The consumer of the events may stop too.
            self.visible.abort()
        if self._reply is None and without_tools:
            raise ModelFailed(f"{self.model} ended without a result", kind="malformed")

    async def _next(
        self, chunks: AsyncGenerator[str | protocol.CreateResult, None], deadline: float
    ) -> str | protocol.CreateResult | None:
        """Return the next chunk before the deadline; raise ModelFailed or CallerError."""
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                return await anext(chunks, None)
        except (CallerError, ModelFailed):
            raise  # A mismatched cassette and an exhausted script are errors of the caller.
        except TimeoutError:
            message = f"{self.model} did not answer in {self._seconds:g} seconds"
            raise ModelFailed(message, kind="timeout") from None
        except Exception as error:  # Clients of other packages raise errors of any type.
            raise to_model_failure(error) from error

    async def _run_calls(
        self,
        calls: list[protocol.FunctionCall],
        thought: str | None = None,
        *,
        forged: bool = False,
    ) -> Events:
        run = self._start.tools.force if forged else self._start.tools.run
        results = []
        for call in calls:
            yield ToolCall(call.id, call.name, call.arguments, forged)
            result = await run(call)
            results.append(result)
            yield ToolResult(call.id, call.name, result.content, bool(result.is_error), forged)
        self._messages += [
            protocol.AssistantMessage(content=calls, thought=thought, source=ASSISTANT),
            protocol.FunctionExecutionResultMessage(content=results),
        ]

    def _with_unique_id(self, call: protocol.FunctionCall) -> protocol.FunctionCall:
        """Return the call with an id that is unique in the turn: some servers repeat ids."""
        call_id, number = call.id, len(self._ids)
        while not call_id or call_id in self._ids:
            number += 1
            call_id = f"call_{number}"
        self._ids.add(call_id)
        return replace(call, id=call_id)


def forge_call(turn: str, name: str, arguments: str) -> protocol.FunctionCall:
    """Return a call whose id depends only on the turn, the tool and the arguments."""
    digest = hashlib.sha256(f"{turn}\0{name}\0{arguments}".encode()).hexdigest()
    return protocol.FunctionCall(id=f"call_{digest[:_ID_LENGTH]}", name=name, arguments=arguments)


def remove_calls(
    messages: Sequence[protocol.LLMMessage], answer: str, language: Language
) -> list[protocol.LLMMessage]:
    """Return the context for a request without tools: results as data, calls left out.

    Calls in a context without tools make models write calls as text. The part of the answer that
    was already shown comes last, before the request for plain text.
    """
    plain: list[protocol.LLMMessage] = []
    for message in messages:
        if isinstance(message, protocol.FunctionExecutionResultMessage):
            for result in message.content:
                text = tell(language, "as_data", tool=result.name, content=result.content)
                plain.append(protocol.UserMessage(content=text, source=USER))
        elif not isinstance(message, protocol.AssistantMessage) or isinstance(message.content, str):
            plain.append(message)
    if answer:
        plain.append(protocol.AssistantMessage(content=answer, source=ASSISTANT))
    plain.append(protocol.UserMessage(content=tell(language, "answer_in_words"), source=USER))
    return plain
