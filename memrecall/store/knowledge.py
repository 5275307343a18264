"""Knowledge: entries that belong to an agent and are shared by all its users.

The permission that trusted code put into the scope decides who may write it. Changes are numbered
for each agent alone: one agent's knowledge costs no other anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from string import whitespace
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from memrecall.errors import Disabled, InvalidArgument, NotFound, StorageBusy
from memrecall.scope import Permission, Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, lock_knowledge
from memrecall.store.database.statements import Reads, new_epoch, new_id, split
from memrecall.store.database.tables import knowledge, knowledge_bases, restores
from memrecall.store.texts import knowledge_text, make_search_text
from memrecall.text.tokens import fold_spaces
from memrecall.types import NAME_LENGTH, check_id, check_json, check_text

KEY_PREFIX = "kb-"
MAX_TAGS = 100
_PAGE = 500
_WHITE_SPACE = f"{whitespace}\u00a0\u3000"


@dataclass(frozen=True, slots=True)
class KnowledgeEntry:
    """A stored knowledge entry."""

    knowledge_key: str
    agent_id: str
    content: str
    summary: str
    tags: list[str]
    metadata: dict[str, Any]
    actor: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NewKnowledge:
    """An entry to write; without a key it gets a new one, without times the current time."""

    content: str
    summary: str = ""
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    actor: str = "memrecall"
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def row(self) -> dict[str, Any]:
        """Return the entry's columns; InvalidArgument says what cannot be stored."""
        if not self.content.strip():
            raise InvalidArgument("the content is empty", hint="Write what the agent should know")
        content = check_text("content", self.content)
        summary = check_text("summary", self.summary)
        tags = [_check_tag(tag) for tag in self.tags]
        if len(tags) > MAX_TAGS:
            raise InvalidArgument(f"{len(tags)} tags are too many", hint=f"Use up to {MAX_TAGS}")
        new_key = KEY_PREFIX + new_id("").removeprefix("_")
        return {
            "knowledge_key": new_key if self.key is None else check_id("key", self.key),
            "content": content,
            "summary": summary,
            "tags": tags,
            "metadata": check_json("metadata", dict(self.metadata)),
            "actor": check_text("actor", self.actor),
            "search_text": make_search_text(knowledge_text(summary, content, tags)),
        }


@dataclass(frozen=True, slots=True)
class KnowledgeSnapshot:
    """All entries of an agent at one moment, and the number of their last change."""

    version: int
    entries: list[KnowledgeEntry]


_COLUMNS = [knowledge.c[name] for name in KnowledgeEntry.__slots__]


