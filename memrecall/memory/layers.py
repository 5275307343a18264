"""The layers of a memory: the items of a session, with checkpoints, and what lasts.

Short-term items live in this process and are searched by words. Checkpoints save them, after a
number of messages and at intervals, so that a task survives a crash. Long-term memory is the user's
profile, the agent's knowledge, and experience.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from memrecall.errors import InvalidArgument
from memrecall.extraction.protocol import USER
from memrecall.library.knowledge import KnowledgeBase
from memrecall.library.library import Library
from memrecall.memory.results import StoredItem, memory_item
from memrecall.scope import Scope
from memrecall.search.ranking.lexical import rank_texts
from memrecall.store import (
    Checkpoint,
    KnowledgeEntry,
    MemoryQuery,
    NewKnowledge,
    Store,
    read_filter,
)
from memrecall.types import (
    EXPERIENCE,
    SESSION_END,
    NewMemory,
    Origin,
    check_json,
    check_text,
    format_time,
)

MOST_ITEMS = 2_000
EVERY_MESSAGES = 20
EVERY_SECONDS = 60.0
_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a session's short-term memory."""

    text: str
    role: str = "user"
    speaker: str | None = None
    message_id: str | None = None


class ShortTermMemory:
    """The items of one session; `scratch` is JSON of the task's own, saved in checkpoints too."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        *,
        every_messages: int = EVERY_MESSAGES,
        every_seconds: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if every_messages < 1 or not every_seconds > 0:
            raise InvalidArgument(
                f"every_messages {every_messages} and every_seconds {every_seconds} must be "
                "positive",
                hint="Leave them out for the defaults",
            )
        self._state = store.session_state(scope)
        self._every_messages = every_messages
        self._every_seconds = every_seconds
        self._clock = clock
        self._items: list[Item] = []
        self._hidden: frozenset[str] = frozenset()  # messages that were deleted with a memory
        self._unsaved = 0
        self._saved_at = clock()
        self._ended = False
        self.scratch: dict[str, Any] = {}

    @property
    def items(self) -> tuple[Item, ...]:
        """All items, oldest first, without hidden messages."""
        return tuple(item for item in self._items if item.message_id not in self._hidden)

    async def update(self, erased: Collection[str] = ()) -> None:
        """Drop erased messages, and follow which of the others any process has hidden."""
        ids = [item.message_id for item in self._items if item.message_id is not None]
        gone = frozenset(erased) | await self._state.erased_among(ids)
        self._items = [item for item in self._items if item.message_id not in gone]
        self._hidden = await self._state.hidden_among(ids)

    async def add(self, items: Sequence[Item | str]) -> Checkpoint | None:
        """Add items; return the checkpoint if one was due."""
        self._require_open()
        new = [Item(item) if isinstance(item, str) else item for item in items]
        for item in new:
            check_text("the text", item.text)
        self._items = [*self._items, *new][-MOST_ITEMS:]
        self._unsaved += len(new)
        is_late = self._clock() - self._saved_at >= self._every_seconds
        is_due = self._unsaved >= self._every_messages or (is_late and self._unsaved > 0)
        return await self.checkpoint() if is_due else None

    def search(self, query: str, limit: int = 10) -> list[Item]:
        """Return the items that share words with a query, best first."""
        items = self.items
        ranked = rank_texts([item.text for item in items], query, limit)
        return [items[position] for position in ranked]

    async def checkpoint(self) -> Checkpoint:
        """Save all items and the scratch data now."""
        self._require_open()
        check_json("scratch", self.scratch)
        await self.update()  # an erased message must not come back with the state
        state = {"items": [asdict(item) for item in self._items], "scratch": self.scratch}
        checkpoint = await self._state.save(state)
        self._unsaved, self._saved_at = 0, self._clock()
        return checkpoint

    async def restore(self) -> bool:
        """Load the last checkpoint; return False if there is none."""
        checkpoint = await self._state.latest()
        if checkpoint is None:
            return False
        self._items = [Item(**item) for item in checkpoint.state["items"]]
        self.scratch = dict(checkpoint.state["scratch"])
        await self.update()
        self._unsaved, self._saved_at = 0, self._clock()
        return True

    async def end(self) -> None:
        """Delete all items and checkpoints."""
        self._require_open()
        self._items, self.scratch, self._ended = [], {}, True
        await self._state.delete_checkpoints()

    def _require_open(self) -> None:
        if self._ended:
            raise InvalidArgument(
                "this session's short-term memory has ended", hint="Call short_term() again"
            )


class UserInfo:
    """The profile of a user, each field with its evidence."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self._listing = library.store.memories(scope)
        self._spaces, self._scope = library.store.spaces, scope

    async def profile(self, subject: str = USER) -> dict[str, list[dict[str, Any]]]:
        """Return the current values of each profile field, latest first, with their sources."""
        profile_filter = read_filter({"subject": subject, "field": {"ne": None}})
        page = await self._listing.page(MemoryQuery(profile_filter), limit=_LIMIT)
        names = await self._spaces.names(self._scope.user_id) if self._scope.space else {}
        profile: dict[str, list[dict[str, Any]]] = {}
        for record in page.items:
            item = {
                "value": record.content,
                "memory_id": record.memory_key,
                "since": format_time(record.since),
                "evidence": list(record.source_message_ids),
            }
            if record.author is not None:
                item["author"] = names.get(record.author, record.author)
            profile.setdefault(str(record.field), []).append(item)
        return profile


