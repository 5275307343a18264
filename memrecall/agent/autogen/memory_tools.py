"""Tools for a parent agent: `RecallTool`, and `memory_tools` to manage one user's memories.

The user is bound when the tools are made: no argument names one. What the tools write is recorded
as written by an assistant, whatever the text claims, and everything they do can be undone.
"""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Any

from autogen_agentchat.messages import BaseAgentEvent
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseStreamTool, ToolSchema

from memrecall.agent.autogen.events import stream_events, to_agent_event
from memrecall.agent.dispatch import error_code
from memrecall.agent.driver import Recaller, RecallOptions
from memrecall.agent.prompt_view import to_json
from memrecall.agent.tools.context import Redact, ToolContext
from memrecall.agent.tools.definition import Interface, Tool
from memrecall.agent.tools.memories import MemoryChange, RecallAnswer, RecallToolArguments
from memrecall.agent.tools.models import ToolFailure
from memrecall.agent.tools.names import RECALL
from memrecall.agent.tools.table import TOOLS, SchemaTool, tools_for
from memrecall.agent.trace import Observer
from memrecall.errors import MemrecallError, NotFound
from memrecall.library.library import Library
from memrecall.scope import Scope
from memrecall.types import Language

DESCRIPTION = TOOLS[RECALL].texts("en").description


class RecallTool(BaseStreamTool[RecallToolArguments, BaseAgentEvent, RecallAnswer]):
    """Recall as a tool of a parent agent.

    Calls may run in parallel; a cancelled parent ends them at once.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        *,
        model_client: ChatCompletionClient | None = None,
        options: RecallOptions = RecallOptions(),  # noqa: B008 -- frozen
        name: str = RECALL,
        description: str = DESCRIPTION,
        language: Language = "en",
    ) -> None:
        super().__init__(RecallToolArguments, RecallAnswer, name, description)
        self._tool = TOOLS[RECALL].for_interface(Interface.AUTOGEN)
        self._recaller = Recaller(library, scope, model_client, options)
        self._context = ToolContext(library=library, scope=scope, language=language)

    @property
    def schema(self) -> ToolSchema:
        """The schema for the parent's model."""
        schema = self._tool.parent_schema(self._context.language)
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
        super().__init__(tool, tool.parent_schema(context.language))
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
    model_client: ChatCompletionClient | None = None,
    options: RecallOptions = RecallOptions(),  # noqa: B008 -- frozen
    redact: Redact | None = None,
    language: Language = "en",
) -> list[Any]:  # an agent's list of tools also takes functions
    """Return tools for a parent agent to manage one user's memories.

    They are remember, recall, correct and forget. `redact` is applied to every text before it is
    stored; `model_client` and `options` are those of `recall`; `language` is that of the texts.
    """
    context = ToolContext(library=library, scope=scope, language=language, redact=redact or str)
    tools = tools_for(Interface.AUTOGEN)
    recall = RecallTool(
        library,
        scope,
        model_client=model_client,
        options=options,
        description=tools[RECALL].texts(language).description,
        language=language,
    )
    return [recall if name == RECALL else MemoryTool(tool, context) for name, tool in tools.items()]
