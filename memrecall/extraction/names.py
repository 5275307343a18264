"""Names of entities: spellings that are equal, and aliases that a text states."""

import re
from collections.abc import Collection, Iterator

from memrecall.extraction.rules.tables import load_table
from memrecall.text.normalize import normalize, strip_accents

Alias = frozenset[str]

_SHARED = load_table("shared")


def fold_person_name(name: str) -> str:
    """Return a person's name without title, case, width, script, accents and punctuation.

    It compares speakers and subjects. Entities are compared by their `entity_key`, as in a graph.
    """
    bare = _SHARED.remove("title", normalize(name).strip())
    return re.sub(r"[\W_]+", "", strip_accents(bare.casefold()))


def may_be_one(name: str, other: str, aliases: Collection[Alias] = ()) -> bool:
    """Return True if two names may mean one entity.

    Case, width, script and titles do not matter. 李老师 and 李明, or Bob and Robert, are one entity
    only if `aliases` (from `aliases_in`) connects them, directly or through other names.
    """
    first, second = fold_person_name(name), fold_person_name(other)
    if not first or not second:
        return False
    connected, previous = {first}, set[str]()
    groups = [{fold_person_name(alias) for alias in group} for group in aliases]
    while connected != previous:
        previous = set(connected)
        connected = connected.union(*(group for group in groups if group & previous))
    return second in connected


def aliases_in(text: str) -> Iterator[Alias]:
    """Yield the pairs of names that a text equates: "Robert, also known as Bob", 李老师就是李明."""
    for _, pattern in _SHARED.patterns("aliases"):
        for match in pattern.finditer(text):
            pair = frozenset({match["first"], match["second"]})
            if len(pair) == 2:
                yield pair
