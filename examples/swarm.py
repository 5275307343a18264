"""A `Swarm`: the assistant hands over to the recall agent, which hands back its findings.

The assistant's model is a script. With a real model, replace `ScriptedClient(…)` by one of

    make_client(load_settings().settings)                      # memrecall.model.openai_client
    OpenAIChatCompletionClient(model="gpt-4.1-mini")           # autogen_ext.models.openai
"""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.messages import HandoffMessage
from autogen_agentchat.teams import Swarm
from history import LIN, opened_history

from memrecall import MemRecallAgent
from memrecall.agent import RecallHandoff
from memrecall.model import Request
from memrecall.testing import ScriptedClient, Step, call, say


def answer(request: Request) -> Step:
    """Act as the assistant's model after the recall agent has handed back."""
    is_known = "window seat" in str(request.messages[-1].content)
    return say("A window seat in the quiet coach, as always." if is_known else "I do not know.")


async def run() -> None:
    """Ask one question that needs a recall."""
    async with opened_history() as library:
        assistant = AssistantAgent(
            "assistant",
            model_client=ScriptedClient([call("transfer_to_recall"), answer]),
            handoffs=["recall"],
            system_message="Hand over to recall when the user refers to something earlier.",
        )
        recall = MemRecallAgent("recall", library, LIN)
        termination = TextMessageTermination("assistant")
        team = Swarm([assistant, recall], termination_condition=termination)
        result = await team.run(task="Book a train to Kiel. Which seat did I say I take on trains?")
        for message in result.messages:
            if isinstance(message, HandoffMessage):
                print(f"{message.source} → {message.target}")
                if payload := message.metadata.get("handoff"):  # the handoff as data
                    handoff = RecallHandoff.model_validate_json(payload)
                    keys = ", ".join(handoff.relevant_memory_keys)
                    print(f"  {handoff.confidence:.0%} sure of {keys}")
        print(f"assistant: {result.messages[-1].to_text()}")


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
