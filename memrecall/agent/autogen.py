"""Recall in AutoGen: an agent, a model context, tools of a parent agent, and a memory.

The user is bound when an object is made: no argument names one. What the tools write is recorded
as written by an assistant, whatever the text claims, and everything they do can be undone.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
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
from autogen_core.memory import (
    Memory,
    MemoryContent,
    MemoryMimeType,
    MemoryQueryResult,
    UpdateContextResult,
)
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    LLMMessage,
    RequestUsage,
    UserMessage,
)
from autogen_core.tools import BaseStreamTool, ToolSchema
from pydantic import BaseModel, Field

from memrecall.agent.blocks import (
    BLOCK_CHARACTERS,
    BlockRecaller,
    block_message,
    is_block_message,
    write_parent_message,
)
from memrecall.agent.conversation import LARGEST_WINDOW, RecallWhen
from memrecall.agent.driver import RecallArguments, Recaller, stream_recall, utc_now
from memrecall.agent.phrases import say, to_json
from memrecall.agent.result import RecallHandoff, RecallResult, StopReason
from memrecall.agent.tools import RECALL
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.memories import MemoryChange, RecallAnswer, RecallToolArguments
from memrecall.agent.tools.models import ToolFailure
from memrecall.agent.tools.table import TOOLS, Interface, Tool, error_code, tools_for
from memrecall.agent.trace import (
    CallEvent,
    Observer,
    ResultEvent,
    ThoughtEvent,
    TraceEvent,
    stream_events,
)
from memrecall.errors import (
    CassetteMismatch,
    InvalidArgument,
    MemrecallError,
    NotFound,
    ScriptExhausted,
)
from memrecall.library.library import Library
from memrecall.messages import (
    USER_SOURCES,
    ConversationMessage,
    name_source,
    name_sources,
    parse_messages,
)
from memrecall.model import SchemaTool
from memrecall.scope import Scope
from memrecall.text.language import language_of
from memrecall.types import Language, NewMemory, Origin, Role, format_time

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
                    # With the name before it, the text differs from a stored message, which would
                    # hide it. A turn that fails is not kept: its messages come again.
                    text = f"{self.name}: {item.handoff.search_summary}"
                    own = ConversationMessage(Role.OTHER, text, speaker=self.name)
                    self._conversation = [*self._conversation, *new, own][-LARGEST_WINDOW:]
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


class MemoryContextState(BaseModel):
    """The saved state: the messages, and the block that was recalled for one of them."""

    messages: list[LLMMessage] = Field(default_factory=list)
    blocks: dict[int, str] = Field(default_factory=dict)


class MemoryContext(ChatCompletionContext):
    """The messages of one conversation, with what the last user message refers to.

    `recall` can be called by itself. As a context, `get_messages` recalls at most once for one user
    message and inserts the result before it as one block of data. `when="always"` recalls for every
    text of the user; "auto" leaves out greetings, thanks and acknowledgements.
    `observer` gets each event of a recall as it happens. AutoGen passes a context no
    cancellation token: set the token of the parent's run as `cancellation_token`; cancelling it
    ends the recall.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        *,
        initial_messages: list[LLMMessage] | None = None,
        user_sources: Iterable[object] = USER_SOURCES,
        block_characters: int = BLOCK_CHARACTERS,
        when: RecallWhen = "auto",
        **arguments: Unpack[RecallArguments],
    ) -> None:
        super().__init__(initial_messages)
        self._recaller = Recaller(library, scope, **arguments)
        self._block_recaller = BlockRecaller(
            self._recaller, user_sources, block_characters, when=when
        )
        self._blocks: dict[int, str] = {}  # by the index of the user message
        self._lock = asyncio.Lock()
        self.last_result: RecallResult | None = None
        self.cancellation_token: CancellationToken | None = None

    async def recall(
        self,
        messages: object,
        *,
        as_of: datetime | None = None,
        observer: Observer | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> RecallResult:
        """Find what the last user message of a conversation refers to."""
        conversation = parse_messages(messages, user_sources=self._block_recaller.user_sources)
        return await self._recaller.recall(
            conversation,
            as_of=as_of,
            observer=observer,
            cancellation_token=cancellation_token or self.cancellation_token,
        )

    def serves(self, recaller: Recaller) -> bool:
        """Return True if the context recalls from the same data for the same scope."""
        own = self._recaller
        return own.library is recaller.library and own.scope == recaller.scope

    async def get_messages(self) -> list[LLMMessage]:
        """Return the messages, with the recalled block before the last user message."""
        messages = list(self._messages)
        index = self._block_recaller.last_request(messages)
        if index is None:
            return messages
        blocks = self._blocks  # `clear` replaces the dict: a late recall is not for what follows
        async with self._lock:  # a second caller waits for the recall of the first
            if (block := blocks.get(index)) is None:
                self.last_result = None
                block, self.last_result = await self._block_recaller.recall_block(
                    messages[: index + 1], self.cancellation_token
                )
                blocks.clear()
                result = self.last_result
                if result is None or result.stop_reason is not StopReason.CANCELLED:
                    blocks[index] = block  # after a cancelled one, the next run recalls again
        if block:
            messages.insert(index, block_message(block))
        return messages

    async def clear(self) -> None:
        """Remove the messages and the recalled block; nothing stored is touched."""
        await super().clear()
        self._blocks = {}
        self.last_result = None

    async def save_state(self) -> Mapping[str, Any]:
        """Return the messages and the recalled block as JSON."""
        state = MemoryContextState(messages=self._messages, blocks=self._blocks)
        return state.model_dump(mode="json")

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the messages and the block of a saved state."""
        loaded = MemoryContextState.model_validate(state)
        self._messages = loaded.messages
        self._blocks = loaded.blocks


TOOL_DESCRIPTION = TOOLS[RECALL].texts("en").description
_TEXT_TYPES = (MemoryMimeType.TEXT.value, MemoryMimeType.MARKDOWN.value, MemoryMimeType.JSON.value)


class RecallTool(BaseStreamTool[RecallToolArguments, BaseAgentEvent, RecallAnswer]):
    """Recall as a tool of a parent agent.

    Calls may run in parallel; a cancelled parent ends them at once.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        *,
        name: str = RECALL,
        description: str = TOOL_DESCRIPTION,
        language: Language = "en",
        **arguments: Unpack[RecallArguments],
    ) -> None:
        super().__init__(RecallToolArguments, RecallAnswer, name, description)
        self._tool = TOOLS[RECALL].for_interface(Interface.AUTOGEN)
        self._recaller = Recaller(library, scope, **arguments)
        self._context = ToolContext(library=library, scope=scope, language=language)

    @property
    def schema(self) -> ToolSchema:
        """The schema for the parent's model."""
        schema = self._tool.function_schema(self._context.language)
        return ToolSchema({**schema, "name": self.name, "description": self.description})

    async def run_stream(
        self, args: RecallToolArguments, cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | RecallAnswer, None]:
        """Recall, and yield its events to the parent's stream before the answer."""
        stream = stream_events(lambda observer: self.run(args, cancellation_token, observer))
        async with contextlib.aclosing(stream):
            async for item in stream:
                if isinstance(item, RecallAnswer):
                    yield item
                elif (event := to_agent_event(item, self.name)) is not None:
                    yield event

    async def run(
        self,
        args: RecallToolArguments,
        cancellation_token: CancellationToken,
        observer: Observer | None = None,
    ) -> RecallAnswer:
        """Recall; a cancelled token and a failure are answers, because the parent waits for one."""
        recall = partial(
            self._recaller.recall, cancellation_token=cancellation_token, observer=observer
        )
        try:
            answer = await self._tool.run(replace(self._context, recall=recall), args)
        except (CassetteMismatch, ScriptExhausted):
            raise  # an error of whoever records or scripts the run
        except MemrecallError as error:
            return RecallAnswer.from_error(error)
        assert isinstance(answer, RecallAnswer)  # noqa: S101 -- the table's result model
        return answer

    def return_value_as_string(self, value: RecallAnswer) -> str:
        """Return the answer as JSON with readable letters."""
        return to_json(value.model_dump(exclude_none=True))


