"""`MemRecallAgent`: recall as an AutoGen agent, alone, in a team or behind a tool."""

import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    StructuredMessage,
)
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient

from memrecall.agent.autogen.events import stream_recall, to_agent_event
from memrecall.agent.driver import Recaller, RecallOptions
from memrecall.agent.result import RecallHandoff, RecallResult
from memrecall.library.library import Library
from memrecall.messages import USER_SOURCES, name_sources, parse_messages
from memrecall.scope import Scope

DESCRIPTION = (
    "Recalls what the user refers to from earlier conversations: hands over memories, evidence and "
    "how sure it is, or a question."
)


class MemRecallAgent(BaseChatAgent):
    """Runs one recall over the messages it receives and answers with the handoff.

    It keeps no state between runs, so recalls can run at once on one instance. After a handoff of
    a Swarm agent, it hands back to that agent.
    """

    def __init__(
        self,
        name: str,
        library: Library,
        scope: Scope,
        *,
        model_client: ChatCompletionClient | None = None,
        options: RecallOptions = RecallOptions(),  # noqa: B008 -- frozen
        user_sources: Iterable[object] = USER_SOURCES,
        description: str = DESCRIPTION,
    ) -> None:
        super().__init__(name, description)
        self._recaller = Recaller(library, scope, model_client, options)
        self._user_sources = name_sources(user_sources)

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The handoff, as data or as the message of a Swarm."""
        return (StructuredMessage[RecallHandoff], HandoffMessage)

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
        """Recall, and yield each call, result and thought as it happens, then the handoff."""
        inner: list[BaseAgentEvent | BaseChatMessage] = []
        conversation = parse_messages(messages, user_sources=self._user_sources)
        stream = stream_recall(self._recaller, conversation, cancellation_token=cancellation_token)
        async with contextlib.aclosing(stream):
            async for item in stream:
                if isinstance(item, RecallResult):
                    answer = self._answer(messages, item)
                    yield Response(chat_message=answer, inner_messages=inner)
                elif (event := to_agent_event(item, self.name)) is not None:
                    inner.append(event)
                    yield event

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Do nothing: there is no state to reset."""

    def _answer(
        self, messages: Sequence[BaseChatMessage], result: RecallResult
    ) -> StructuredMessage[RecallHandoff] | HandoffMessage:
        metadata = {
            "stop_reason": result.stop_reason.value,
            "trace_id": result.trace.trace_id,
            "iterations": str(result.iterations),
        }
        last = messages[-1] if messages else None
        if isinstance(last, HandoffMessage) and last.target == self.name:
            payload = result.handoff.model_dump_json()
            return HandoffMessage(
                content=result.handoff.message,
                target=last.source,
                source=self.name,
                metadata={**metadata, "handoff": payload},
            )
        return StructuredMessage[RecallHandoff](
            content=result.handoff, source=self.name, metadata=metadata
        )
