"""PostgreSQL, through asyncpg."""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar

from sqlalchemy import (
    Engine,
    Numeric,
    Table,
    Text,
    case,
    cast,
    event,
    exists,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import URL
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.sql import ColumnElement

from memrecall.errors import (
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
    requires_extra,
)
from memrecall.store.database.dialect import (
    INVALID_TEXT,
    SPACE_HINT,
    WAIT_HINT,
    Comparison,
    ConnectionOptions,
    DatabaseDialect,
    ErrorCode,
)

_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 1.0  # that the client waits for the server to report its own timeout
_RESTART_HINT = "The server is starting or stopping; try again"
_SLOW_HINT = "Try again, with more time"


class PostgresqlDialect(DatabaseDialect):
    """A PostgreSQL server, through asyncpg."""

    name = "postgresql"
    driver = "postgresql+asyncpg"
    schemes = frozenset({"postgres", "postgresql", "postgresql+asyncpg"})
    position_function = "strpos"
    snapshot_options: ClassVar[Mapping[str, Any]] = {
        "isolation_level": "REPEATABLE READ",
        "postgresql_readonly": True,
    }
    autocommit_options: ClassVar[Mapping[str, Any]] = {"isolation_level": "AUTOCOMMIT"}
    read_only_probe = select(
        func.pg_is_in_recovery().label("in_recovery"),
        func.current_setting("transaction_read_only").label("is_read_only"),
    )
    locks_rows = True
    byte_collation = "C"
    error_codes = (  # SQLSTATE
        ErrorCode("53100", StorageFull, SPACE_HINT),
        ErrorCode("53300", StorageBusy, "Raise max_connections of the server", is_transient=True),
        ErrorCode("53", StorageBusy, "The server lacks resources; try again"),
        ErrorCode("55P03", StorageBusy, WAIT_HINT),  # lock timeout
        ErrorCode("57014", StorageBusy, _SLOW_HINT),  # statement timeout
        ErrorCode("57P04", StorageUnreachable, "The database was dropped"),
        ErrorCode("57P", StorageUnreachable, _RESTART_HINT, is_transient=True),
        ErrorCode("40", StorageBusy, WAIT_HINT, is_transient=True),  # deadlock, serialization
        ErrorCode(
            "23503", StorageBusy, "A row that it refers to was erased concurrently; try again"
        ),
        ErrorCode("25006", StorageReadOnly, "Connect to a server that accepts writes"),
        ErrorCode("25P03", StorageBusy, "The transaction was idle for too long; try again"),
        ErrorCode("08", StorageUnreachable, "Check that the server runs", is_transient=True),
        ErrorCode("3D000", StorageUnreachable, "Check the name in the database URL"),
        ErrorCode("28", StorageUnreachable, "Check user and password in the URL"),
        ErrorCode("58", StorageError, "Check the disk of the server"),
        ErrorCode("XX001", StorageError, "The database is damaged; restore a backup"),
        ErrorCode("XX002", StorageError, "An index is damaged; REINDEX it"),
    )

    def create_engine(
        self, url: URL, options: ConnectionOptions, *, writes: bool = False
    ) -> AsyncEngine:
        """Return a pool; durability is a setting of the server."""
        patience = options.lock_timeout if writes else 0.0
        limit = options.statement_timeout and options.statement_timeout + patience
        server_settings = {
            "application_name": "memrecall",
            "lock_timeout": _milliseconds(options.lock_timeout),
            "statement_timeout": _milliseconds(limit) if limit else "0",
            "idle_in_transaction_session_timeout": "60000",
            "timezone": "UTC",
        }
        if options.read_only:  # otherwise the server decides
            server_settings["default_transaction_read_only"] = "on"
        engine = create_async_engine(
            url,
            pool_timeout=limit or options.lock_timeout,
            connect_args={
                "timeout": _CONNECT_SECONDS,
                "command_timeout": limit and limit + _ANSWER_SECONDS,
                "server_settings": server_settings,
            },
        )
        _drop_dead_connections(engine.sync_engine)
        return engine

    def get_error_code(self, error: BaseException) -> str:
        """Return the SQLSTATE, or that of a wrong encoding for text that asyncpg refused."""
        chain = [error]
        while chain[-1].__cause__ is not None:
            chain.append(chain[-1].__cause__)
        if isinstance(chain[-1], UnicodeError):
            return INVALID_TEXT
        return next((code for e in chain if (code := getattr(e, "sqlstate", None))), "")

    def insert(self, target: Table) -> Any:
        """Return PostgreSQL's INSERT."""
        return postgresql.insert(target)

    def get_driver_errors(self) -> tuple[type[Exception], ...]:
        """Return asyncpg's errors, which connecting and closing may raise as they are."""
        with requires_extra("PostgreSQL", "postgresql", "asyncpg"):
            import asyncpg
        return (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

    def _read_json(self, document: ColumnElement[Any]) -> tuple[Any, ColumnElement[str]]:
        entries = func.json_each(document).table_valued("key", "value")
        return entries, func.json_typeof(entries.c.value)

    def compare_json(
        self, document: ColumnElement[Any], key: str, compare: Comparison, value: Any
    ) -> ColumnElement[bool]:
        """Return the condition on the value that `json_each` gives for the key, or on its items."""
        entries, json_type = self._read_json(document)
        value_list = func.json_build_array(entries.c.value)
        listed = case((json_type == "array", entries.c.value), else_=value_list)
        items = func.json_array_elements(listed).table_valued("value", joins_implicitly=True)
        json_type = func.json_typeof(items.c.value)
        no_path = literal([], postgresql.ARRAY(Text))
        text = items.c.value.op("#>>", return_type=Text())(no_path)
        rows = select(literal(1)).select_from(entries, items).where(entries.c.key == key)
        if isinstance(value, bool):
            return exists(rows.where(json_type == "boolean", text == str(value).lower()))
        if isinstance(value, str):
            matches = compare(self.sort_by_bytes(text), value)
            return exists(rows.where(json_type == "string", matches))
        # Only CASE guarantees the order: text that is no number must not be cast to one.
        number = cast(case((json_type == "number", text), else_=None), Numeric)
        return exists(rows.where(compare(number, _to_decimal(value))))


def _milliseconds(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))  # 0 would mean no limit


def _drop_dead_connections(engine: Engine) -> None:
    """Keep closed and silent connections from being used again.

    The loop learns of a closed connection by itself; asking each one before its use, as the pool
    could, takes three round trips.
    """

    @event.listens_for(engine, "checkout")
    def require_open(connection: Any, _record: object, _proxy: object) -> None:
        if connection.driver_connection.is_closed():
            raise DisconnectionError("the server closed the connection")

    @event.listens_for(engine, "handle_error")
    def terminate(context: Any) -> None:
        # Otherwise the roll-back waits for the same silent server once more.
        if isinstance(context.original_exception, TimeoutError) and context.connection is not None:
            context.connection.connection.driver_connection.terminate()
            context.is_disconnect = True


def _to_decimal(value: int | float) -> int | float | Decimal:
    """Return a number as its digits say, which is how JSON stores it."""
    return Decimal(repr(value)) if isinstance(value, float) and math.isfinite(value) else value
