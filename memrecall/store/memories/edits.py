"""One change of a memory's row: the row, its revision, its vector, all numbered.

An edit never loses a word: the revision keeps what was there before, for the history and for undo.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Select, bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.scope import Permission, Scope
from memrecall.store.database.locks import Locks
from memrecall.store.database.memory_tables import revisions
from memrecall.store.database.statements import select_by_keys
from memrecall.store.database.tables import memories, vectors
from memrecall.types import Keyword, format_time, parse_time

Event = Literal["UPDATE", "DELETE", "UNDO"]

TIMES = frozenset({"valid_from", "valid_to", "expires_at", "deleted_at"})
CHANGEABLE = (
    "content",
    "summary",
    "memory_type",
    "layer",
    "keywords",
    "metadata",
    "sensitive",
    "valid_from",
    "valid_to",
    "truncated",
    "deleted_at",
    "search_text",
    "subject",
    "speaker",
    "field",
    "pinned",
    "expires_at",
    "superseded_by",
    "superseded_reason",
)


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to become of one row, and how its history tells of it."""

    row: Mapping[str, Any]
    values: Mapping[str, Any]
    event: Event
    reason: str = ""
    other_key: str | None = None

    @property
    def rewords(self) -> bool:
        """Whether its vector is of other words now."""
        return any(
            name in self.values and self.values[name] != self.row[name]
            for name in ("content", "summary")
        )

    @property
    def hides(self) -> bool:
        """Whether nobody finds it any more."""
        return self.values.get("deleted_at", self.row["deleted_at"]) is not None

    def before(self) -> dict[str, Any]:
        """What an undo brings back, as JSON."""
        kept = {name: self.row[name] for name in self.values if name != "search_text"}
        return {
            name: format_time(value) if isinstance(value, datetime) else value
            for name, value in kept.items()
        }


def only_visible(wanted: Select[Any], scope: Scope) -> Select[Any]:
    """Those of the rows that a scope may see, hidden ones included."""
    wanted = wanted.where(memories.c.user_id == scope.user_id)
    if scope.agent_id is not None:
        wanted = wanted.where(memories.c.agent_id == scope.agent_id)
    if not scope.allows(Permission.SENSITIVE):
        wanted = wanted.where(memories.c.sensitive.is_(False))
    return wanted


async def write_edits(
    connection: AsyncConnection, claims: Locks, edits: Sequence[Edit], actor: str
) -> None:
    """Carry out edits of one user's memories. The caller releases the claims."""
    if not edits:
        return
    user_id = edits[0].row["user_id"]
    numbers = await _last_numbers(connection, user_id, [e.row["memory_key"] for e in edits])
    rows, history = [], []
    for edit in edits:
        key = edit.row["memory_key"]
        state = {name: edit.values.get(name, edit.row[name]) for name in CHANGEABLE}
        number = claims.next_change(user_id)
        rows.append({"of_user": user_id, "of_key": key, **state, "change_no": number})
        numbers[key] = numbers.get(key, 0) + 1
        history.append(_revision(edit, numbers[key], claims.now, actor))
    changed = update(memories).where(
        memories.c.user_id == bindparam("of_user"), memories.c.memory_key == bindparam("of_key")
    )
    await connection.execute(changed.values(updated_at=claims.now), rows)
    await connection.execute(insert(revisions), history)
    await _renew_vectors(connection, claims, edits)


def _revision(edit: Edit, number: int, now: datetime, actor: str) -> dict[str, Any]:
    gone = edit.event == "DELETE"
    return {
        "user_id": edit.row["user_id"],
        "memory_key": edit.row["memory_key"],
        "number": number,
        "event": edit.event,
        "old_text": edit.row["content"],
        "new_text": None if gone else edit.values.get("content", edit.row["content"]),
        "other_key": edit.other_key,
        "reason": edit.reason,
        "actor": actor,
        "at": now,
        "before": edit.before(),
        "undone": False,
    }


async def _last_numbers(
    connection: AsyncConnection, user_id: str, keys: Sequence[str]
) -> dict[str, int]:
    last = select(revisions.c.memory_key, func.max(revisions.c.number).label("number"))
    last = last.where(revisions.c.user_id == user_id).group_by(revisions.c.memory_key)
    rows = await select_by_keys(connection, last, [revisions.c.memory_key], list(keys))
    return {row["memory_key"]: row["number"] for row in rows}


async def _renew_vectors(connection: AsyncConnection, claims: Locks, edits: Sequence[Edit]) -> None:
    """Reworded rows wait for new vectors; those of the others are handed to readers again."""
    of_row = (
        vectors.c.user_id == bindparam("of_user"),
        vectors.c.kind == "memory",
        vectors.c.key == bindparam("of_key"),
    )
    stale = [_place(edit) for edit in edits if edit.rewords]
    if stale:
        await connection.execute(delete(vectors).where(*of_row), stale)
    same = [
        {**_place(edit), "change_no": claims.next_change(edit.row["user_id"])}
        for edit in edits
        if not edit.rewords and not edit.hides
    ]
    if same:
        await connection.execute(update(vectors).where(*of_row), same)


def _place(edit: Edit) -> dict[str, Any]:
    return {"of_user": edit.row["user_id"], "of_key": edit.row["memory_key"]}


def read_before(before: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a revision has kept, as the table takes them."""
    return {
        name: parse_time(value) if name in TIMES and value is not None else value
        for name, value in before.items()
    }


def read_keywords(given: Sequence[Mapping[str, Any]]) -> list[Keyword]:
    """Keywords as a row keeps them."""
    return [Keyword.model_validate(keyword) for keyword in given]
