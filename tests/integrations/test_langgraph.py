"""LangGraph and LangChain: store, nodes, retriever and tools with the real packages."""

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
from langgraph.store.base import BaseStore, GetOp, PutOp, SearchOp  # noqa: E402

from memrecall.integrations.langgraph import (  # noqa: E402
    RecallRetriever,
    memory_tools,
    recall_node,
    remember_node,
)
from memrecall.integrations.langgraph_store import MemoryStore  # noqa: E402

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


def ask(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


class TestNodes(TurnContract):
    async def run_turn(
        self, memory: Any, request: str, *, stream: bool = False, **arguments: Any
    ) -> Turn:
        graph = make_graph(memory, "Port 5433.", remember=False, **arguments)
        if stream:
            states = graph.astream(ask(request), THREAD, stream_mode="values")
            state = [state async for state in states][-1]
        else:
            state = await graph.ainvoke(ask(request), THREAD)
        *shown, answer = [message.content for message in state["messages"]]
        return Turn(shown, answer)

    async def test_block_is_replaced_and_the_turn_stored(self, memory: AsyncMemory) -> None:
        graph = make_graph(memory, "Port 5433.", "Hello.")
        await graph.ainvoke(ask(REQUEST), THREAD)
        state = await graph.ainvoke(ask("Hello!"), THREAD)
        texts = [message.content for message in state["messages"]]
        assert texts == [REQUEST, "Port 5433.", "Hello!", "Hello."]
        page = await memory.get_all(session_id="thread-1", messages=True)
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
        stored = sync_memory.get_all(session_id="thread-1", messages=True)
        assert len(stored["results"]) == 2

    def test_sync_code_needs_a_sync_memory(self, memory: AsyncMemory) -> None:
        with pytest.raises(InvalidArgument, match="sync code cannot wait"):
            recall_node(memory).invoke(ask(REQUEST))


class TestStore:
    async def test_put_get_update_delete(self, memory: AsyncMemory) -> None:
        store = MemoryStore(memory)
        value = {"text": "Ann drinks tea", "tags": ["drink"], "detail": {"cups": 2}, "stars": 5}
        await store.aput(("notes", "food"), "tea", value)
        item = await store.aget(("notes", "food"), "tea")
        assert item is not None
        assert (item.namespace, item.key, item.value) == (("notes", "food"), "tea", value)

        await store.aput(("notes", "food"), "tea", {"text": "Ann drinks coffee"})
        changed = await store.aget(("notes", "food"), "tea")
        assert changed is not None
        assert changed.value == {"text": "Ann drinks coffee"}
        assert await store.asearch(("notes",), filter={"stars": 5}) == []
        assert changed.created_at == item.created_at
        assert await store.aget(("notes",), "tea") is None

        await store.adelete(("notes", "food"), "tea")
        await store.adelete(("notes", "food"), "tea")
        assert await store.aget(("notes", "food"), "tea") is None
        await store.aput(("notes", "food"), "tea", {"text": "茉莉花茶"})
        again = await store.aget(("notes", "food"), "tea")
        assert again is not None
        assert again.value == {"text": "茉莉花茶"}

    async def test_search(self, memory: AsyncMemory) -> None:
        store = MemoryStore(memory)
        await store.aput(("notes", "food"), "tea", {"text": "Ann drinks jasmine tea", "stars": 5})
        await store.aput(("notes", "food"), "egg", {"text": "Ann eats boiled eggs", "stars": 3})
        await store.aput(("notes", "car"), "car", {"text": "Ann drives a jasmine car", "stars": 1})
        found = await store.asearch(("notes", "food"), query="jasmine")
        assert found[0].key == "tea"
        assert found[0].score
        assert "car" not in [item.key for item in found]

        async def keys(**options: Any) -> list[str]:
            return sorted(item.key for item in await store.asearch(("notes",), **options))

        assert await keys() == ["car", "egg", "tea"]
        assert await keys(filter={"stars": {"$gte": 3}}) == ["egg", "tea"]
        assert await keys(filter={"stars": 5}) == ["tea"]
        assert await keys(filter={"stars": {"$ne": 5}}) == ["car", "egg"]
        pages = [await keys(limit=2), await keys(limit=2, offset=2)]
        assert [len(page) for page in pages] == [2, 1]
        assert sorted(pages[0] + pages[1]) == ["car", "egg", "tea"]
        assert await store.asearch(("other",)) == []

    async def test_search_beyond_its_limit_is_refused(self, memory: AsyncMemory) -> None:
        store = MemoryStore(memory)
        await store.aput(("notes",), "tea", {"text": "Ann drinks jasmine tea"})
        assert len(await store.asearch((), query="tea", limit=200)) == 1
        assert len(await store.asearch((), limit=500)) == 1
        with pytest.raises(InvalidArgument, match=r"the best 200 items; .* ask for 201"):
            await store.asearch((), query="tea", limit=200, offset=1)

    async def test_index_decides_what_is_searched(self, memory: AsyncMemory) -> None:
        store = MemoryStore(memory)
        value = {"title": "Kettle", "secret": "xylophone"}
        await store.aput(("a",), "1", value, index=["title"])
        await store.aput(("a",), "2", value, index=False)
        assert await store.asearch(("a",), query="xylophone") == []
        assert [item.key for item in await store.asearch(("a",), query="kettle")] == ["1"]
        assert len(await store.asearch(("a",))) == 2

    async def test_namespaces(self, memory: AsyncMemory) -> None:
        store = MemoryStore(memory)
        for namespace in (("a", "x"), ("a", "y", "z"), ("b", "x")):
            await store.aput(namespace, "k", {"text": "t"})
        names = store.alist_namespaces
        assert await names() == [("a", "x"), ("a", "y", "z"), ("b", "x")]
        assert await names(prefix=("a",), max_depth=2) == [("a", "x"), ("a", "y")]
        assert await names(suffix=("*", "x")) == [("a", "x"), ("b", "x")]
        assert await names(limit=1, offset=1) == [("a", "y", "z")]

    async def test_batch_reads_before_it_writes(self, memory: AsyncMemory) -> None:
        store = MemoryStore(memory)
        ops = [
            PutOp(("a",), "k", {"text": "one"}),
            GetOp(("a",), "k"),
            PutOp(("a",), "k", {"text": "two"}),
            SearchOp(("a",)),
        ]
        assert await store.abatch(ops) == [None, None, None, []]
        item = await store.aget(("a",), "k")
        assert item is not None
        assert item.value == {"text": "two"}

    async def test_items_belong_to_the_bound_user_and_agent(self, library: Library) -> None:
        for user, agent in (("ann", None), ("ann", "cook"), ("ben", None)):
            store = MemoryStore(AsyncMemory(library=library, user_id=user, agent_id=agent))
            await store.aput(("users", "ann"), "k", {"text": f"by {user} {agent}"})
        ben = MemoryStore(AsyncMemory(library=library, user_id="ben"))
        cook = MemoryStore(AsyncMemory(library=library, user_id="ann", agent_id="cook"))
        assert [i.value["text"] for i in await ben.asearch(("users", "ann"))] == ["by ben None"]
        assert [i.value["text"] for i in await cook.asearch(())] == ["by ann cook"]

    async def test_items_are_recalled(self, memory: AsyncMemory) -> None:
        await MemoryStore(memory).aput(("a",), "k", {"text": "Ann's boat is called Petunia"})
        result = await memory.recall("What is my boat called?")
        assert "Petunia" in result.memories[0].content

    @pytest.mark.concurrent
    async def test_sync_and_async_in_one_store(self, sync_memory: Memory) -> None:
        store = MemoryStore(sync_memory)
        store.put(("a",), "k", {"text": "tea"})
        item = await store.aget(("a",), "k")
        assert item is not None
        assert item == store.get(("a",), "k")
        assert [found.key for found in store.search(("a",), query="tea")] == ["k"]

    async def test_store_of_a_compiled_graph(self, memory: AsyncMemory) -> None:
        async def note(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
            await store.aput(("notes",), "last", {"text": state["messages"][-1].content})
            return {}

        builder = StateGraph(MessagesState).add_node("note", note).add_edge(START, "note")
        store = MemoryStore(memory)
        await builder.compile(store=store).ainvoke(ask("I drink tea"))
        item = await store.aget(("notes",), "last")
        assert item is not None
        assert item.value == {"text": "I drink tea"}


class TestRetriever(RecallContract):
    def keys(self, text: str) -> list[str]:
        return list(json.loads(text))

    async def recall(self, memory: Any, **arguments: Any) -> str:
        documents = await RecallRetriever(memory, **arguments).ainvoke(REQUEST)
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
    async def call_tool(
        self, memory: Any, name: str, arguments: dict[str, Any], **settings: Any
    ) -> str:
        tools = ToolNode(memory_tools(memory, **settings))
        call = AIMessage("", tool_calls=[ToolCall(name=name, args=arguments, id="1")])
        graph = StateGraph(MessagesState).add_node("tools", tools).add_edge(START, "tools")
        state = await graph.compile().ainvoke({"messages": [call]})
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
    assert lines == [f"node:  You said: “{PEANUTS}”", f"tools: You said: “{SEAT}”", "store: drink"]
