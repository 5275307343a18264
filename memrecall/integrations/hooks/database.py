"""Recall and storage without a service: the hook opens the database itself.

This is the slow way, about a second of imports, so nothing imports it while a service is running.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from memrecall.agent.conversation import LARGEST_WINDOW, Conversation
from memrecall.agent.offline.needs import RecallWhen, needs_recall
from memrecall.agent.prompt_view import write_relevant_block
from memrecall.errors import Conflict
from memrecall.integrations.hooks.bindings import Binding
from memrecall.integrations.hooks.events import MAX_RECALLED, CapturedEvent, CapturedMessage
from memrecall.integrations.hooks.outbox import Outbox
from memrecall.memory import Library, recall
from memrecall.messages import ConversationMessage, parse_new_messages
from memrecall.scope import Scope
from memrecall.settings import load_settings
from memrecall.types import NewMessage, Role


async def read_conversation(
    library: Library,
    scope: Scope,
    messages: Sequence[ConversationMessage],
    when: RecallWhen = "auto",
) -> tuple[ConversationMessage, ...]:
    """Return the session up to its last message; nothing if that needs no recall.

    Given to a recall, the session is no evidence: the client's model sees it anyway.
    """
    if not needs_recall(messages[-1].text, when):
        return ()
    conversation = Conversation(tuple(messages), library.store, scope)
    return tuple(await conversation.window(LARGEST_WINDOW))


def recall_block(
    binding: Binding,
    outbox: Outbox,
    messages: list[dict[str, Any]],
    prompt: CapturedMessage,
    show: Callable[[str], None],
) -> None:
    """Store pending messages, then show the block recalled for a prompt, if there is one."""

    async def run() -> None:
        async with await _open(binding) as library:
            await _store(library, binding, outbox, messages)
            scope = Scope(binding.user, binding.agent, prompt.session_id)
            request = ConversationMessage(Role.USER, prompt.content[:MAX_RECALLED])
            conversation = await read_conversation(library, scope, [request], binding.when)
            if not conversation:
                return
            result = await recall(
                conversation,
                user_id=binding.user,
                agent_id=binding.agent,
                session_id=prompt.session_id,
                library=library,
            )
            # Closing the library waits for the vectors of the messages; the prompt need not.
            characters, min_confidence = binding.characters, binding.min_confidence
            show(write_relevant_block(result, characters, min_confidence, only_sure=True))

    asyncio.run(run())


def deliver(binding: Binding, outbox: Outbox, messages: list[dict[str, Any]]) -> None:
    """Store pending messages."""

    async def run() -> None:
        async with await _open(binding) as library:
            await _store(library, binding, outbox, messages)

    asyncio.run(run())


async def store_event(library: Library, scope: Scope, event: CapturedEvent) -> int:
    """Store the messages of an event that are new, and return how many; the time is now."""
    metadata = {"client": event.client.name, "workspace": event.workspace}
    messages = [
        NewMessage(
            message_id=message.message_id,
            role=Role(message.role),
            content=message.content,
            metadata=metadata,
        )
        for message in event.messages
    ]
    result = await library.add_messages(replace(scope, session_id=event.session_id), messages)
    return result.stored


async def _open(binding: Binding) -> Library:
    return await Library.open(load_settings({"db": binding.db or None}).settings, create=True)


async def _store(
    library: Library, binding: Binding, outbox: Outbox, messages: list[dict[str, Any]]
) -> None:
    for message in messages:
        scope = Scope(binding.user, binding.agent, message["session_id"])
        with suppress(Conflict):  # the same message is already stored, with another time
            await library.add_messages(scope, parse_new_messages([message]))
        outbox.remove(message["message_id"])
