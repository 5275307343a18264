"""A graph of LangGraph that recalls before it answers, and an agent with tools.

The memory is bound to a user when it is created. `Memory` serves sync and async graphs. The model
is a script; with a real one, replace `ScriptedModel()` by a chat model of LangChain.
"""

from typing import Any

from history import opened_memory, quote_memories
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import Field

from memrecall import Memory
from memrecall.integrations.langgraph import memory_tools, recall_node, remember_node


class ScriptedModel(BaseChatModel):
    """A model that plays its calls, then quotes the memories in its request."""

    calls: list[ToolCall] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        answer = AIMessage(quote_memories(message.text for message in messages))
        if self.calls:
            answer = AIMessage("", tool_calls=[self.calls.pop()])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def recall_before_the_answer(memory: Memory) -> None:
    """Run a graph whose first node recalls and whose last one stores the turn."""
    model = ScriptedModel()

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_sequence(
        [("recall", recall_node(memory)), ("answer", answer), ("remember", remember_node(memory))]
    )
    graph = builder.add_edge(START, "recall").compile()
    state = graph.invoke({"messages": [HumanMessage("我之前说过我对什么东西过敏，不能点什么菜？")]})
    print(f"node:  {state['messages'][-1].text}")


def recall_as_tool(memory: Memory) -> None:
    """Run a graph whose model calls the tool `recall`."""
    query = {"query": "Which seat did I say I take on trains?"}
    model = ScriptedModel(calls=[ToolCall(name="recall", args=query, id="1")])

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    builder = StateGraph(MessagesState).add_node("answer", answer)
    builder.add_node("tools", ToolNode(memory_tools(memory)))
    builder.add_edge(START, "answer").add_edge("tools", "answer")
    builder.add_conditional_edges("answer", tools_condition)
    state = builder.compile().invoke({"messages": [HumanMessage("Book my train.")]})
    print(f"tools: {state['messages'][-1].text}")


def main() -> None:
    """Run the example."""
    with opened_memory() as memory:
        recall_before_the_answer(memory)
        recall_as_tool(memory)


if __name__ == "__main__":
    main()