class Knowledge:
    """The knowledge of a scope's agent."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope
        self._agent_id = agent_of(scope)

    async def add(self, entry: NewKnowledge, *, must_exist: bool = False) -> str:
        """Store an entry, or rewrite the stored one; return its key, or the key of an equal one."""
        self._require_permission()
        row = {**self.protect(entry).row(), "model": None, "vector": None}
        is_new = entry.key is None

        def work(connection: Connection) -> str:
            if is_new and (key := self._find_same(connection, row)):
                return key
            (number,) = take_change_numbers(connection, self._agent_id, 1)
            now = datetime.now(UTC)
            values = {**row, "updated_at": now, "deleted_at": None, "change_no": number}
            statement = update(knowledge).where(*self._match(row["knowledge_key"]))
            if must_exist:
                statement = statement.where(knowledge.c.deleted_at.is_(None))
            if not connection.execute(statement.values(**values)).rowcount:
                if must_exist:
                    raise self._not_found(row["knowledge_key"])
                new = {**values, "agent_id": self._agent_id, "created_at": now}
                connection.execute(insert(knowledge), new)
            return str(row["knowledge_key"])

        return await self._database.transact(work)

    def protect(self, entry: NewKnowledge) -> NewKnowledge:
        """Return what is to be stored of an entry, as the privacy policy of the database says."""
        fields = {"content": entry.content, "summary": entry.summary, "tags": list(entry.tags)}
        changed = self._database.privacy.protect({**fields, "metadata": dict(entry.metadata)})
        return replace(entry, **changed)

    async def get(self, key: str) -> KnowledgeEntry:
        """Return one entry; NotFound if the agent has none of that key."""
        entries = await self.get_many([key])
        if not entries:
            raise self._not_found(key)
        return entries[0]

    async def get_many(self, keys: Sequence[str]) -> list[KnowledgeEntry]:
        """Return the entries that exist, in no particular order."""
        return await self._database.read_together(partial(self.read_many, keys))

    def read_many(self, keys: Sequence[str], reads: Reads) -> list[KnowledgeEntry]:
        """Return the same among other reads."""
        entries: list[KnowledgeEntry] = []
        for batch in split(keys):
            statement = self._select().where(knowledge.c.knowledge_key.in_(list(batch)))
            rows = reads.fetch(statement)
            entries += [KnowledgeEntry(**row._mapping) for row in rows]
        return entries

    async def keys_with_tags(self, tags: Sequence[str]) -> list[str]:
        """Return the keys of the entries that have all of some tags, in any case and width."""
        wanted = _fold(map(_check_tag, tags))
        statement = self._select().with_only_columns(knowledge.c.knowledge_key, knowledge.c.tags)
        rows = await self._database.fetch(statement)
        return [row.knowledge_key for row in rows if wanted <= _fold(row.tags)]

    async def page(self, after: str = "", limit: int = _PAGE) -> list[KnowledgeEntry]:
        """Return the entries whose keys follow `after`, sorted by key."""
        following = self._select().where(knowledge.c.knowledge_key > after)
        in_order = following.order_by(knowledge.c.knowledge_key).limit(limit)
        return [KnowledgeEntry(**row._mapping) for row in await self._database.fetch(in_order)]

    async def count(self) -> int:
        """Return the number of entries."""
        statement = select(func.count()).select_from(self._select().subquery())
        return int((await self._database.fetch(statement))[0][0])

    async def delete(self, key: str) -> None:
        """Hide an entry; needs the permission `knowledge`. NotFound if there is none."""
        self._require_permission()

        def work(connection: Connection) -> None:
            (number,) = take_change_numbers(connection, self._agent_id, 1)
            statement = update(knowledge).where(*self._match(key), knowledge.c.deleted_at.is_(None))
            values = {"deleted_at": datetime.now(UTC), "change_no": number}
            if not connection.execute(statement.values(**values)).rowcount:
                raise self._not_found(key)

        await self._database.transact(work)

    async def snapshot(self) -> KnowledgeSnapshot:
        """Return all entries by key as of one moment, and the number of their last change."""
        of_agent = knowledge_bases.c.agent_id == self._agent_id
        async with self._database.read() as connection:
            version = await connection.scalar(select(knowledge_bases.c.version).where(of_agent))
            in_order = self._select().order_by(knowledge.c.knowledge_key)
            rows = (await connection.execute(in_order)).all()
        entries = [KnowledgeEntry(**row._mapping) for row in rows]
        return KnowledgeSnapshot(int(version or 0), entries)

    async def replace(
        self, entries: Sequence[NewKnowledge], restore_id: str, *, version: int | None = None
    ) -> None:
        """Replace all entries and record that the restore was decided.

        With a `version`, StorageBusy if something was written since that snapshot.
        """
        self._require_permission()
        now = datetime.now(UTC)
        rows = [
            {
                **self.protect(entry).row(),
                "created_at": entry.created_at or now,
                "updated_at": entry.updated_at or now,
            }
            for entry in entries
        ]
        await self._database.transact(lambda c: self._replace(c, rows, restore_id, version))

    def _replace(
        self,
        connection: Connection,
        rows: list[dict[str, Any]],
        restore_id: str,
        version: int | None,
    ) -> None:
        numbers = take_change_numbers(connection, self._agent_id, len(rows))
        if version is not None and numbers.start != version + 1:
            raise StorageBusy("the knowledge base changed during the operation", hint="Try again")
        connection.execute(delete(knowledge).where(knowledge.c.agent_id == self._agent_id))
        numbered = [
            {**row, "agent_id": self._agent_id, "change_no": number}
            for row, number in zip(rows, numbers, strict=True)
        ]
        for batch in split(numbered, _PAGE):
            connection.execute(insert(knowledge), list(batch))
        # No row shows what was removed: a new epoch makes readers rebuild their index.
        of_agent = knowledge_bases.c.agent_id == self._agent_id
        connection.execute(update(knowledge_bases).where(of_agent).values(epoch=new_epoch()))
        restore = {
            "restore_id": restore_id,
            "agent_id": self._agent_id,
            "decided_at": datetime.now(UTC),
        }
        connection.execute(insert(restores), restore)

    async def was_restored(self, restore_id: str) -> bool:
        """Return whether a restore was decided and its end is not recorded yet.

        The answer waits for a restore whose transaction is still open.
        """

        def work(connection: Connection) -> bool:
            lock_knowledge(connection, self._agent_id, if_enabled=False)
            statement = select(restores.c.restore_id).where(restores.c.restore_id == restore_id)
            return connection.scalar(statement) is not None

        return await self._database.transact(work)

    async def close_restore(self, restore_id: str) -> None:
        """Record that nothing of a restore is left to do."""
        statement = delete(restores).where(restores.c.restore_id == restore_id)
        await self._database.transact(lambda c: c.execute(statement))

    def _select(self) -> Select[Any]:
        return select(*_COLUMNS).where(
            knowledge.c.agent_id == self._agent_id, knowledge.c.deleted_at.is_(None)
        )

    def _require_permission(self) -> None:
        if not self._scope.allows(Permission.KNOWLEDGE):
            raise Disabled(
                f"knowledge of agent {self._agent_id!r} is shared: this scope may not change it",
                hint="It requires the permission `knowledge`",
            )

    def _not_found(self, key: str) -> NotFound:
        return NotFound(
            f"agent {self._agent_id!r} has no knowledge entry {key!r}", hint="Check the key"
        )

    def _match(self, key: str) -> list[Any]:
        return [knowledge.c.agent_id == self._agent_id, knowledge.c.knowledge_key == key]

    def _find_same(self, connection: Connection, row: dict[str, Any]) -> str | None:
        """Return the key of an equal entry; white space at the end of its texts does not count."""
        lock_knowledge(connection, self._agent_id)  # two writers must not both find none
        same = [
            func.rtrim(knowledge.c[name], _WHITE_SPACE) == row[name].rstrip(_WHITE_SPACE)
            for name in ("content", "summary")
        ]
        for entry in connection.execute(self._select().where(*same)):
            if _fold(entry.tags) == _fold(row["tags"]):
                return str(entry.knowledge_key)
        return None


def take_change_numbers(connection: Connection, agent_id: str, count: int) -> range:
    """Lock an agent's knowledge until the transaction ends and return its next numbers."""
    version = lock_knowledge(connection, agent_id)
    statement = update(knowledge_bases).where(knowledge_bases.c.agent_id == agent_id)
    connection.execute(statement.values(version=version + count))
    return range(version + 1, version + count + 1)


def _fold(tags: Iterable[str]) -> set[str]:
    return set(map(fold_spaces, tags))


def _check_tag(tag: str) -> str:
    if not tag.strip() or len(tag) > NAME_LENGTH:
        raise InvalidArgument(
            f"tag {tag[:80]!r} is blank or too long", hint=f"Use 1 to {NAME_LENGTH} characters"
        )
    return check_text("tags", tag)
