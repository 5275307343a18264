"""The projects that a user's messages and memories belong to."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, exists, func, literal, or_, select, union_all, update

from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_users
from memrecall.store.database.statements import new_epoch
from memrecall.store.database.tables import is_visible, memories, messages, traces, users


@dataclass(frozen=True, slots=True)
class ProjectSummary:
    """A project with the counts of its rows and the time of the last one."""

    project: str
    sessions: int
    messages: int
    memories: int
    last_time: datetime


class Projects:
    """The projects of any user."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, user_id: str) -> list[ProjectSummary]:
        """Return a user's projects, the latest first."""
        parts = [
            select(table.c.project, table.c.session_id, time.label("time"), literal(n).label("n"))
            .where(table.c.user_id == user_id, table.c.project.is_not(None))
            .where(is_visible(table))
            for n, table, time in (
                (0, memories, memories.c.created_at),
                (1, messages, messages.c.ts),
            )
        ]
        rows = union_all(*parts).subquery().c
        said, last = func.sum(rows.n), func.max(rows.time)
        counted = select(
            rows.project,
            func.count(rows.session_id.distinct()).label("sessions"),
            said.label("messages"),
            (func.count() - said).label("memories"),
            last.label("last_time"),
        )
        latest = counted.group_by(rows.project).order_by(last.desc(), rows.project)
        return [ProjectSummary(**row._mapping) for row in await self._database.fetch(latest)]

    async def rename(self, user_id: str, old: str, new: str) -> int:
        """Move the rows of a project to another name, as when its folder gets a remote.

        Return how many were moved. One read of an index tells that there are none.
        """
        Scope(user_id, project=new)  # checks both
        is_left = [
            exists().where(table.c.user_id == user_id, table.c.project == old)
            for table in (messages, memories)
        ]
        if old == new or not await self._database.fetch(select(literal(1)).where(or_(*is_left))):
            return 0

        def work(connection: Connection) -> int:
            lock_users(connection, [user_id])
            count = 0
            for table in (messages, memories, traces):
                moved = update(table).where(table.c.user_id == user_id, table.c.project == old)
                count += connection.execute(moved.values(project=new)).rowcount
            # Readers drop the indexes that have the old name.
            epoch = update(users).where(users.c.user_id == user_id).values(epoch=new_epoch())
            connection.execute(epoch)
            return count

        return await self._database.transact(work)
