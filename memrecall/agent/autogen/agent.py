"""`MemRecallAgent`: recall as an AutoGen agent, alone, in a team or behind a tool."""

import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from autogen_agentchat import messages as autogen_messages
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    StructuredMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_agentchat.state import BaseState
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    FunctionExecutionResult,
    RequestUsage,
    UserMessage,
)
from pydantic import Field

from memrecall.agent.conversation import LARGEST_WINDOW
from memrecall.agent.driver import RecallArguments, Recaller, stream_recall, utc_now
from memrecall.agent.phrases import say
from memrecall.agent.prompt_view import BLOCK_CHARACTERS
from memrecall.agent.result import RecallHandoff, RecallResult, StopReason
from memrecall.agent.tools.control import write_parent_message
from memrecall.agent.trace_events import CallEvent, ResultEvent, ThoughtEvent, TraceEvent
from memrecall.library.library import Library
from memrecall.messages import (
    USER_SOURCES,
    ConversationMessage,
    name_source,
    name_sources,
    parse_messages,
)
from memrecall.scope import Scope
from memrecall.text.language import language_of
from memrecall.types import Role

AGENT_DESCRIPTION = (
    "Recalls what the user refers to from earlier conversations: hands over memories, evidence and "
    "how sure it is, or a question."
)


class RecallHandoffMessage(StructuredMessage[RecallHandoff]):
    """A handoff as data. Other agents and their models read its text, which is bounded."""

    format_string: str | None = "{message}"

    def to_model_message(self) -> UserMessage:
        """Return the text; AutoGen would return all fields, each part of the text again."""
        return UserMessage(content=self.content.message, source=self.source)


class MemRecallAgentState(BaseState):
    """The saved state: the conversation of the earlier turns."""

    type: str = "MemRecallAgentState"
    conversation: list[ConversationMessage] = Field(default_factory=list)


