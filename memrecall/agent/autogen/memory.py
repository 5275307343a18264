"""One user's memories for a parent agent: tools, and AutoGen's `Memory` protocol.

The user is bound when an object is made: no argument names one. What the tools write is recorded
as written by an assistant, whatever the text claims, and everything they do can be undone.
"""

import contextlib
import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from autogen_agentchat.messages import BaseAgentEvent
from autogen_core import CancellationToken
from autogen_core.memory import (
    Memory,
    MemoryContent,
    MemoryMimeType,
    MemoryQueryResult,
    UpdateContextResult,
)
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import AssistantMessage, LLMMessage
from autogen_core.tools import BaseStreamTool, ToolSchema

from memrecall.agent.autogen.agent import to_agent_event
from memrecall.agent.autogen.context import MemoryContext
from memrecall.agent.blocks import BlockRecaller
from memrecall.agent.dispatch import error_code
from memrecall.agent.driver import RecallArguments, Recaller
from memrecall.agent.offline.needs import RecallWhen
from memrecall.agent.phrases import say
from memrecall.agent.prompt_view import (
    BLOCK_CHARACTERS,
    block_message,
    is_block_message,
    to_json,
)
from memrecall.agent.result import RecalledMemory, RecallResult
from memrecall.agent.tools import RECALL
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.definition import Interface, Tool
from memrecall.agent.tools.memories import MemoryChange
from memrecall.agent.tools.models import ToolFailure
from memrecall.agent.tools.recall import RecallAnswer, RecallToolArguments
from memrecall.agent.tools.table import TOOLS, tools_for
from memrecall.agent.trace import Observer, stream_events
from memrecall.errors import (
    CassetteMismatch,
    InvalidArgument,
    MemrecallError,
    NotFound,
    ScriptExhausted,
)
from memrecall.library.library import Library
from memrecall.messages import USER_SOURCES
from memrecall.model import SchemaTool
from memrecall.scope import Scope
from memrecall.types import Language, NewMemory, Origin, format_time

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
                return _unchanged(error)
            return ToolFailure(error=error_code(error), message=str(error))

    def return_value_as_string(self, value: Any) -> str:
        """Return the answer as JSON with readable letters."""
        if isinstance(value, ToolFailure):
            return to_json(value.as_json())
        return to_json(value.model_dump(exclude_defaults=True))


def _unchanged(error: MemrecallError) -> MemoryChange:
    """Return the answer of a tool that could not write."""
    note = f"Nothing was changed: {error.message}"
    if isinstance(error, NotFound):
        note = "There is no such memory. Use a key that recall returned."
    return MemoryChange(done=False, note=note)


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
    contents = [_content(memory, result.withheld) for memory in result.memories]
    if result.withheld and not contents:
        contents = [
            MemoryContent(
                content=say(result.language, "matches_withheld", count=result.withheld),
                mime_type=MemoryMimeType.TEXT,
                metadata={"kind": "withheld", "withheld": result.withheld},
            )
        ]
    return MemoryQueryResult(results=contents)


def _content(memory: RecalledMemory, withheld: int) -> MemoryContent:
    metadata = {
        "memory_key": memory.memory_key,
        "kind": memory.kind,
        "memory_type": memory.memory_type,
        "score": memory.relevance_score,
        "certainty": memory.certainty.value,
        "speaker": memory.speaker or memory.role,
        "said_at": format_time(memory.ts),
        "withheld": withheld,
    }
    return MemoryContent(content=memory.content, mime_type=MemoryMimeType.TEXT, metadata=metadata)
