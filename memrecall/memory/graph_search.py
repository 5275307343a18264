"""The graph's help for a search: names one step away from those that a question has.

"Where does Li Ming's advisor work?" names neither the advisor nor the place. The relations of Li
Ming do name the advisor; as a word that helps and need not match, that name brings the second
memory up. Users without a graph pay one small query.
"""

from datetime import datetime

from memrecall.scope import Scope
from memrecall.store import Store, fold_name

MOST_WORDS = 8
_SHORTEST = 2


async def two_hop_words(
    store: Store, scope: Scope, query: str, as_of: datetime | None
) -> tuple[str, ...]:
    """Names that stand beside the entities of a question, the nearest first; () mostly."""
    graph = store.graph(scope)
    if await graph.is_empty():
        return ()
    asked = fold_name(query)
    named = [
        entity
        for entity in await graph.entities()
        if any(len(name) >= _SHORTEST and fold_name(name) in asked for name in entity.aliases)
    ]
    if not named:
        return ()
    ids = {entity.entity_id for entity in named}
    words: dict[str, None] = {}
    for source, _, relation in await graph.around(sorted(ids), as_of):
        beside = relation.destination if source in ids else relation.source
        if fold_name(beside) not in asked:
            words.setdefault(beside)
    return tuple(words)[:MOST_WORDS]
