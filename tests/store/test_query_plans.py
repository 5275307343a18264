"""Statements of writes and of history reads access only the rows of their users."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memrecall.scope import Scope
from memrecall.store import RowKey, ScopedMessage, Store
from memrecall.store.messages import write_messages
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..counting import recorded_parameters
from .samples import new_trace, pending

TABLES = "messages|memories|vectors|sessions|users|traces"


async def test_sqlite_looks_up_keys_by_index(tmp_path: Path) -> None:
    import numpy as np

    async with await Store.open(str(tmp_path / "chat.db")) as store:
        with recorded_parameters() as executed:
            scopes = [Scope(f"u{n % 3}", session_id=f"s{n}") for n in range(6)]
            message = NewMessage(role=Role.USER, content="tea")
            entries = [ScopedMessage(scope, message) for scope in scopes]
            result = await write_messages(store.database, entries)
            rows = [RowKey(f"u{n % 3}", "message", key) for n, key in enumerate(result.ids)]
            await store.vectors("m").write(pending(*rows), np.ones((6, 4), dtype=np.float32))
            memories = [NewMemory(content=f"memory {n}") for n in range(3)]
            await store.memories(Scope("u1", session_id="s1")).add(memories, origin=Origin.USER)
            await store.traces(Scope("u1", session_id="s1")).add(new_trace(), keep_days=1)
            await store.owners.purge_traces(datetime.now(UTC))
        kinds = ("SELECT", "UPDATE", "DELETE")
        statements = [each for each in executed if each[0].lstrip().upper().startswith(kinds)]
        assert len(statements) > 10
        for statement in statements:
            plan = await explain(store, statement)
            assert not re.search(rf"SCAN ({TABLES})\b", plan), (statement, plan)


async def test_batch_of_many_owners_is_stored(store: Store) -> None:
    entries = [
        ScopedMessage(Scope(f"u{n}"), NewMessage(role=Role.USER, content="tea", message_id="same"))
        for n in range(1_200)
    ]
    assert (await write_messages(store.database, entries)).stored == 1_200
    assert (await write_messages(store.database, entries)).stored == 0


async def test_rows_without_vectors_are_looked_up_one_by_one(store: Store) -> None:
    """A join of tables that PostgreSQL has not analyzed compared all of a user's rows in pairs."""
    with recorded_parameters() as statements:
        await store.vectors("m").pending("ann", 20)
    (statement,) = (each for each in statements if "vectors" in each[0])
    plan = await explain(store, statement)
    assert "SubPlan" in plan or "CORRELATED SCALAR SUBQUERY" in plan, plan
    assert "Loop" not in plan, plan


async def explain(store: Store, statement: tuple[str, Any]) -> str:
    """Return the plan of a statement with its parameters."""
    command = "EXPLAIN" if store.file is None else "EXPLAIN QUERY PLAN"
    async with store.database.autocommit() as connection:
        rows = await connection.exec_driver_sql(f"{command} {statement[0]}", statement[1])
        return " / ".join(row[-1] for row in rows)
