"""The graph's help for a search: names one step away from those that a question has.

"Where does Li Ming's advisor work?" names neither the advisor nor the place. The relations of Li
Ming do name the advisor; as a word that helps and need not match, that name brings the second
memory up. Users without a graph pay one small query.
"""

import re
from datetime import datetime

from memrecall.store import GraphRoom, fold_name, fold_text
from memrecall.text.tokens import CJK, is_cjk

MOST_WORDS = 8
_SHORTEST = 2
_LONGEST_QUESTION = 400  # characters that are looked through for names
_LONGEST_NAME = 6  # in words; and in characters where a script has no spaces
_LONGEST_WIDE_NAME = 12
_BESIDE = 200  # relations that are looked at
_ENDS = "?!.,;:，。？！；：…\"'"  # of sentences, not of names
_SIGNS = re.compile(r"[^\w\s]+")
_PIECE = re.compile(rf"[{CJK}]|[^\W{CJK}]+")


async def two_hop_words(graph: GraphRoom, query: str, as_of: datetime | None) -> tuple[str, ...]:
    """Names that stand beside the entities of a question, the nearest first; () mostly."""
    asked = fold_name(query)
    named = await graph.entities(possible_names(query))
    if not named:
        return ()
    ids = {entity.entity_id for entity in named}
    words: dict[str, None] = {}
    for source, _, relation in await graph.around(sorted(ids), as_of, _BESIDE):
        beside = relation.destination if source in ids else relation.source
        if fold_name(beside) not in asked:
            words.setdefault(beside)
    return tuple(words)[:MOST_WORDS]


def possible_names(question: str) -> list[str]:
    """Every part of a question that could be a name, as names are compared.

    They are looked up by an index: a question costs its own length, however many entities there
    are.
    """
    folded = fold_text(question[:_LONGEST_QUESTION])
    pieces = [(found.start(), found.end()) for found in _PIECE.finditer(folded)]
    names: dict[str, None] = {}
    for first, (start, _) in enumerate(pieces):
        wide = False
        for place in range(first, min(first + _LONGEST_WIDE_NAME, len(pieces))):
            begin, end = pieces[place]
            wide = wide or is_cjk(folded[begin])
            if place - first >= _LONGEST_NAME and not wide:
                break
            names.setdefault(folded[start:end])
            names.setdefault(folded[start : _after_signs(folded, end)].rstrip(_ENDS))
    return [name for name in names if len(name) >= _SHORTEST]


def _after_signs(text: str, end: int) -> int:
    """Where the signs end that belong to a word, as in C++."""
    found = _SIGNS.match(text, end)
    return found.end() if found else end
