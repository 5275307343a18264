"""The tools of a turn, bound to its scope."""

import logging
from collections.abc import Mapping

from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult
from autogen_core.tools import ToolSchema

from memrecall.agent.dispatch import normalize_tool_name, parse_arguments
from memrecall.agent.prompt_view import render
from memrecall.agent.tools.chat import RECALL_MEMORY
from memrecall.agent.tools.context import TurnContext
from memrecall.agent.tools.definition import Interface
from memrecall.agent.tools.models import TextAnswer
from memrecall.agent.tools.table import function_schemas, tools_for
from memrecall.chat.phrases import say
from memrecall.chat.recalls import TurnRecalls
from memrecall.errors import InvalidArgument, MemrecallError
from memrecall.types import Language

_log = logging.getLogger(__name__)

SINGLE_TOOLS = tuple(tools_for(Interface.CHAT))
GROUP_TOOLS = tuple(tools_for(Interface.GROUP_CHAT))


class TurnTools:
    """The tools of one turn; `answers` are those of the group's tools without arguments."""

    def __init__(
        self,
        recalls: TurnRecalls,
        language: Language,
        answers: Mapping[str, TextAnswer] | None = None,
        *,
        log_contents: bool = False,
    ) -> None:
        self.recalls = recalls
        self._interface = Interface.GROUP_CHAT if answers else Interface.CHAT
        self._context = TurnContext(
            library=recalls.recaller.library,
            scope=recalls.recaller.scope,
            language=language,
            recall_query=recalls.ask,
            answers=dict(answers or {}),
        )
        self._log_contents = log_contents

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(tools_for(self._interface))

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The schemas for the model."""
        return function_schemas(self._interface, self._context.language)

    async def force(self, call: FunctionCall) -> FunctionExecutionResult:
        """Run a forged call; its recall does not count as one of the model's."""
        if call.name == RECALL_MEMORY:
            answer = await self.recalls.force()
        else:
            answer = self._context.answers[call.name]
        self._log(call, answer, "forged")
        return _result(call, answer)

    async def run(self, call: FunctionCall) -> FunctionExecutionResult:
        """Run a call of the model; an invalid call gets an error result."""
        try:
            answer = await self._run(normalize_tool_name(call.name), call.arguments)
        except MemrecallError as error:
            answer = TextAnswer(content=str(error), is_error=True)
        self._log(call, answer, "called")
        return _result(call, answer)

    def _log(self, call: FunctionCall, answer: TextAnswer, how: str) -> None:
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
            f": {call.arguments}" if self._log_contents else "",
        )

    async def _run(self, name: str, text: str) -> TextAnswer:
        tools, language = tools_for(self._interface), self._context.language
        if name not in tools:
            message = say(language, "unknown_tool", tool=name, tools=", ".join(tools))
            raise InvalidArgument(message)
        arguments = parse_arguments(name, text, tools[name].arguments, language)
        result = await tools[name].run(self._context, arguments)
        if isinstance(result, TextAnswer):
            return result
        return TextAnswer(content=render(result, language))


def _result(call: FunctionCall, answer: TextAnswer) -> FunctionExecutionResult:
    return FunctionExecutionResult(
        content=answer.content, name=call.name, call_id=call.id, is_error=answer.is_error
    )
