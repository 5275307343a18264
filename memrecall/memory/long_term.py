"""Views of the long-term memory: the user's profile, the agent's knowledge, experience."""

from collections.abc import Mapping, Sequence
from typing import Any

from memrecall.extraction.protocol import USER
from memrecall.library.knowledge import KnowledgeBase
from memrecall.library.library import Library
from memrecall.memory.records import memory_item
from memrecall.scope import Scope
from memrecall.store import KnowledgeEntry, MemoryQuery, NewKnowledge, read_filter
from memrecall.types import MemoryRecord, NewMemory, Origin, format_time

EXPERIENCE = "experience"
_FIELDS = 500


class UserInfo:
    """What is known of a user: a profile whose every field has its evidence."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self._listing = library.store.memory_list(scope)

    async def profile(self, subject: str = USER) -> dict[str, list[dict[str, Any]]]:
        """For each field what is known now, the latest first, with the messages it came from."""
        wanted = read_filter({"subject": subject, "field": {"ne": None}})
        page = await self._listing.page(MemoryQuery(wanted), limit=_FIELDS)
        profile: dict[str, list[dict[str, Any]]] = {}
        for record in page.items:
            profile.setdefault(str(record.field), []).append(_entry(record))
        return profile


class DomainKnowledge:
    """What an agent knows, shared by its users; writing needs the permission `knowledge`."""

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
        """Store an entry, or write it anew under its key."""
        entry = NewKnowledge(content, summary, tuple(tags), metadata or {}, key)
        return _knowledge_item(await self._base.get(await self._base.add(entry)))

    async def get(self, key: str) -> dict[str, Any]:
        """The entry of that key."""
        return _knowledge_item(await self._base.get(key))

    async def get_all(self) -> list[dict[str, Any]]:
        """All entries."""
        return [_knowledge_item(entry) async for entry in self._base.all()]

    async def search(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        """The entries that have to do with a query, the best first; none if nothing has."""
        found = await self._base.search(query, limit)
        return [{**_knowledge_item(entry), "score": score} for entry, score in found]

    async def delete(self, key: str) -> None:
        """Hide an entry."""
        await self._base.delete(key)


class Experience:
    """What worked in a task and what did not."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self._library = library
        self._scope = scope

    async def add(
        self, text: str, *, success: bool | None, source_message_ids: tuple[str, ...] = ()
    ) -> str:
        """Keep what a task taught, and the messages it came from; its key."""
        memory = NewMemory(
            content=text,
            memory_type=EXPERIENCE,
            metadata={"success": success},
            source_message_ids=source_message_ids,
        )
        # Derived from a conversation: trusted no more than its least trusted part.
        written = await self._library.add_memories(
            self._scope, [memory], origin=Origin.ASSISTANT, actor="session end"
        )
        return written.ids[0]

    async def get_all(self, *, success: bool | None = None) -> list[dict[str, Any]]:
        """All experience, or only what succeeded or failed; the latest first."""
        filters: dict[str, Any] = {"memory_type": EXPERIENCE}
        if success is not None:
            filters["metadata.success"] = success
        listing = self._library.store.memory_list(self._scope)
        page = await listing.page(MemoryQuery(read_filter(filters)), limit=_FIELDS)
        return [memory_item(record) for record in page.items]


class LongTermMemory:
    """The three parts of what lasts."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self.user_info = UserInfo(library, scope)
        self.knowledge = DomainKnowledge(library, scope)
        self.experience = Experience(library, scope)


def _entry(record: MemoryRecord) -> dict[str, Any]:
    return {
        "value": record.content,
        "memory_id": record.memory_key,
        "since": format_time(record.since),
        "evidence": list(record.source_message_ids),
    }


def _knowledge_item(entry: KnowledgeEntry) -> dict[str, Any]:
    return {
        "id": entry.knowledge_key,
        "memory": entry.content,
        "kind": "knowledge",
        "summary": entry.summary,
        "tags": entry.tags,
        "agent_id": entry.agent_id,
        "metadata": entry.metadata,
        "actor": entry.actor,
        "created_at": format_time(entry.created_at),
        "updated_at": format_time(entry.updated_at),
    }