class MemoryTool(SchemaTool):
    """A tool of the table for a parent agent. A cancelled parent does not interrupt a write."""

    def __init__(self, tool: Tool, context: ToolContext) -> None:
        super().__init__(tool.function_schema(context.language), tool.arguments, tool.result)
        self._tool = tool
        self._context = context

    async def run(self, args: Any, cancellation_token: CancellationToken) -> Any:
        """Run the tool; an error becomes an answer, because the parent waits for one."""
        try:
            return await self._tool.run(self._context, args)
        except MemrecallError as error:
            if self._tool.writes:
                note = f"Nothing was changed: {error.message}"
                if isinstance(error, NotFound):
                    note = "There is no such memory. Use a key that recall returned."
                return MemoryChange(done=False, note=note)
            return ToolFailure(error=error_code(error), message=str(error))

    def return_value_as_string(self, value: Any) -> str:
        """Return the answer as JSON with readable letters."""
        if isinstance(value, ToolFailure):
            return to_json(value.as_json())
        return to_json(value.model_dump(exclude_defaults=True))


def memory_tools(
    library: Library,
    scope: Scope,
    *,
    language: Language = "en",
    **arguments: Unpack[RecallArguments],
) -> list[Any]:  # an agent's list of tools also takes functions
    """Return tools for a parent agent to manage one user's memories.

    They are remember, recall, correct and forget. `language` is the language of their texts; the
    other arguments go to `recall`.
    """
    context = ToolContext(library=library, scope=scope, language=language)
    tools = tools_for(Interface.AUTOGEN)
    recall = RecallTool(
        library,
        scope,
        description=tools[RECALL].texts(language).description,
        language=language,
        **arguments,
    )
    return [recall if name == RECALL else MemoryTool(tool, context) for name, tool in tools.items()]


