"""Which messages of a session lead up to a place in it, along the branch that ends there."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, tuple_
from sqlalchemy.sql import ColumnElement

from memrecall.store.engine import Database
from memrecall.store.tables import messages

PLACES_PER_READ = 200


@dataclass(frozen=True, slots=True)
class _Place:
    """A message without its words: enough to find the way."""

    message_id: str
    parent_message_id: str | None
    ts: datetime
    sequence_no: int


_COLUMNS = [messages.c[name] for name in _Place.__slots__]


class ThreadWalk:
    """One walk back through a session, from each message to the one that led to it.

    No message is passed twice, so parents that form a circle cannot hold the walk.
    """

    def __init__(self, database: Database, of_session: Select[Any], limit: int) -> None:
        self._database = database
        self._of_session = of_session.with_only_columns(*_COLUMNS)
        self._limit = limit
        self._page_size = min(limit, PLACES_PER_READ)
        self._passed: set[str] = set()
        # Read ahead: the place last looked back from, then those before it without a gap.
        self._run: list[_Place] = []

    async def back_from(self, message_id: str | None) -> list[str]:
        """The ids of what leads up to a message, or to the session's end; the latest first."""
        at = None if message_id is None else await self._find(message_id)
        if at is not None:
            self._passed.add(at.message_id)
        found: list[str] = []
        while len(found) < self._limit:
            at = await self._parent_of(at) or await self._said_before(at)
            if at is None:
                break
            self._passed.add(at.message_id)
            found.append(at.message_id)
        return found

    async def _parent_of(self, at: _Place | None) -> _Place | None:
        name = at.parent_message_id if at is not None else None
        if name is None or name in self._passed:
            return None
        for place in await self._look_back(at):
            if place.message_id == name:
                return place
        return await self._find(name)

    async def _said_before(self, at: _Place | None) -> _Place | None:
        while earlier := await self._look_back(at):
            for place in earlier:
                if place.message_id not in self._passed:
                    return place
            at = earlier[-1]
        return None

    async def _look_back(self, at: _Place | None) -> list[_Place]:
        """Some places just before `at`, or the last ones; none where the session begins."""
        if at is None:
            self._run = await self._read(self._of_session)
            return self._run
        here = self._run.index(at) if at in self._run else len(self._run)
        self._run = self._run[here:]
        if len(self._run) < 2:
            earlier = self._of_session.where(_said_before(at))
            self._run = [at, *await self._read(earlier)]
        return self._run[1:]

    async def _find(self, message_id: str) -> _Place | None:
        found = await self._read(self._of_session.where(messages.c.message_id == message_id))
        return found[0] if found else None

    async def _read(self, wanted: Select[Any]) -> list[_Place]:
        latest_first = wanted.order_by(messages.c.ts.desc(), messages.c.sequence_no.desc())
        rows = await self._database.fetch(latest_first.limit(self._page_size))
        return [_Place(**row._mapping) for row in rows]


def _said_before(at: _Place) -> ColumnElement[bool]:
    # Compared as one value: an index seeks it even where a whole import has the same time.
    return tuple_(messages.c.ts, messages.c.sequence_no) < (at.ts, at.sequence_no)
