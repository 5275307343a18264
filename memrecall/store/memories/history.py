"""What became of a memory: added, corrected, superseded, deleted, brought back."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from memrecall.errors import NotFound
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.memory_tables import revisions
from memrecall.store.database.tables import memories
from memrecall.store.memories.edits import only_visible


@dataclass(frozen=True, slots=True)
class Revision:
    """One step in the life of a memory. `other_key` is what took its place, or whose it took."""

    memory_key: str
    number: int
    event: str
    old_text: str | None
    new_text: str | None
    actor: str
    at: datetime
    reason: str = ""
    other_key: str | None = None
    undone: bool = False


_COLUMNS = [revisions.c[name] for name in Revision.__slots__]


async def read_history(database: Database, scope: Scope, memory_key: str) -> list[Revision]:
    """All steps from the first; also of a memory that is hidden, until it is purged."""
    wanted = only_visible(
        select(
            memories.c.content,
            memories.c.created_at,
            memories.c.provenance,
            memories.c.supersedes,
        ),
        scope,
    ).where(memories.c.memory_key == memory_key)
    rows = await database.fetch(wanted)
    if not rows:
        raise NotFound(f"there is no memory {memory_key!r}", hint="Check the key and the user")
    told = select(*_COLUMNS).where(
        revisions.c.user_id == scope.user_id, revisions.c.memory_key == memory_key
    )
    steps = [
        Revision(**row._mapping) for row in await database.fetch(told.order_by(revisions.c.number))
    ]
    row = rows[0]
    first = Revision(
        memory_key=memory_key,
        number=0,
        event="ADD",
        old_text=None,
        new_text=steps[0].old_text if steps else row.content,
        actor=row.provenance["actor"],
        at=row.created_at,
        other_key=row.supersedes,
    )
    return [first, *steps]
