"""From a setting to a graph database."""

from pathlib import Path

from memrecall.errors import InvalidArgument
from memrecall.plugins import require_plugin
from memrecall.store import GraphDB, Store, StoreGraphs

CHOICES = ("store", "ladybug:FOLDER")


def make_graphs(spec: str, store: Store) -> GraphDB:
    """The graph database that a setting names; nothing and "store" mean the store's own tables."""
    name, _, argument = spec.partition(":")
    if name in ("", "store"):
        return StoreGraphs(store.database)
    if name == "ladybug":
        if not argument:
            raise InvalidArgument("graph_db 'ladybug' names no folder", hint="ladybug:FOLDER")
        from memrecall.adapters.ladybug_graphs import LadybugGraphs

        return LadybugGraphs(Path(argument), store.facts.database_id)
    make, rest = require_plugin("graph_dbs", spec, CHOICES)
    made: GraphDB = make(rest, store)
    return made
