"""Feedback: whether a recall was right, what would have been, and questions labelled with it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, select

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_existing_user
from memrecall.store.database.statements import filter_scope, match_keys, upsert
from memrecall.store.database.tables import feedback, is_visible, memories, messages, traces
from memrecall.store.traces import find_deleted, find_deleted_questions

MAX_EVIDENCE = 100
MAX_LABELLED = 10_000
_WRITTEN = [column.name for column in feedback.c if not column.primary_key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a person said about a recall; with `in_evaluation`, a question to evaluate with."""

    user_id: str
    trace_id: str
    agent_id: str
    query: str
    asked_at: datetime
    is_right: bool
    evidence: tuple[str, ...]  # empty: nothing that is stored answers the question
    in_evaluation: bool
    actor: str
    updated_at: datetime


class FeedbackList:
    """The feedback of some users, or of all."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_many(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Feedback]:
        """Return the feedback on recalls by user and trace; most have none."""
        found: list[Feedback] = []
        for condition in match_keys((feedback.c.user_id, feedback.c.trace_id), sorted(keys)):
            found += await self._read(select(feedback).where(condition))
        return {(item.user_id, item.trace_id): item for item in found}

    async def labelled(
        self, users: Collection[str] | None = None, agent_id: str | None = None
    ) -> list[Feedback]:
        """Return the labelled questions, the latest first."""
        statement = select(feedback).where(feedback.c.in_evaluation)
        if users is not None:
            statement = statement.where(feedback.c.user_id.in_(sorted(users)))
        if agent_id is not None:
            statement = statement.where(feedback.c.agent_id == agent_id)
        latest = (feedback.c.updated_at.desc(), feedback.c.user_id, feedback.c.trace_id)
        return await self._read(statement.order_by(*latest).limit(MAX_LABELLED))

    async def _read(self, statement: Select[Any]) -> list[Feedback]:
        """Return feedback, without what names or quotes something deleted until that is undone."""
        items = [
            Feedback(
                user_id=row.user_id,
                trace_id=row.trace_id,
                agent_id=row.agent_id,
                query=row.query,
                asked_at=row.asked_at,
                is_right=row.is_right,
                evidence=tuple(row.evidence),
                in_evaluation=row.in_evaluation,
                actor=row.actor,
                updated_at=row.updated_at,
            )
            for row in await self._database.fetch(statement)
        ]
        questions = [(item.user_id, item.query) for item in items]
        hidden = await find_deleted_questions(self._database, questions)
        deleted: set[tuple[str, str]] = set()
        for user in {item.user_id for item in items}:
            keys = {key for item in items if item.user_id == user for key in item.evidence}
            deleted |= {(user, key) for key in await find_deleted(self._database, user, keys)}
        return [
            item
            for item in items
            if (item.user_id, item.query) not in hidden
            and deleted.isdisjoint((item.user_id, key) for key in item.evidence)
        ]


class FeedbackWriter:
    """Changes the feedback on the recalls of a scope."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope

    async def set(
        self,
        trace_id: str,
        *,
        is_right: bool,
        evidence: Sequence[str],
        in_evaluation: bool = False,
        actor: str = "",
    ) -> None:
        """Store feedback on a recall in place of an earlier one.

        NotFound if the scope has no such recall, InvalidArgument if it has no such evidence.
        """
        keys = list(dict.fromkeys(evidence))
        if len(keys) > MAX_EVIDENCE:
            raise InvalidArgument(
                f"{len(keys)} messages and memories are named", hint=f"Name up to {MAX_EVIDENCE}"
            )

        def work(connection: Connection) -> None:
            locks = lock_existing_user(connection, self._scope)
            columns = (traces.c.agent_id, traces.c.query, traces.c.body)
            statement = filter_scope(select(*columns), traces, self._scope)
            row = connection.execute(statement.where(traces.c.trace_id == trace_id)).first()
            if row is None:
                raise NotFound(f"there is no trace {trace_id!r}", hint="Check the id and the user")
            self._require_stored(connection, keys)
            now = row.body.get("now")  # the time that the question was about
            values = {
                "user_id": self._scope.user_id,
                "trace_id": trace_id,
                "agent_id": row.agent_id,
                "query": row.query,
                "asked_at": locks.now if now is None else datetime.fromisoformat(now),
                "is_right": is_right,
                "evidence": keys,
                "in_evaluation": in_evaluation,
                "actor": actor,
                "updated_at": locks.now,
            }
            connection.execute(upsert(connection, feedback, _WRITTEN), values)
            locks.save(connection, is_activity=False)

        await self._database.transact(work)

    async def remove(self, trace_id: str) -> None:
        """Remove the feedback on a recall, if there is any."""
        of_trace = (feedback.c.user_id == self._scope.user_id, feedback.c.trace_id == trace_id)
        statement = delete(feedback).where(*of_trace)
        if self._scope.agent_id is not None:
            statement = statement.where(feedback.c.agent_id == self._scope.agent_id)
        await self._database.transact(lambda c: c.execute(statement))

    def _require_stored(self, connection: Connection, keys: Sequence[str]) -> None:
        """Raise InvalidArgument unless the user has messages and memories of these keys."""
        missing = set(keys)
        for table, key in ((messages, messages.c.message_id), (memories, memories.c.memory_key)):
            visible = filter_scope(select(key), table, replace(self._scope, session_id=None))
            visible = visible.where(is_visible(table), key.in_(list(keys)))
            missing -= set(connection.scalars(visible))
        if missing:
            raise InvalidArgument(
                f"the user has no message or memory {min(missing)!r}", hint="Check the id"
            )