class RecallMemory(Memory):
    """A memory for a parent agent's `memory=[...]`.

    Each turn adds at most one message of data to the parent's context, before the model is called.
    With `when="auto"`, greetings, thanks and acknowledgements add none;
    with "always", every text of the user is recalled for. `update_context` gets no cancellation
    token from AutoGen: set the token of the parent's run as `cancellation_token`.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        *,
        user_sources: Iterable[object] = USER_SOURCES,
        block_characters: int = BLOCK_CHARACTERS,
        when: RecallWhen = "auto",
        **arguments: Unpack[RecallArguments],
    ) -> None:
        self._recaller = Recaller(library, scope, **arguments)
        self.cancellation_token: CancellationToken | None = None
        self._block_recaller = BlockRecaller(
            self._recaller, user_sources, block_characters, "after", when
        )

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Recall for the last user message, and add the result to the context as one message."""
        messages = await model_context.get_messages()
        if isinstance(model_context, MemoryContext) and model_context.serves(self._recaller):
            # Its block is for the same user: a second one would repeat it.
            last = model_context.last_result
            shown = MemoryQueryResult(results=[]) if last is None else _query_result(last)
            return UpdateContextResult(memories=shown)
        index = self._block_recaller.last_request(messages)
        block, result = "", None
        if index is not None and not any(map(_is_answer, messages[index + 1 :])):
            block, result = await self._block_recaller.recall_block(
                messages[: index + 1], self.cancellation_token
            )
        if block:
            await model_context.add_message(block_message(block))
        memories = MemoryQueryResult(results=[]) if result is None else _query_result(result)
        return UpdateContextResult(memories=memories)

    async def query(
        self,
        query: str | MemoryContent,
        cancellation_token: CancellationToken | None = None,
        **kwargs: Any,
    ) -> MemoryQueryResult:
        """Recall what a text refers to."""
        text = query if isinstance(query, str) else _text_of(query)
        token = cancellation_token or self.cancellation_token
        result = await self._recaller.recall(text, cancellation_token=token)
        return _query_result(result)

    async def add(
        self, content: MemoryContent, cancellation_token: CancellationToken | None = None
    ) -> None:
        """Store a text, a Markdown text or a JSON object as a memory."""
        memory = NewMemory(content=_text_of(content), metadata=dict(content.metadata or {}))
        await self._recaller.library.add_memories(
            self._recaller.scope, [memory], origin=Origin.ASSISTANT, actor="autogen"
        )

    async def clear(self) -> None:
        """Hide the memories of this scope, and the messages that they come from."""
        with contextlib.suppress(NotFound):  # the user has no data
            await self._recaller.library.changes(self._recaller.scope).delete_all()

    async def close(self) -> None:
        """Do nothing: the library belongs to whoever opened it."""


def _is_answer(message: LLMMessage) -> bool:
    """Return True for a message that shows that the request before it has had its recall."""
    return isinstance(message, AssistantMessage) or is_block_message(message)


def _text_of(memory: MemoryContent) -> str:
    mime_type, content = memory.mime_type, memory.content
    kind = mime_type.value if isinstance(mime_type, MemoryMimeType) else mime_type
    if isinstance(content, str) and kind in _TEXT_TYPES:
        return content
    if isinstance(content, dict) and kind == MemoryMimeType.JSON.value:
        return json.dumps(content, ensure_ascii=False)
    raise InvalidArgument(
        f"content of type {type(content).__name__} and MIME type {kind} is not text",
        hint="Use text, markdown or JSON",
    )


def _query_result(result: RecallResult) -> MemoryQueryResult:
    """Return the memories; if none may be shown, a note that some are withheld."""
    contents = [
        MemoryContent(
            content=memory.content,
            mime_type=MemoryMimeType.TEXT,
            metadata={
                "memory_key": memory.memory_key,
                "kind": memory.kind,
                "memory_type": memory.memory_type,
                "score": memory.relevance_score,
                "certainty": memory.certainty.value,
                "speaker": memory.speaker or memory.role,
                "said_at": format_time(memory.ts),
                "withheld": result.withheld,
            },
        )
        for memory in result.memories
    ]
    if result.withheld and not contents:
        contents = [
            MemoryContent(
                content=say(result.language, "matches_withheld", count=result.withheld),
                mime_type=MemoryMimeType.TEXT,
                metadata={"kind": "withheld", "withheld": result.withheld},
            )
        ]
    return MemoryQueryResult(results=contents)
