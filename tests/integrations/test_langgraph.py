"""LangGraph and LangChain: nodes, retriever and tools with the real packages."""

import json
from typing import Any

import pytest

from memrecall import AsyncMemory, Memory
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.messages import parse_messages

from .contract import (
    PEANUTS,
    REQUEST,
    SEAT,
    RecallContract,
    ToolContract,
    Turn,
    TurnContract,
    answer_keys,
    block_keys,
    require,
    run_example,
)

require("langgraph")

from langchain_core.language_models import GenericFakeChatModel  # noqa: E402
from langchain_core.messages import (  # noqa: E402
    AIMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402
from langgraph.graph import START, MessagesState, StateGraph  # noqa: E402
from langgraph.prebuilt import ToolNode  # noqa: E402

from memrecall.integrations.langgraph import (  # noqa: E402
    RecallRetriever,
    memory_tools,
    recall_node,
    remember_node,
)

THREAD = {"configurable": {"thread_id": "thread-1"}}


def make_graph(
    memory: Any, *answers: str, is_sync: bool = False, remember: bool = True, **arguments: Any
) -> Any:
    """Return a graph that recalls, answers from a script and remembers."""
    model = GenericFakeChatModel(messages=iter(AIMessage(answer) for answer in answers))

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def answer_sync(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("recall", recall_node(memory, **arguments))
    builder.add_node("answer", answer_sync if is_sync else answer)
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "answer")
    if remember:
        builder.add_node("remember", remember_node(memory))
        builder.add_edge("answer", "remember")
    return builder.compile(checkpointer=InMemorySaver())


def as_user(user: str | None) -> Any:
    return {"configurable": {**THREAD["configurable"], "user": user}}


def ask(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


class TestNodes(TurnContract):
    def user_of(self, context: Any) -> str:
        return str(context["configurable"]["user"])

    async def run_turn(
        self, memory: Any, request: str, *, stream: bool = False, **arguments: Any
    ) -> Turn:
        user = arguments.pop("user", None)
        graph = make_graph(memory, "Port 5433.", remember=False, **arguments)
        if stream:
            states = graph.astream(ask(request), THREAD, stream_mode="values")
            state = [state async for state in states][-1]
        else:
            state = await graph.ainvoke(ask(request), as_user(user))
        *shown, answer = [message.content for message in state["messages"]]
        return Turn(shown, answer)

    async def test_block_is_replaced_and_the_turn_stored(self, memory: AsyncMemory) -> None:
        graph = make_graph(memory, "Port 5433.", "Hello.")
        await graph.ainvoke(ask(REQUEST), THREAD)
        state = await graph.ainvoke(ask("Hello!"), THREAD)
        texts = [message.content for message in state["messages"]]
        assert texts == [REQUEST, "Port 5433.", "Hello!", "Hello."]
        page = await memory.get_all(session_id="thread-1", kinds="messages")
        assert sorted(item["memory"] for item in page["results"]) == sorted(texts)

    async def test_steps_are_streamed(self, memory: AsyncMemory) -> None:
        graph = make_graph(memory, "Port 5433.")
        stream = graph.astream(ask(REQUEST), THREAD, stream_mode="custom")
        kinds = [event["kind"] async for event in stream]
        assert kinds[0] == "start"
        assert "result" in kinds

    @pytest.mark.concurrent
    def test_sync_graph(self, sync_memory: Memory) -> None:
        graph = make_graph(sync_memory, "Port 5433.", is_sync=True)
        events = list(graph.stream(ask(REQUEST), THREAD, stream_mode=["custom", "values"]))
        assert {mode for mode, _ in events} == {"custom", "values"}
        _, block, _ = events[-1][1]["messages"]
        assert block_keys(block.content)
        stored = sync_memory.get_all(session_id="thread-1", kinds="messages")
        assert len(stored["results"]) == 2

    def test_sync_code_needs_a_sync_memory(self, memory: AsyncMemory) -> None:
        with pytest.raises(InvalidArgument, match="sync code cannot wait"):
            recall_node(memory).invoke(ask(REQUEST))


class TestRetriever(RecallContract):
    def user_of(self, context: Any) -> str:
        return str(context["configurable"]["user"])

    def keys(self, text: str) -> list[str]:
        return list(json.loads(text))

    async def recall(self, memory: Any, request: str = REQUEST, **arguments: Any) -> str:
        user = arguments.pop("user", None)
        documents = await RecallRetriever(memory, **arguments).ainvoke(request, as_user(user))
        return json.dumps([document.id for document in documents])

    async def test_nothing_and_failure_differ(self, memory: AsyncMemory, library: Library) -> None:
        retriever = RecallRetriever(memory)
        assert await retriever.ainvoke("What did I say about zebras?") == []
        await library.store.owners.set_user_enabled("ann", False)
        (document,) = await retriever.ainvoke(REQUEST)
        assert document.metadata == {"error": True}

    @pytest.mark.concurrent
    def test_sync(self, sync_memory: Memory) -> None:
        document = RecallRetriever(sync_memory).invoke(REQUEST)[0]
        assert "5433" in document.page_content
        assert document.metadata["certainty"] in ("sure", "possible")


class TestTools(ToolContract):
    def user_of(self, context: Any) -> str:
        return str(context["configurable"]["user"])

    async def call_tool(
        self, memory: Any, name: str, arguments: dict[str, Any], **settings: Any
    ) -> str:
        user = settings.pop("user", None)
        tools = ToolNode(memory_tools(memory, **settings))
        call = AIMessage("", tool_calls=[ToolCall(name=name, args=arguments, id="1")])
        graph = StateGraph(MessagesState).add_node("tools", tools).add_edge(START, "tools")
        state = await graph.compile().ainvoke({"messages": [call]}, as_user(user))
        return str(state["messages"][-1].content)

    @pytest.mark.concurrent
    def test_sync(self, sync_memory: Memory) -> None:
        tool = {tool.name: tool for tool in memory_tools(sync_memory)}["recall"]
        assert answer_keys(tool.invoke({"query": REQUEST}))


def test_messages_are_read() -> None:
    calls = [ToolCall(name="recall", args={"query": "tea"}, id="1")]
    messages = [
        SystemMessage("Be brief."),
        HumanMessage([{"type": "text", "text": "Hi"}], name="Ann", id="m1"),
        AIMessage("", tool_calls=calls),
        ToolMessage("[]", tool_call_id="1"),
        FunctionMessage("42", name="f"),
        AIMessage("Hello", tool_calls=calls),
    ]
    parsed = parse_messages(messages)
    assert [(message.role.value, message.text) for message in parsed] == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("tool", "[]"),
        ("tool", "42"),
        ("assistant", "Hello"),
    ]
    assert (parsed[1].speaker, parsed[1].message_id) == ("Ann", "m1")
    assert parsed[4].metadata["tool_calls"][0]["name"] == "recall"


@pytest.mark.concurrent
def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("langgraph_agent.py", monkeypatch, capsys)
    assert lines == [f"node:  You said: “{PEANUTS}”", f"tools: You said: “{SEAT}”"]
