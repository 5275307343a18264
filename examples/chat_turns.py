"""Chat turns with a recall in every turn, tools for the model, and hidden leaked calls.

The turns use no model or a scripted one. For a real model, pass `SingleChat` the
configured client (`make_client(settings)` from `memrecall.model`) or any AutoGen client.
"""

import asyncio

from history import LIN, opened_history

from memrecall import GroupChat, Scope, SingleChat
from memrecall.chat import Final, Member, TextDelta, TextRetracted, ToolCall, ToolResult
from memrecall.testing import ScriptedClient, call, say

# DeepSeek sometimes writes this as text instead of calling a tool.
LEAK = '<｜DSML｜function_calls><｜DSML｜invoke name="recall_memory">'
MEMBERS = (
    Member(member_id="ann", name="Ann"),
    Member(member_id="bo", name="小波", nicknames=("波波",)),
    Member(member_id="bot", name="小助手", nicknames=("Helper",), ai=True),
)


async def show(chat: SingleChat, message: str) -> None:
    """Run one turn and print its events."""
    print(f"user:      {message}")
    async for event in chat.stream(message):
        match event:
            case ToolCall():
                caller = "the turn" if event.forged else "the model"
                print(f"call:      {event.name} {event.arguments} by {caller}")
            case ToolResult():
                print(f"result:    {event.content[:60]}…")
            case TextDelta() | TextRetracted():
                pass  # a front end adds the text while it streams, or replaces all of it
            case Final():
                leaks = [leak.family for leak in event.leaks]
                print(f"assistant: {event.text} (leaks {leaks}, degraded {event.degraded})")


async def run() -> None:
    """Run a turn without a model, two with a model that calls and leaks, and a group chat."""
    async with opened_history() as library:
        scope = LIN.with_session("today")
        await show(SingleChat(library, scope), "Which seat did I say I take on trains?")
        model = ScriptedClient(
            [
                call("recall_memory", query="花生过敏"),
                say("你对花生过敏。"),
                say(f"Let me see. {LEAK}"),
                say("In Lisbon, from 4 to 6 May."),
            ]
        )
        chat = SingleChat(library, scope, model)
        await show(chat, "我对什么过敏？")
        await show(chat, "Where will the offsite be?")

        group = GroupChat(library, Scope("team"), MEMBERS)
        await group.post("ann", "周五十点在大会议室开会")
        await group.post("bo", "@小助手 周五的会在哪个会议室？")
        print(f"小助手:    {(await group.answer('bot')).text}")
        await group.post("ann", "好的")
        print(f"小助手:    silent {(await group.answer('bot')).silent}")


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
