"""A team of three agents that share a space, while each keeps notes of its own.

Each agent is a user of memrecall. `remember` writes to the agent's own notes, `share` to the space,
and `recall` reads both; no agent can read another one's notes. The writer may only read the space.
The models are scripts. With real models, replace `ScriptedClient(…)` by one of

    make_client(load_settings().settings)                      # memrecall.model.openai_client
    OpenAIChatCompletionClient(model="gpt-4.1-mini")           # autogen_ext.models.openai
"""

import asyncio
import json
from collections.abc import Awaitable, Callable

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import FunctionExecutionResultMessage
from history import opened_history

from memrecall import AsyncMemory, Library, Scope, memory_tools
from memrecall.errors import Forbidden
from memrecall.model import Request
from memrecall.testing import ScriptedClient, Step, call, say

SPACE = "kiwi-launch"
ROLES = {"researcher": "contributor", "planner": "contributor", "writer": "reader"}
Script = list[Step | Callable[[Request], Step]]


def quote_recalls(request: Request) -> Step:
    """Act as the writer's model: name the best memory of each recall, and its author."""
    outputs = [m for m in request.messages if isinstance(m, FunctionExecutionResultMessage)]
    results = [json.loads(o.content[0].content) for o in outputs if o.content[0].name == "recall"]
    best = [result["memories"][0] for result in results]
    places = [item["memory_key"].partition("/")[0] for item in best]  # "space:" and its id
    pairs = zip(best, places, strict=True)
    return say(" ".join(f"{item['content']} [{item['by']}, {place}]" for item, place in pairs))


SCRIPTS: dict[str, Script] = {
    "researcher": [
        call("remember", text="The supplier Orion answers slowly; call before noon."),
        call("share", fact="The launch of Kiwi is on 12 June."),
        say("The date is in the space."),
    ],
    "planner": [
        call("recall", query="When is the launch of Kiwi?"),
        call("remember", text="Keep 500 euros of the budget in reserve."),
        call("share", fact="The venue of the Kiwi launch is the Harbour Hall."),
        say("The venue is in the space."),
    ],
    "writer": [
        call("recall", query="When is the launch of Kiwi?"),
        call("recall", query="What is the venue of the Kiwi launch?"),
        call("share", fact="The invitation is written."),
        quote_recalls,
    ],
}


def share_with(memory: AsyncMemory) -> Callable[[str], Awaitable[str]]:
    """Return the tool that writes to the space as one member; the membership is checked."""

    async def share(fact: str) -> str:
        """Write a fact to the space that the whole team reads."""
        try:
            await memory.space(SPACE).add(fact, infer=False)
        except Forbidden as error:
            return f"refused: {error.message}"
        return "shared"

    return share


def make_agent(library: Library, name: str) -> AssistantAgent:
    """Return an agent whose tools are bound to its own notes and the space."""
    memory = AsyncMemory(library=library, user_id=name)
    return AssistantAgent(
        name,
        model_client=ScriptedClient(SCRIPTS[name]),
        tools=[*memory_tools(library, Scope(name, spaces=(SPACE,))), share_with(memory)],
        max_tool_iterations=4,
    )


async def run() -> None:
    """Let the team work on one task, and show what each of them can read afterwards."""
    async with opened_history() as library:
        lead = AsyncMemory(library=library, user_id="lead")
        await lead.create_space(SPACE, name="Kiwi launch")
        for name, role in ROLES.items():
            await lead.space(SPACE).set_member(name, role, name=name.title())

        team = RoundRobinGroupChat(
            [make_agent(library, name) for name in ROLES],
            termination_condition=TextMessageTermination("writer"),
        )
        result = await team.run(task="Prepare the invitation to the launch of Kiwi.")
        for message in result.messages:
            if isinstance(message, ToolCallExecutionEvent) and message.source in ROLES:
                outputs = {o.name: o.content for o in message.content if o.name == "share"}
                print(f"{message.source}: {[o.name for o in message.content]}", *outputs.values())
            elif isinstance(message, TextMessage) and message.source in ROLES:
                print(f"{message.source}: {message.to_text()}")

        shared = (await lead.space(SPACE).get_all())["results"]
        print("space:", *(f"{item['memory']} (by {item['author']})" for item in shared), sep="\n  ")
        for name in ROLES:
            memory = AsyncMemory(library=library, user_id=name, spaces=(SPACE,))
            notes = [item["memory"] for item in (await memory.get_all())["results"]]
            found = (await memory.search("Which supplier answers slowly?", limit=9))["results"]
            knows = any("Orion" in item["memory"] for item in found)
            print(f"{name}: own notes {notes}, finds the note on Orion: {knows}")


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
