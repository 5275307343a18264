"""OpenAI Agents SDK: recall before each turn, a session in the message store, and tools.

memory = AsyncMemory(user_id="ann", session_id="chat-1")
agent = Agent("assistant", tools=memory_tools(memory))
config = RunConfig(call_model_input_filter=RecallFilter(memory))
await Runner.run(agent, "…", session=MemorySession(memory), run_config=config)
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Unpack

from memrecall.errors import InvalidArgument, NotFound
from memrecall.integrations.agent_memory import (
    AgentArguments,
    AgentMemory,
    AnyMemory,
    BlockArguments,
    BoundTool,
    MemorySource,
    TurnBlocks,
    bind_tools,
    framework_of,
)
from memrecall.json_objects import METADATA_BYTES, json_bytes, make_storable
from memrecall.messages import PICTURES, ConversationMessage, caption_of, parse_message
from memrecall.text_length import ELLIPSIS, truncate_text
from memrecall.types import MESSAGE_LENGTH, Message, Role

with framework_of("openai-agents"):
    from agents import FunctionTool, RunContextWrapper
    from agents.memory import SessionABC
    from agents.run import CallModelData, ModelInputData
    from agents.tool_context import ToolContext

_ITEM = "openai_item"  # the metadata key that holds an item as the SDK wrote it
_REMOVED = "removed_item"  # the content type of a note that an item was taken back
_ITEM_BYTES = METADATA_BYTES - 1_000  # an item, whose key and braces are metadata too
_ITEM_TEXT = 100_000  # characters of a text in an item that is too large
_PAGE = 100  # messages that one statement reads


class RecallFilter:
    """Adds what the last user message refers to, as one item of data before that message.

    A run calls its model several times; the recall for one user message runs once. A function as
    `memory` gets the `RunContextWrapper` of the run.
    """

    def __init__(self, memory: MemorySource, **arguments: Unpack[BlockArguments]) -> None:
        self._memory = AgentMemory(memory, **arguments)
        self._blocks = TurnBlocks()

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input of the model with the recalled block."""
        model_input = data.model_data
        items = list(model_input.input)
        index = _last_user_index(items)
        if index is None:
            return model_input
        owner, asked = self._memory.of(RunContextWrapper(data.context)), items[: index + 1]
        block = None if asked == items else self._blocks.get(owner, asked)
        if block is None:
            block = await owner.recall_block(asked)
            self._blocks.put(owner, asked, block)
        if block:
            items.insert(index, {"role": "user", "content": block})
        return ModelInputData(input=items, instructions=model_input.instructions)


class MemorySession(SessionABC):
    """The items of a conversation in the message store, in the bound session of one user.

    They can be searched and recalled like all messages, and facts are extracted from them unless
    `remember` is False. An item that was taken back stays stored, but not in the conversation;
    `clear_session` erases the session and what was derived from it.
    """

    session_settings = None

    def __init__(self, memory: AnyMemory, *, remember: bool = True) -> None:
        if memory.session_id is None:
            raise InvalidArgument(
                "the memory of a session must be bound to a session",
                hint="Bind one: Memory(user_id=…, session_id=…)",
            )
        self._memory = AgentMemory(memory)
        self._remember = remember
        self.session_id = memory.session_id

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the last `limit` items, or all, oldest first."""
        messages = await self._memory.wait(self._read(limit))
        return [_to_item(message) for message in messages]

    async def add_items(self, items: list[Any]) -> None:
        """Store items at the end of the conversation."""
        messages = [_to_message(item) for item in items]
        if messages:
            await self._memory.wait(self._memory.memory.add(messages, infer=self._remember))

    async def pop_item(self) -> Any | None:
        """Take back the last item and return it."""
        return await self._memory.wait(self._pop())

    async def clear_session(self) -> None:
        """Erase the session."""
        await self._memory.wait(self._clear())

    async def _read(self, limit: int | None) -> list[Message]:
        recaller = await self._memory.memory.recaller()
        timeline = recaller.library.store.timeline(recaller.scope)
        latest_first: list[Message] = []
        removed: set[str] = set()
        before = None
        while limit is None or len(latest_first) < limit:
            thread = await timeline.thread(before, session_id=self.session_id, limit=_PAGE)
            for message in reversed(thread):
                if message.content_type == _REMOVED:
                    removed.add(message.metadata["removed"])
                elif message.message_id not in removed:
                    latest_first.append(message)
            if len(thread) < _PAGE:
                break
            before = thread[0].message_id
        return latest_first[:limit][::-1]

    async def _pop(self) -> Any | None:
        messages = await self._read(2)
        if not messages:
            return None
        *before, last = messages
        note = ConversationMessage(
            Role.OTHER,
            "(removed)",
            content_type=_REMOVED,
            # Windows of recalls follow the parent, and so leave the removed item out.
            parent_message_id=before[0].message_id if before else None,
            metadata={"removed": last.message_id},
        )
        await self._memory.memory.add([note], infer=False)
        return _to_item(last)

    async def _clear(self) -> None:
        recaller = await self._memory.memory.recaller()
        with suppress(NotFound):  # nothing was stored
            await recaller.library.erase_session(recaller.scope.user_id, self.session_id)


def memory_tools(memory: MemorySource, **arguments: Unpack[AgentArguments]) -> list[FunctionTool]:
    """Return tools to remember, recall, correct and forget; a function gets the `ToolContext`."""
    return [_function_tool(tool) for tool in bind_tools(memory, **arguments)]


def _function_tool(tool: BoundTool) -> FunctionTool:
    async def call(context: ToolContext[Any], arguments: str) -> str:
        return await tool.call(arguments, context)

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.parameters,
        on_invoke_tool=call,
        strict_json_schema=False,  # the table has optional arguments
    )


def _last_user_index(items: list[Any]) -> int | None:
    by_user = (isinstance(item, Mapping) and item.get("role") == "user" for item in items)
    return max((index for index, is_user in enumerate(by_user) if is_user), default=None)


def _to_message(item: Any) -> ConversationMessage:
    """Return an item as a message; one without text, such as a call, gets a short one.

    The text of a message is cut if it is too long. The item is kept whole, except for pictures,
    whose bytes are not stored, and for what exceeds the limit of metadata.
    """
    message = parse_message(make_storable(dict(item)), read_pictures=True)
    item = make_storable(_without_bytes(dict(item)))
    if json_bytes(item) > _ITEM_BYTES:
        item = make_storable(item, _ITEM_TEXT)
    pictures = message.metadata.get(PICTURES)
    metadata = {_ITEM: item} | ({PICTURES: pictures} if pictures else {})
    if message.text.strip():
        return replace(message, text=_cut(message.text), message_id=None, metadata=metadata)
    kind = str(item.get("type") or "item")
    call = f"{item['name']}({item.get('arguments', '')})" if item.get("name") else ""
    return ConversationMessage(
        message.role, _cut(call or f"[{kind}]"), content_type=kind[:50], metadata=metadata
    )


def _without_bytes(value: Any) -> Any:
    """Return an item with a text in place of each picture whose bytes it has."""
    if isinstance(value, list):
        return [_without_bytes(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if value.get("type") == "input_image" and str(value.get("image_url")).startswith("data:"):
        return {"type": "input_text", "text": caption_of(value) or "[image]"}
    return {name: _without_bytes(each) for name, each in value.items()}


def _cut(text: str) -> str:
    return truncate_text(text, MESSAGE_LENGTH - len(ELLIPSIS))


def _to_item(message: Message) -> Any:
    stored = message.metadata.get(_ITEM)
    return stored or {"role": message.role.value, "content": message.content}
