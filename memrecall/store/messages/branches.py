"""The branches of a session: from each message back to the one that led to it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, tuple_

from memrecall.store.database.engine import Database
from memrecall.store.database.tables import messages
from memrecall.types import Role

NODES_PER_READ = 200
SESSION_ORDER = (messages.c.ts, messages.c.sequence_no)


@dataclass(frozen=True, slots=True)
class _Node:
    """A message without its content: enough to walk along a branch."""

    message_id: str
    parent_message_id: str | None
    role: str
    ts: datetime
    sequence_no: int


_NODE_COLUMNS = [messages.c[name] for name in _Node.__slots__]


class ThreadWalk:
    """One walk back through a session, from each message to the one that led to it.

    No message is visited twice, so parents that form a circle cannot trap the walk.
    """

    def __init__(
        self, database: Database, in_session: Select[Any], limit: int, *, branches: bool = True
    ) -> None:
        self._database = database
        self._branches = branches
        self._in_session = in_session.with_only_columns(*_NODE_COLUMNS)
        self._limit = limit
        self._page_size = min(limit, NODES_PER_READ)
        self._visited: set[str] = set()
        self._in_branch = False
        # Read ahead: the node that was last looked back from, then those before it without a gap.
        self._read_ahead: list[_Node] = []

    async def walk_back(self, message_id: str | None) -> list[str]:
        """Return the ids that lead up to a message, or to the session's end, latest first."""
        node = None if message_id is None else await self._find(message_id)
        if node is not None:
            self._visited.add(node.message_id)
        ids: list[str] = []
        while len(ids) < self._limit:
            node = await self._get_parent(node) or await self._get_previous(node)
            if node is None:
                break
            self._visited.add(node.message_id)
            ids.append(node.message_id)
        return ids

    async def _get_parent(self, node: _Node | None) -> _Node | None:
        if node is None or not self._branches or node.parent_message_id in self._visited:
            return None
        parent = await self._find_before(node, node.parent_message_id)
        # Every answer names its question. That alone is no branch: two may be asked at once.
        is_branch = node.role != Role.ASSISTANT or (parent and parent.parent_message_id)
        if parent is not None and (self._in_branch or is_branch):
            self._in_branch = True
            return parent
        return None

    async def _find_before(self, node: _Node, message_id: str | None) -> _Node | None:
        if message_id is None:
            return None
        for earlier in await self._look_back(node):
            if earlier.message_id == message_id:
                return earlier
        return await self._find(message_id)

    async def _get_previous(self, node: _Node | None) -> _Node | None:
        while earlier := await self._look_back(node):
            for candidate in earlier:
                if candidate.message_id not in self._visited:
                    return candidate
            node = earlier[-1]
        return None

    async def _look_back(self, node: _Node | None) -> list[_Node]:
        """Return some nodes just before one, or the last ones; none at the session's beginning."""
        if node is None:
            self._read_ahead = await self._read(self._in_session)
            return self._read_ahead
        nodes = self._read_ahead
        self._read_ahead = nodes[nodes.index(node) if node in nodes else len(nodes) :]
        if len(self._read_ahead) < 2:
            # Compared as one value: an index seeks it even where an import has one time for all.
            is_earlier = tuple_(*SESSION_ORDER) < (node.ts, node.sequence_no)
            self._read_ahead = [node, *await self._read(self._in_session.where(is_earlier))]
        return self._read_ahead[1:]

    async def _find(self, message_id: str) -> _Node | None:
        nodes = await self._read(self._in_session.where(messages.c.message_id == message_id))
        return nodes[0] if nodes else None

    async def _read(self, statement: Select[Any]) -> list[_Node]:
        latest_first = statement.order_by(*(column.desc() for column in SESSION_ORDER))
        rows = await self._database.fetch(latest_first.limit(self._page_size))
        return [_Node(**row._mapping) for row in rows]
