"""From a setting to a vector database."""

from pathlib import Path

from memrecall.errors import InvalidArgument
from memrecall.plugins import require_plugin
from memrecall.search import VectorDB
from memrecall.store import GraphDB, Store, StoreGraphs

GRAPH_CHOICES = ("store", "ladybug:FOLDER")


def make_graphs(spec: str, store: Store) -> GraphDB:
    """The graph database that a setting names; nothing and "store" mean the store's own tables."""
    name, _, argument = spec.partition(":")
    if name in ("", "store"):
        return StoreGraphs(store.database)
    if name == "ladybug":
        if not argument:
            raise InvalidArgument("graph_db 'ladybug' names no folder", hint="ladybug:FOLDER")
        from memrecall.library.ladybug import LadybugGraphs

        return LadybugGraphs(Path(argument), store.facts.database_id)
    make, rest = require_plugin("graph_dbs", spec, GRAPH_CHOICES)
    made: GraphDB = make(rest, store)
    return made


VECTOR_CHOICES = ("memory", "pgvector")


async def make_vector_db(spec: str, store: Store) -> VectorDB | None:
    """The vector database that a setting names; None: vectors are searched in memory alone."""
    if spec in ("", "memory"):
        return None
    if spec == "pgvector":
        vectors = store.pgvector()
        await vectors.prepare()  # a server without the extension is told of now
        return vectors
    make, rest = require_plugin("vector_dbs", spec, VECTOR_CHOICES)
    made: VectorDB = make(rest, store)
    return made
