"""Graphs in Ladybug: the promise of `GraphDB`, kept in a folder of files."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from memrecall.adapters import ladybug_cypher as cypher
from memrecall.adapters import ladybug_rows
from memrecall.adapters.ladybug_file import GraphFile, remove
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import NewRelation, StoredEntity, StoredRelation, fold_name
from memrecall.store.graph import MOST_RELATIONS, check_name

_OPEN_AT_ONCE = 32
_SUFFIX = ".lbug"


class LadybugGraphs:
    """Graphs of all users of one database, each in a file of its own.

    A file belongs to one process at a time: for an application or a service of one process.
    """

    is_in_store = False

    def __init__(self, folder: Path, database_id: str) -> None:
        self._folder = folder / database_id
        self._files: OrderedDict[str, GraphFile] = OrderedDict()
        self._lock = asyncio.Lock()

    def room(self, scope: Scope) -> "LadybugRoom":
        """The graph of one scope."""
        return LadybugRoom(self, scope)

    async def rows(self, user_id: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Everything of a user as rows of an export."""
        if not self._path(user_id).exists():
            return
        for row in await self.read(user_id, lambda file: ladybug_rows.all_rows(file, user_id)):
            yield row

    async def add_rows(self, user_id: str, rows: Iterable[tuple[str, Any]]) -> None:
        """Take such rows; what is there under the same key stays."""
        given = list(rows)
        if given:
            await self.write(user_id, lambda file: ladybug_rows.add_rows(file, given))

    async def erase_user(self, user_id: str) -> None:
        """Remove a user's file."""
        async with self._lock:
            await self._remove(user_id)

    async def erase_session(self, user_id: str, session_id: str) -> None:
        """Write a user's file anew, without what was said in a session."""
        kept = ladybug_rows.without_session([row async for row in self.rows(user_id)], session_id)
        await self.erase_user(user_id)
        await self.add_rows(user_id, kept)

    async def close(self) -> None:
        """Give all files back."""
        async with self._lock:
            for file in self._files.values():
                await asyncio.to_thread(file.close)
            self._files.clear()

    async def read(self, user_id: str, work: Any) -> Any:
        """Ask a user's graph something."""
        async with self._lock:
            return await asyncio.to_thread((await self._file(user_id)).read, work)

    async def write(self, user_id: str, work: Any) -> Any:
        """Change a user's graph, all or nothing; begun work ends although the caller goes away."""
        return await asyncio.shield(self._write(user_id, work))

    async def _write(self, user_id: str, work: Any) -> Any:
        async with self._lock:
            return await asyncio.to_thread((await self._file(user_id)).write, work)

    def has(self, user_id: str) -> bool:
        """Whether anything was ever written of a user."""
        return user_id in self._files or self._path(user_id).exists()

    async def _file(self, user_id: str) -> GraphFile:
        if user_id not in self._files:
            while len(self._files) >= _OPEN_AT_ONCE:
                await asyncio.to_thread(self._files.popitem(last=False)[1].close)
            self._files[user_id] = await asyncio.to_thread(GraphFile, self._path(user_id))
        self._files.move_to_end(user_id)
        return self._files[user_id]

    async def _remove(self, user_id: str) -> None:
        opened = self._files.pop(user_id, None)
        if opened is not None:
            await asyncio.to_thread(opened.close)
        await asyncio.to_thread(remove, self._path(user_id))

    def _path(self, user_id: str) -> Path:
        """Where a user's file lies; the id itself never becomes a file name."""
        return self._folder / (hashlib.sha256(user_id.encode()).hexdigest()[:40] + _SUFFIX)


class LadybugRoom:
    """The graph of one scope."""

    def __init__(self, graphs: LadybugGraphs, scope: Scope) -> None:
        self._graphs = graphs
        self._user = scope.user_id
        self._only = scope.agent_id
        self._owner = cypher.Owner(scope.agent_id or DEFAULT_NAME, scope.session_id)

    async def add(self, types: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name and type) and relations; the ids of the relations that are new."""
        names = {name: kind for name, kind in types.items() if fold_name(name)}
        for relation in new:
            names.setdefault(relation.source, "thing")
            names.setdefault(relation.destination, "thing")
        for name in names:
            check_name(name)
        if not names:
            return []
        made: list[str] = await self._graphs.write(
            self._user, lambda file: cypher.add(file, self._owner, names, new)
        )
        return made

    async def merge(self, name: str, alias: str) -> None:
        """Two names are of one entity: what was said of `alias` is said of `name` from now on."""
        for one in (name, alias):
            check_name(one)
        await self._graphs.write(
            self._user, lambda file: cypher.merge(file, self._owner, name, alias)
        )

    async def entities(self, names: Iterable[str]) -> list[StoredEntity]:
        """Entities by any of their names; it costs the names, not the size of the graph."""
        folded = sorted({fold_name(name) for name in names} - {""})
        return await self._read(lambda file: cypher.entities(file, self._only, folded))

    async def page(self, *, limit: int, after: str | None = None) -> list[StoredEntity]:
        """So many entities, the earliest first, beginning after the one of that id."""
        return await self._read(lambda file: cypher.page(file, self._only, limit, after))

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MOST_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """The latest relations that hold and touch an entity: source id, destination id, it."""
        ids = list(entity_ids)
        return await self._read(lambda file: cypher.around(file, self._only, ids, as_of, limit))

    async def _read(self, work: Any) -> list[Any]:
        if not self._graphs.has(self._user):
            return []
        found: list[Any] = await self._graphs.read(self._user, work)
        return found
