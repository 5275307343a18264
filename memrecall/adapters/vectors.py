"""From a setting to a vector database."""

from memrecall.plugins import require_plugin
from memrecall.search import VectorDB
from memrecall.store import Store

CHOICES = ("memory", "pgvector")


async def make_vector_db(spec: str, store: Store) -> VectorDB | None:
    """The vector database that a setting names; None: vectors are searched in memory alone."""
    if spec in ("", "memory"):
        return None
    if spec == "pgvector":
        vectors = store.far_vectors()
        await vectors.prepare()  # a server without the extension is told of now
        return vectors
    make, rest = require_plugin("vector_dbs", spec, CHOICES)
    made: VectorDB = make(rest, store)
    return made
