"""Where a database is: what people write, turned into what SQLAlchemy takes."""

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from memrecall.errors import InvalidArgument

_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}


def read_location(location: str) -> URL:
    """A URL for a path (`chat.db`), a SQLite URL or a PostgreSQL URL."""
    if not location.strip():
        raise InvalidArgument("the database location is empty", hint="Give a path or a URL")
    if "://" not in location:
        return URL.create("sqlite+aiosqlite", database=str(Path(location).expanduser()))
    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        raise InvalidArgument(
            "the database URL cannot be read",
            hint="Write sqlite:///FILE or postgresql+asyncpg://USER@HOST/NAME",
        ) from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise InvalidArgument(
            f"the database kind {url.drivername!r} is not known",
            hint="Use a file path, sqlite:///FILE or postgresql+asyncpg://USER@HOST/NAME",
        )
    return url.set(drivername=driver)


def sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite database; None for a server or for memory."""
    if not url.drivername.startswith("sqlite") or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database))


def describe(url: URL) -> str:
    """The location as it may be shown: no password."""
    file = sqlite_file(url)
    return str(file) if file else url.difference_update_query(["password"]).render_as_string()
