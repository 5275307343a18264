"""Statements of writes and of history reads access only the rows of their users."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import event

from memrecall.scope import Scope
from memrecall.store import RowKey, ScopedMessage, Store
from memrecall.store.messages.records import write_messages
from memrecall.store.vectors import _PENDING
from memrecall.types import NewMemory, NewMessage, Origin, Role

from .samples import new_trace, pending

TABLES = "messages|memories|vectors|sessions|users|traces"


async def test_sqlite_looks_up_keys_by_index(tmp_path: Path) -> None:
    import numpy as np

    statements: list[tuple[str, Any]] = []
    async with await Store.open(str(tmp_path / "chat.db")) as store:
        engine = store.database.write_engine

        @event.listens_for(engine, "before_cursor_execute")
        def record(
            _c: Any, _u: Any, statement: str, parameters: Any, _x: Any, executemany: bool
        ) -> None:
            if statement.lstrip().upper().startswith(("SELECT", "UPDATE", "DELETE")):
                statements.append((statement, parameters[0] if executemany else parameters))

        entries = [
            ScopedMessage(
                Scope(f"u{n % 3}", session_id=f"s{n}"), NewMessage(role=Role.USER, content="tea")
            )
            for n in range(6)
        ]
        result = await write_messages(store.database, entries)
        rows = [RowKey(f"u{n % 3}", "message", key) for n, key in enumerate(result.ids)]
        await store.vectors("m").write(pending(*rows), np.ones((6, 4), dtype=np.float32))
        memories = [NewMemory(content=f"memory {n}") for n in range(3)]
        await store.memories(Scope("u1", session_id="s1")).add(memories, origin=Origin.USER)
        await store.traces(Scope("u1", session_id="s1")).add(new_trace(), keep_days=1)
        await store.owners.purge_traces(datetime.now(UTC))
        event.remove(engine, "before_cursor_execute", record)
        assert len(statements) > 10
        async with store.database.autocommit() as connection:
            for statement, parameters in statements:
                plan = await connection.exec_driver_sql(
                    f"EXPLAIN QUERY PLAN {statement}", parameters
                )
                details = " / ".join(row[-1] for row in plan)
                assert not re.search(rf"SCAN ({TABLES})\b", details), (statement, details)


async def test_batch_of_many_owners_is_stored(store: Store) -> None:
    entries = [
        ScopedMessage(Scope(f"u{n}"), NewMessage(role=Role.USER, content="tea", message_id="same"))
        for n in range(1_200)
    ]
    assert (await write_messages(store.database, entries)).stored == 1_200
    assert (await write_messages(store.database, entries)).stored == 0


async def test_rows_without_vectors_are_looked_up_one_by_one(store: Store) -> None:
    """A join of tables that PostgreSQL has not analyzed compared all of a user's rows in pairs."""
    values = {"of_user": "ann", "of_model": "m", "after": 0, "most": 21}
    async with store.database.read() as connection:
        literals = {"dialect": connection.dialect, "compile_kwargs": {"literal_binds": True}}
        statement = f"EXPLAIN QUERY PLAN {_PENDING.params(**values).compile(**literals)}"
        if store.file is None:
            statement = statement.replace(" QUERY PLAN", "")
        plan = "\n".join(row[-1] for row in await connection.exec_driver_sql(statement))
    assert "SubPlan" in plan or "CORRELATED SCALAR SUBQUERY" in plan, plan
    assert "Loop" not in plan, plan
