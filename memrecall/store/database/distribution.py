"""The distribution of a database over the nodes of a Citus cluster, by user.

Citus is an extension of PostgreSQL. Tables of user data are hashed by `user_id` into shards, and
the rows of one user are on one node. Tables that statements of users read, or that their rows refer
to, have a copy on every node; a write to them is a transaction on all nodes, so nothing that every
request writes is among them. What the service itself counts stays on the coordinator.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import (
    DDL,
    Connection,
    Table,
    Text,
    cast,
    column,
    func,
    inspect,
    literal,
    select,
    table,
)

from memrecall.errors import InvalidArgument
from memrecall.store.database.cursors import require_limit
from memrecall.store.database.engine import Database
from memrecall.store.database.integrity import RowReference, foreign_keys
from memrecall.store.database.statements import upsert
from memrecall.store.database.tables import (
    agents,
    api_key_users,
    api_keys,
    counters,
    knowledge,
    knowledge_bases,
    meta,
    metadata,
    restores,
    users,
)

SHARDS = 32
MAX_SHARDS = 8_192
SHARD_FACT = "shards"  # the row of `meta` that a distributed database has
_SCHEMA_LOCK = 0x6D656D72  # "memr": the same for every process that changes the schema
LOCAL_TABLES = (counters, restores)
REFERENCE_TABLES = (meta, agents, api_keys, api_key_users, knowledge_bases, knowledge)
# `users` first: the other tables are colocated with it.
USER_TABLES = (
    users,
    *(
        table
        for table in metadata.sorted_tables
        if table not in (users, *LOCAL_TABLES, *REFERENCE_TABLES)
    ),
)
_INSTALL_HINT = (
    "Install Citus on every node, add it to shared_preload_libraries, run CREATE EXTENSION citus"
    " in this database on all of them, and add the workers with citus_add_node"
)
_extensions = table("pg_extension", column("extname"))
_partitions = table("pg_dist_partition", column("logicalrelid"), column("partmethod"))
_nodes = table("pg_dist_node", *map(column, ("groupid", "nodename", "nodeport", "isactive")))
_shards = table("citus_shards", *map(column, ("table_name", "nodename", "nodeport", "shard_size")))


@dataclass(slots=True)
class NodeStatus:
    """A server of the cluster and what it stores."""

    name: str
    is_coordinator: bool
    is_active: bool
    is_reachable: bool = True
    shards: int = 0
    bytes: int = 0


@dataclass(slots=True)
class ClusterStatus:
    """Where the rows of a database are; `citus_shards` of Citus lists each shard."""

    is_distributed: bool
    missing_tables: list[str] = field(default_factory=list)  # of an interrupted distribution
    nodes: list[NodeStatus] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return asdict(self)


async def distribute(database: Database, shards: int | None = None) -> list[str]:
    """Distribute the tables that are not distributed yet, and return their names.

    Each table is a transaction of its own, in which its writers wait. Can be repeated: it continues
    where an interrupted call stopped.
    """
    if shards is not None:
        require_limit("shards", shards, MAX_SHARDS)
    if database.file is not None:
        raise InvalidArgument(
            f"{database.location} is one file and cannot be distributed",
            hint="Back it up, restore it into PostgreSQL with Citus, and distribute that",
        )
    if not await _has_citus(database):
        raise InvalidArgument(f"{database.location} has no extension `citus`", hint=_INSTALL_HINT)
    number = await _check_shards(database, shards)
    row = {"name": SHARD_FACT, "value": str(number)}
    await database.transact(lambda c: c.execute(upsert(c, meta, ["value"]), row))
    database.is_distributed = True
    tables = await database.inspect(_get_tables)
    placed = [
        placement.name
        for placement in tables
        if await database.transact(partial(_place, table=placement, shards=number), is_long=True)
    ]
    for reference in foreign_keys(tables):
        await database.transact(partial(_add_reference, reference=reference), is_long=True)
    return placed


def distribute_new_tables(connection: Connection, shards: int) -> None:
    """Distribute the tables that a migration has created, in its transaction."""
    tables = _get_tables(connection)
    for new in tables:
        _place(connection, new, shards)
    for reference in foreign_keys(tables):
        _add_reference(connection, reference)


def _get_tables(connection: Connection) -> list[Table]:
    """Return the tables to distribute that exist, in the order in which that is possible."""
    existing = set(inspect(connection).get_table_names())
    return [table for table in (*REFERENCE_TABLES, *USER_TABLES) if table.name in existing]


def begin_distributed_changes(connection: Connection) -> None:
    """Allow this transaction to modify distributed and reference tables, and to run DDL."""
    settings = {
        "citus.multi_shard_modify_mode": "sequential",
        # A table that a migration creates may refer to distributed tables and to copied ones before
        # it is placed; Citus would turn it into a table of its own that must not refer to both.
        "citus.enable_local_reference_table_foreign_keys": "off",
    }
    for name, value in settings.items():
        connection.execute(select(func.set_config(name, value, True)))


async def _has_citus(database: Database) -> bool:
    if database.file is not None:
        return False
    return bool(await database.fetch(select(_extensions).where(_extensions.c.extname == "citus")))


def read_shard_count(connection: Connection) -> int | None:
    """Return the number of shards of each table; None if the database is not distributed."""
    value = connection.scalar(select(meta.c.value).where(meta.c.name == SHARD_FACT))
    return None if value is None else int(value)


async def _check_shards(database: Database, shards: int | None) -> int:
    """Return the shard count; InvalidArgument if the database already has a different one."""
    async with database.read() as connection:
        stored = await connection.run_sync(read_shard_count)
        if stored is None or shards in (None, stored):
            return stored or shards or SHARDS
        if not await connection.run_sync(_is_placed, users):
            return int(shards or stored)
    raise InvalidArgument(
        f"the users are in {stored} shards already, not {shards}",
        hint="Leave out --shards; alter_distributed_table of Citus changes their number",
    )


def _is_placed(connection: Connection, place: Table) -> bool:
    name = cast(_partitions.c.logicalrelid, Text)
    placed = select(func.count()).select_from(_partitions).where(name == place.name)
    return bool(connection.scalar(placed))


def lock_schema(connection: Connection) -> None:
    """Keep other processes from changing the schema of a server until the transaction ends."""
    connection.execute(select(func.pg_advisory_xact_lock(_SCHEMA_LOCK)))


def _place(connection: Connection, table: Table, shards: int) -> bool:
    """Distribute a table unless it is distributed; its foreign keys are dropped for that."""
    lock_schema(connection)
    if _is_placed(connection, table):
        return False
    begin_distributed_changes(connection)
    for (_, owner), keys in inspect(connection).get_multi_foreign_keys().items():
        for key in keys:
            if table.name in (owner, key["referred_table"]):
                connection.execute(_ddl(f"ALTER TABLE {owner} DROP CONSTRAINT {key['name']}"))
    name = _inline(table.name)
    placement: Any
    if table in REFERENCE_TABLES:
        placement = func.create_reference_table(name)
    else:
        colocation = ("default", shards) if table is users else (users.name,)
        arguments = ("user_id", "hash", *colocation)
        placement = func.create_distributed_table(name, *map(_inline, arguments))
    connection.execute(select(placement))
    return True


def _inline(value: str | int) -> Any:
    """Return a value that is written into the statement: Citus has types for its parameters."""
    # A table's name is a subclass of str, which has no type in SQL.
    return literal(str(value) if isinstance(value, str) else value, literal_execute=True)


def _find_missing_references(connection: Connection, tables: Sequence[Table]) -> list[RowReference]:
    """Return the foreign keys that tables should have and do not."""
    stored = {
        (owner, tuple(key["constrained_columns"]))
        for (_, owner), keys in inspect(connection).get_multi_foreign_keys().items()
        for key in keys
    }
    return [key for key in foreign_keys(tables) if (key.table.name, key.columns) not in stored]


def _add_reference(connection: Connection, reference: RowReference) -> None:
    """Add a foreign key that is missing."""
    lock_schema(connection)
    if reference not in _find_missing_references(connection, [reference.table]):
        return
    begin_distributed_changes(connection)
    target = f"{reference.target.name} ({', '.join(reference.target_columns)})"
    added = f"ADD FOREIGN KEY ({', '.join(reference.columns)}) REFERENCES {target}"
    connection.execute(_ddl(f"ALTER TABLE {reference.table.name} {added}"))


def _ddl(statement: str) -> Any:
    return DDL(statement)  # type: ignore[no-untyped-call]


async def read_status(database: Database) -> ClusterStatus:
    """Return the nodes of a database with their shards and bytes."""
    status = ClusterStatus(is_distributed=database.is_distributed)
    if not await _has_citus(database):
        return status
    nodes = {}
    for row in await database.fetch(select(_nodes).order_by(_nodes.c.groupid)):
        name = f"{row.nodename}:{row.nodeport}"
        nodes[name] = NodeStatus(name, is_coordinator=row.groupid == 0, is_active=row.isactive)
    status.nodes = list(nodes.values())
    if not status.is_distributed:
        return status
    # What an interrupted distribution has left, or left without foreign keys.
    rows = await database.fetch(select(cast(_partitions.c.logicalrelid, Text).label("name")))
    placed = {row.name for row in rows}
    tables = await database.inspect(_get_tables)
    missing = await database.inspect(partial(_find_missing_references, tables=tables))
    incomplete = {reference.table for reference in missing}
    status.missing_tables = [t.name for t in tables if t.name not in placed or t in incomplete]
    answers = func.run_command_on_workers(_inline("SELECT 1"))
    names = ("nodename", "nodeport", "success")
    for row in await database.fetch(select(answers.table_valued(*names, "result"))):
        nodes[f"{row.nodename}:{row.nodeport}"].is_reachable = row.success
    table_name = cast(_shards.c.table_name, Text)
    statement = select(
        table_name.label("name"), _shards.c.nodename, _shards.c.nodeport, _shards.c.shard_size
    ).where(table_name.in_([table.name for table in USER_TABLES]))
    for row in await database.fetch(statement):
        node = nodes[f"{row.nodename}:{row.nodeport}"]
        node.shards += row.name == users.name  # the other tables have as many
        node.bytes += row.shard_size or 0
    return status
