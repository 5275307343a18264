"""A recall without an agent framework: messages in, evidence out.

With a model, the same call recalls better: set MEMRECALL_MODEL, MEMRECALL_BASE_URL and
MEMRECALL_API_KEY, or pass `model_client=make_client(settings)` from `memrecall.model`.
No model is used here.
"""

import asyncio

from history import opened_history

from memrecall import recall
from memrecall.agent.trace import CallEvent

CONVERSATIONS: tuple[object, ...] = (
    "我之前说过我对什么东西过敏，不能点什么菜？",
    [  # in the format of the OpenAI API
        {"role": "user", "content": "I am booking a train."},
        {"role": "assistant", "content": "Any wishes for the seat?"},
        {"role": "user", "content": "Which seat did I say I take on trains?"},
    ],
    "What did I say about my passport number?",  # never said
)


async def run() -> None:
    """Recall for three conversations and print the evidence and the steps."""
    async with opened_history() as library:
        for messages in CONVERSATIONS:
            result = await recall(messages, user_id="lin", library=library)
            print(f"\n{result.trace.start.asked}\n  confidence {result.confidence:.0%}")
            for memory in result.memories:
                print(f"  {memory.ts:%Y-%m-%d} {memory.role}: {memory.content}")
            if not result.memories:
                print(f"  nothing found; ask: {result.handoff.follow_up_question}")
            events = result.trace.events
            steps = [event.tool for event in events if isinstance(event, CallEvent)]
            print(f"  by {' → '.join(steps)}")


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
