"""A crew of CrewAI with the memory of one user, and an agent with tools.

The memory is bound to a user when it is created. The model is a script; with a real one, pass
`llm="openai/gpt-4.1-mini"`.
"""

import json
import os
from typing import Any

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")  # CrewAI reads it when it is imported

from crewai import Agent, BaseLLM, Crew, Task
from history import opened_memory, quote_memories
from pydantic import Field

from memrecall.integrations.crewai import CrewMemory, memory_tools


class ScriptedLLM(BaseLLM):
    """A model that plays its calls, then quotes the memories in its request."""

    calls: list[str] = Field(default_factory=list)

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        """Return a call or an answer in the form that CrewAI's agents read."""
        if self.calls:
            return self.calls.pop()
        text = "\n".join(str(message["content"]) for message in messages)
        return f"Thought: I now can give a great answer\nFinal Answer: {_quote(text)}"


def _quote(text: str) -> str:
    """Quote the first memory that CrewAI wrote into the prompt, or that a tool returned."""
    _, _, matches = text.partition("- (score=")
    if matches:
        return f"You said: “{matches.splitlines()[0].partition(') ')[2]}”"
    return quote_memories(line.removeprefix("Observation: ") for line in text.splitlines())


def run_task(llm: ScriptedLLM, text: str, **options: Any) -> str:
    """Run a crew of one agent with one task."""
    tools = options.pop("tools", [])
    agent = Agent(role="assistant", goal="help", backstory="You help.", llm=llm, tools=tools)
    task = Task(description=text, expected_output="an answer", agent=agent)
    return str(Crew(agents=[agent], tasks=[task], **options).kickoff())


def main() -> None:
    """Run the example."""
    with opened_memory() as memory:
        question = "我之前说过我对什么东西过敏，不能点什么菜？"
        answer = run_task(ScriptedLLM(model="scripted"), question, memory=CrewMemory(memory))
        print(f"memory: {answer}")

        query = json.dumps({"query": "Which seat did I say I take on trains?"})
        call = f"Thought: look it up\nAction: recall\nAction Input: {query}"
        llm = ScriptedLLM(model="scripted", calls=[call])
        print(f"tools:  {run_task(llm, 'Book my train.', tools=memory_tools(memory))}")


if __name__ == "__main__":
    main()
