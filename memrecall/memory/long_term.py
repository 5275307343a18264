"""Long-term memory: the user's profile, the agent's knowledge, and experience."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from memrecall.extraction.protocol import USER
from memrecall.library.knowledge import KnowledgeBase
from memrecall.library.library import Library
from memrecall.memory.records import memory_item
from memrecall.scope import Scope
from memrecall.store import KnowledgeEntry, MemoryQuery, NewKnowledge, read_filter
from memrecall.types import EXPERIENCE, SESSION_END, NewMemory, Origin, format_time

_LIMIT = 500


class UserInfo:
    """The profile of a user, each field with its evidence."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self._listing = library.store.memories(scope)

    async def profile(self, subject: str = USER) -> dict[str, list[dict[str, Any]]]:
        """Return the current values of each profile field, latest first, with their sources."""
        profile_filter = read_filter({"subject": subject, "field": {"ne": None}})
        page = await self._listing.page(MemoryQuery(profile_filter), limit=_LIMIT)
        profile: dict[str, list[dict[str, Any]]] = {}
        for record in page.items:
            item = {
                "value": record.content,
                "memory_id": record.memory_key,
                "since": format_time(record.since),
                "evidence": list(record.source_message_ids),
            }
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

    async def get_all(self, *, success: bool | None = None) -> list[dict[str, Any]]:
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
