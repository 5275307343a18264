"""The tools of a turn: real ones, bound to its scope, under exactly these names."""

import logging
from collections.abc import Mapping
from functools import cache
from typing import Annotated

from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult
from autogen_core.tools import ToolSchema
from pydantic import BaseModel, ConfigDict, StringConstraints

from memrecall.agent.dispatch import read_arguments, tool_name
from memrecall.agent.tools.table import make_schema
from memrecall.chat.phrases import say
from memrecall.chat.recalls import LONGEST_QUERY, ToolAnswer, TurnRecalls
from memrecall.errors import InvalidArgument
from memrecall.model.prompts import Language

_log = logging.getLogger(__name__)

RECALL = "recall_memory"
OTHERS = "get_other_members_messages"
MENTIONED = "is_mentioned"
SINGLE_TOOLS = (RECALL,)
GROUP_TOOLS = (RECALL, OTHERS, MENTIONED)
_PROMPT = "chat_tools"


class ChatRecallArguments(BaseModel):
    """Arguments of `recall_memory`. The user is fixed: an argument that names one is refused."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class NoArguments(BaseModel):
    """The other tools take none: whose turn it is is fixed."""

    model_config = ConfigDict(extra="forbid")


_INPUTS: dict[str, type[BaseModel]] = {
    RECALL: ChatRecallArguments,
    OTHERS: NoArguments,
    MENTIONED: NoArguments,
}


@cache
def chat_schemas(names: tuple[str, ...], language: Language) -> tuple[ToolSchema, ...]:
    """What a model is shown of these tools, the same object every time."""
    return tuple(make_schema(name, _INPUTS[name], language, prompt=_PROMPT) for name in names)


class Toolbox:
    """The tools of one turn. `answers` are those of the tools that take no arguments."""

    def __init__(
        self,
        recalls: TurnRecalls,
        language: Language,
        answers: Mapping[str, ToolAnswer] | None = None,
        *,
        log_contents: bool = False,
    ) -> None:
        self._answers = dict(answers or {})
        self.names = GROUP_TOOLS if self._answers else SINGLE_TOOLS
        self.recalls = recalls
        self._language = language
        self._log_contents = log_contents

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """What the model is shown."""
        return chat_schemas(self.names, self._language)

    async def force(self, call: FunctionCall) -> FunctionExecutionResult:
        """Run a forged call: the turn's own recall is not held against the model's."""
        if call.name == RECALL:
            answer = await self.recalls.force()
        else:
            answer = self._answers[call.name]
        self._log(call, answer, "forged")
        return _result(call, answer)

    async def run(self, call: FunctionCall) -> FunctionExecutionResult:
        """Run a call of the model; one that cannot be run gets an answer that says why."""
        try:
            answer = await self._run(tool_name(call.name), call.arguments)
        except InvalidArgument as error:
            answer = ToolAnswer(str(error), is_error=True)
        self._log(call, answer, "called")
        return _result(call, answer)

    def _log(self, call: FunctionCall, answer: ToolAnswer, how: str) -> None:
        """Tell what a call brought: names and numbers, and what was said only if that is wished."""
        name = tool_name(call.name)
        _log.info(
            "%s (%s) returned: characters in %d, results %d, characters out %d%s%s",
            name if name in self.names else "an unknown tool",
            how,
            len(call.arguments),
            answer.results,
            len(answer.content),
            ", in vain" if answer.is_error else "",
            f": {call.arguments}" if self._log_contents else "",
        )

    async def _run(self, name: str, arguments: str) -> ToolAnswer:
        if name not in self.names:
            tools = ", ".join(self.names)
            raise InvalidArgument(say(self._language, "unknown_tool", tool=name, tools=tools))
        given = read_arguments(name, arguments, _INPUTS[name], self._language)
        if isinstance(given, ChatRecallArguments):
            return await self.recalls.ask(given.query[:LONGEST_QUERY])
        return self._answers[name]


def _result(call: FunctionCall, answer: ToolAnswer) -> FunctionExecutionResult:
    return FunctionExecutionResult(
        content=answer.content, name=call.name, call_id=call.id, is_error=answer.is_error
    )
