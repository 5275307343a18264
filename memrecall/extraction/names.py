"""Names of entities: spellings that are equal, and aliases that a text states."""

import re
from collections.abc import Iterator

from memrecall.extraction.protocol import USER
from memrecall.extraction.rules.tables import load_table
from memrecall.text.normalize import normalize, strip_accents

SPEAKER_NAMES = frozenset({"", "user", "theuser", "用户", "me", "i", "我", "speaker"})
_SHARED = load_table("shared")


def fold_person_name(name: str) -> str:
    """Return a person's name without title, case, width, script, accents and punctuation.

    It compares speakers and subjects. Entities are compared by their `entity_key`, as in a graph.
    """
    bare = _SHARED.remove("title", normalize(name).strip())
    return re.sub(r"[\W_]+", "", strip_accents(bare.casefold()))


def end_name(name: str) -> str:
    """Return the name of an end of a relation; the user has one name in every language."""
    return USER if fold_person_name(name) in SPEAKER_NAMES and name else name


def aliases_in(text: str) -> Iterator[frozenset[str]]:
    """Yield the pairs of names that a text equates: "Robert, also known as Bob", 李老师就是李明."""
    for _, pattern in _SHARED.patterns("aliases"):
        for match in pattern.finditer(text):
            pair = frozenset({match["first"], match["second"]})
            if len(pair) == 2:
                yield pair