class DomainKnowledge:
    """The knowledge of an agent, shared by its users; writing needs permission `knowledge`."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self._base = KnowledgeBase(library, scope)

    async def add(
        self,
        content: str,
        *,
        summary: str = "",
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Store an entry, or replace the one with the same key; return it."""
        entry = NewKnowledge(content, summary, tuple(tags), metadata or {}, key)
        return _knowledge_item(await self._base.get(await self._base.add(entry)))

    async def get(self, key: str) -> dict[str, Any]:
        """Return the entry with that key."""
        return _knowledge_item(await self._base.get(key))

    async def get_all(self) -> list[dict[str, Any]]:
        """Return all entries."""
        return [_knowledge_item(entry) for entry in (await self._base.snapshot()).entries]

    async def search(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        """Return the entries relevant to a query, best first."""
        results = await self._base.search(query, limit)
        return [{**_knowledge_item(entry), "score": score} for entry, score in results]

    async def delete(self, key: str) -> None:
        """Hide an entry."""
        await self._base.delete(key)


class Experience:
    """The lessons of past sessions: what worked and what did not."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self._library = library
        self._scope = scope

    async def add(
        self, text: str, *, success: bool | None, source_message_ids: tuple[str, ...] = ()
    ) -> str:
        """Store what a session taught, with its source messages; return the key."""
        memory = NewMemory(
            content=text,
            memory_type=EXPERIENCE,
            metadata={"success": success},
            source_message_ids=source_message_ids,
        )
        # It is derived from a conversation and trusted no more than its least trusted part.
        result = await self._library.add_memories(
            self._scope, [memory], origin=Origin.ASSISTANT, actor=SESSION_END
        )
        return result.ids[0]

    async def get_all(self, *, success: bool | None = None) -> list[StoredItem]:
        """Return all experience, or only of successes or failures, latest first."""
        filters: dict[str, Any] = {"memory_type": EXPERIENCE}
        if success is not None:
            filters["metadata.success"] = success
        listing = self._library.store.memories(self._scope)
        page = await listing.page(MemoryQuery(read_filter(filters)), limit=_LIMIT)
        return [memory_item(record) for record in page.items]


class LongTermMemory:
    """The three parts of long-term memory."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self.user_info = UserInfo(library, scope)
        self.knowledge = DomainKnowledge(library, scope)
        self.experience = Experience(library, scope)


def _knowledge_item(entry: KnowledgeEntry) -> dict[str, Any]:
    fields = to_jsonable_python(entry)
    names = {"id": fields.pop("knowledge_key"), "memory": fields.pop("content")}
    return {**names, "kind": "knowledge", **fields}
