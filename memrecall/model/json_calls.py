"""Tool calls for servers without them: the model writes each call as a JSON object.

The server enforces a JSON schema (llama.cpp, vLLM and Ollama can), the tools are described as text,
and earlier calls and their results become plain messages.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    SystemMessage,
    UserMessage,
)

from memrecall.model.client import AnyTool, BaseClient, Part, Request, tool_schema
from memrecall.model.failures import create_accepted
from memrecall.model.protocol import count_tool_calls
from memrecall.model.structured import repair_json

_PROTOCOL = """\
You act by calling one tool at a time. Answer with one JSON object and nothing else:
{"tool": NAME, "arguments": {...}}
The next message brings the result. The tools, each with the JSON schema of its arguments:
"""


class JsonCallClient(BaseClient):
    """A client that adds tool calls to one that supports only JSON schemas.

    With `tool_choice` "auto" the model may also answer with text; with "none", or without tools,
    requests are forwarded unchanged. Calls have the ids `call_1`, `call_2`, … of the history.
    """

    def __init__(self, inner: ChatCompletionClient) -> None:
        info = ModelInfo(**{**inner.model_info, "function_calling": True})
        super().__init__(str(getattr(inner, "model", info["family"])), info)
        self._inner = inner

    async def close(self) -> None:
        """Close the inner client."""
        await self._inner.close()

    async def _answer(self, request: Request) -> CreateResult:
        answer = await create_accepted(self._inner, _as_text(request), **_without_tools(request))
        if not _may_call(request):
            return answer
        return _parse_answer(answer, count_tool_calls(request.messages))

    async def _stream(self, request: Request) -> AsyncGenerator[Part, None]:
        if _may_call(request):  # pieces of a JSON object are useless to the caller
            async for part in super()._stream(request):
                yield part
            return
        parts = self._inner.create_stream(_as_text(request), **_without_tools(request))
        async with aclosing(parts):
            async for part in parts:
                yield part


def _may_call(request: Request) -> bool:
    return bool(request.tools) and request.tool_choice != "none"


def _without_tools(request: Request) -> dict[str, Any]:
    arguments = request.arguments()
    del arguments["tools"], arguments["tool_choice"]
    if _may_call(request):
        arguments["json_output"] = None
        response_format = {"response_format": _response_format(request)}
        arguments["extra_create_args"] = {**arguments["extra_create_args"], **response_format}
    return arguments


def _as_text(request: Request) -> list[LLMMessage]:
    """Return the messages without calls, with the tools after the system message."""
    messages = [_message_as_text(message) for message in request.messages]
    if not request.tools:
        return messages
    # Included even if none may be called, so that all requests have the same start.
    instructions = _PROTOCOL + "\n".join(map(_schema_as_text, request.tools))
    if messages and isinstance(messages[0], SystemMessage):
        messages[0] = SystemMessage(content=f"{messages[0].content}\n\n{instructions}")
        return messages
    return [SystemMessage(content=instructions), *messages]


def _schema_as_text(tool: AnyTool) -> str:
    schema: Mapping[str, Any] = tool_schema(tool)
    fields = {key: schema[key] for key in ("name", "description", "parameters") if key in schema}
    return json.dumps(fields, ensure_ascii=False)


def _message_as_text(message: LLMMessage) -> LLMMessage:
    if isinstance(message, FunctionExecutionResultMessage):
        return UserMessage(
            content="\n\n".join(map(_result_as_text, message.content)), source="tool"
        )
    if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
        text = "\n".join(_call_as_text(call) for call in message.content)
        return AssistantMessage(content=text, thought=message.thought, source=message.source)
    return message


def _call_as_text(call: FunctionCall) -> str:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return json.dumps({"tool": call.name, "arguments": arguments}, ensure_ascii=False)


def _result_as_text(result: FunctionExecutionResult) -> str:
    outcome = "failed" if result.is_error else "gave"
    return f"{result.name} ({result.call_id}) {outcome}:\n{result.content}"


def _response_format(request: Request) -> dict[str, Any]:
    schemas: list[Mapping[str, Any]] = [tool_schema(tool) for tool in request.tools]
    if request.forced is not None:
        schemas = [schema for schema in schemas if schema["name"] == request.tool_choice]
    default = {"type": "object"}
    alternatives = [
        _object({"tool": {"const": schema["name"]}, "arguments": schema.get("parameters", default)})
        for schema in schemas
    ]
    if request.tool_choice == "auto":
        alternatives.append(_object({"answer": {"type": "string"}}))
    schema = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
    return {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _parse_answer(answer: CreateResult, earlier_calls: int) -> CreateResult:
    if not isinstance(answer.content, str):
        return answer
    try:
        value = repair_json(answer.content)
    except ValueError:
        return answer
    if not isinstance(value, dict):
        return answer
    if isinstance(value.get("tool"), str):
        arguments = value.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments or {}, ensure_ascii=False)
        number = earlier_calls + 1
        call = FunctionCall(id=f"call_{number}", name=value["tool"], arguments=arguments)
        return answer.model_copy(update={"content": [call], "finish_reason": "function_calls"})
    if isinstance(value.get("answer"), str):
        return answer.model_copy(update={"content": value["answer"]})
    return answer