class MemRecallAgent(BaseChatAgent):
    """Runs one recall over the messages it receives and answers with the handoff.

    Each turn continues the conversation of the turns that have ended; recalls that run at once on
    one instance do not see each other. In a team, a turn in which the user has said nothing new
    repeats no recall. After a handoff of a Swarm agent, it hands back to that agent; a Swarm that
    starts with this agent goes on with `handoff_to`.
    """

    def __init__(
        self,
        name: str,
        library: Library,
        scope: Scope,
        *,
        user_sources: Iterable[object] = USER_SOURCES,
        block_characters: int = BLOCK_CHARACTERS,
        description: str = AGENT_DESCRIPTION,
        handoff_to: object = None,
        **arguments: Unpack[RecallArguments],
    ) -> None:
        super().__init__(name, description)
        self._recaller = Recaller(library, scope, **arguments)
        self._user_sources = name_sources(user_sources)
        self._block_characters = block_characters
        self._handoff_to = None if handoff_to is None else name_source(handoff_to)
        # AutoGen stamps messages with the time of the machine, which another clock contradicts.
        has_own_clock = arguments.get("clock", utc_now) is not utc_now
        self._uses_time_of_messages = not has_own_clock and arguments.get("as_of") is None
        self._conversation: list[ConversationMessage] = []

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The handoff, as data or as the message of a Swarm."""
        # Saved teams of earlier versions have the message of the second type.
        return (RecallHandoffMessage, StructuredMessage[RecallHandoff], HandoffMessage)

    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response:
        """Recall, and return the handoff."""
        response: Response | None = None
        async for item in self.on_messages_stream(messages, cancellation_token):
            if isinstance(item, Response):
                response = item
        assert response is not None  # noqa: S101 -- the stream ends with one
        return response

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Recall, and yield each call, result and thought as it happens, then the handoff.

        A turn without a text, or without a new one of the user, as in a team that selects the agent
        twice, has nothing to recall.
        """
        messages = [message for message in messages if message.to_text().strip()]
        earlier = self._conversation
        new = parse_messages(messages, user_sources=self._user_sources) if messages else ()
        if not messages or self._has_answered(messages, new):
            self._conversation = [*earlier, *new][-LARGEST_WINDOW:]
            yield Response(chat_message=self._decline(messages), inner_messages=[])
            return
        if not self._uses_time_of_messages:
            new = tuple(replace(message, ts=None) for message in new)
        inner: list[BaseAgentEvent | BaseChatMessage] = []
        stream = stream_recall(
            self._recaller, [*earlier, *new], cancellation_token=cancellation_token
        )
        async with contextlib.aclosing(stream):
            async for item in stream:
                if isinstance(item, RecallResult):
                    # A turn that fails is not kept: its messages come again.
                    self._remember(new, item)
                    answer = self._answer(messages, item)
                    yield Response(chat_message=answer, inner_messages=inner)
                elif (event := to_agent_event(item, self.name)) is not None:
                    inner.append(event)
                    yield event

    def _has_answered(
        self, messages: Sequence[BaseChatMessage], new: Sequence[ConversationMessage]
    ) -> bool:
        """Return True if the user's last message has had its recall, and no agent asks for one."""
        is_asked = any(isinstance(m, HandoffMessage) and m.target == self.name for m in messages)
        is_new = any(message.role is Role.USER for message in new)
        is_known = any(message.role is Role.USER for message in self._conversation)
        return is_known and not is_new and not is_asked

    def _remember(self, messages: Iterable[ConversationMessage], result: RecallResult) -> None:
        # With the name before it, the text differs from a stored message, which would hide it.
        text = f"{self.name}: {result.handoff.search_summary}"
        answer = ConversationMessage(Role.OTHER, text, speaker=self.name)
        self._conversation = [*self._conversation, *messages, answer][-LARGEST_WINDOW:]

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget the conversation of the earlier turns."""
        self._conversation = []

    async def save_state(self) -> Mapping[str, Any]:
        """Return the conversation of the earlier turns as JSON."""
        return MemRecallAgentState(conversation=self._conversation).model_dump(mode="json")

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the conversation of a saved state."""
        self._conversation = MemRecallAgentState.model_validate(state).conversation

    def _decline(
        self, messages: Sequence[BaseChatMessage]
    ) -> RecallHandoffMessage | HandoffMessage:
        """Return the answer to a turn in which nothing was said."""
        last = self._conversation[-1].text if self._conversation else ""
        note = say(self._recaller.options.language or language_of(last), "no_request")
        handoff = RecallHandoff(
            reason="no_request",
            search_summary=note,
            relevant_memory_keys=[],
            confidence=0.0,
            needs_more_info=False,
            follow_up_question=None,
            reasoning=None,
            iteration_used=0,
            context_window_used=0,
            success=True,
            message=note,
        )
        return self._hand_over(messages, handoff, {"stop_reason": StopReason.HANDOFF.value})

    def _answer(
        self, messages: Sequence[BaseChatMessage], result: RecallResult
    ) -> RecallHandoffMessage | HandoffMessage:
        # The model of the next agent sees only this message: it contains the evidence itself.
        message = write_parent_message(result, self._block_characters)
        handoff = result.handoff.model_copy(update={"message": message})
        usage = RequestUsage(
            prompt_tokens=int(result.usage["prompt_tokens"]),
            completion_tokens=int(result.usage["completion_tokens"]),
        )
        metadata = {
            "stop_reason": result.stop_reason.value,
            "trace_id": result.trace.trace_id,
            "iterations": str(result.iterations),
        }
        return self._hand_over(messages, handoff, metadata, usage)

    def _hand_over(
        self,
        messages: Sequence[BaseChatMessage],
        handoff: RecallHandoff,
        metadata: dict[str, str],
        usage: RequestUsage | None = None,
    ) -> RecallHandoffMessage | HandoffMessage:
        """Return the handoff as data, or as the message by which a Swarm selects its next agent."""
        target, last = self._handoff_to, messages[-1] if messages else None
        if isinstance(last, HandoffMessage) and last.target == self.name:
            target = last.source
        if target is None:
            return RecallHandoffMessage(
                content=handoff, source=self.name, models_usage=usage, metadata=metadata
            )
        return HandoffMessage(
            content=handoff.message,
            target=target,
            source=self.name,
            models_usage=usage,
            metadata={**metadata, "handoff": handoff.model_dump_json()},
        )


def to_agent_event(event: TraceEvent, source: str) -> BaseAgentEvent | None:
    """Return a trace event as AutoGen's event; None for kinds that AutoGen does not have."""
    match event:
        case CallEvent():
            call = FunctionCall(id=event.id, arguments=event.arguments, name=event.tool)
            return ToolCallRequestEvent(content=[call], source=source)
        case ResultEvent():
            result = FunctionExecutionResult(
                content=event.text,
                name=event.tool,
                call_id=event.id,
                is_error=event.error is not None,
            )
            return ToolCallExecutionEvent(content=[result], source=source)
        case ThoughtEvent():
            return autogen_messages.ThoughtEvent(content=event.text, source=source)
    return None
