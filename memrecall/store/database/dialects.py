"""The supported databases, and everything in which they differ.

`parse_location` chooses the dialect when a database is opened. The rest of the package asks the
dialect for what it needs and never which database it talks to.
"""

from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from memrecall.errors import InvalidArgument
from memrecall.store.database.dialect import DatabaseDialect
from memrecall.store.database.postgresql_dialect import PostgresqlDialect
from memrecall.store.database.sqlite_dialect import SqliteDialect

_LOCATION_HINT = "Use a file path, sqlite:///FILE or postgresql+asyncpg://USER@HOST/NAME"

SQLITE = SqliteDialect()
POSTGRESQL = PostgresqlDialect()
DIALECTS: tuple[DatabaseDialect, ...] = (SQLITE, POSTGRESQL)
_BY_SCHEME = {scheme: dialect for dialect in DIALECTS for scheme in dialect.schemes}
_BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


def parse_location(location: str) -> tuple[DatabaseDialect, URL]:
    """Return the dialect and the URL of a path (`chat.db`), a SQLite or a PostgreSQL URL."""
    if not location.strip():
        raise InvalidArgument("the database location is empty", hint=_LOCATION_HINT)
    if "://" not in location:
        return SQLITE, URL.create(SQLITE.driver, database=str(Path(location).expanduser()))
    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        raise InvalidArgument("the database URL cannot be parsed", hint=_LOCATION_HINT) from None
    dialect = _BY_SCHEME.get(url.drivername)
    if dialect is None:
        raise InvalidArgument(
            f"the database {url.drivername!r} is not supported", hint=_LOCATION_HINT
        )
    return dialect, url.set(drivername=dialect.driver)


def dialect_of(connection: Connection) -> DatabaseDialect:
    """Return the dialect of the database that a connection is open to."""
    return _BY_NAME[connection.dialect.name]
