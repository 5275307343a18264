"""Words of a language: how rare a term is, and the class of a Chinese word.

In a store of ten messages nearly every word is rare. What a match says about a question depends on
how rare the word is in the language: "the" says nothing, "oboe" nearly everything. The cost of a
term is the negative logarithm of its probability. `benchmarks/make_word_costs.py` writes the table
and names its sources.

The classes are the tags of the segmenter: n for nouns, ns for places, …
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("word_costs.txt")
STEPS = 2  # costs are stored in steps of one half
UNKNOWN = 14.0  # the cost of a term that the table does not have


def term_cost(*term: str) -> float:
    """Return the cost of a word, of a character, or of a pair of characters."""
    costs = _load()
    if len(term) == 2:
        pair = "".join(term)
        return costs.get(pair) or pair_cost(costs, pair)
    return costs.get(term[0], UNKNOWN)


def pair_cost(costs: Mapping[str, float], pair: str) -> float:
    """Return the cost of two characters that stand together by chance."""
    return min(sum(costs.get(character, UNKNOWN) for character in pair), 1.5 * UNKNOWN)


@cache
def _load() -> dict[str, float]:
    costs: dict[str, float] = {}
    for line in TABLE.read_text("utf-8").splitlines():
        step, _, terms = line.partition("\t")
        costs.update(dict.fromkeys(terms.split(" "), int(step) / STEPS))
    return costs


def is_dictionary_word(word: str) -> bool:
    """Return True if the segmenter's dictionary has a Chinese word."""
    from rjieba import has_word

    return bool(has_word(word))


def tag_words(text: str) -> list[tuple[str, str]]:
    """Return the words of a text, each with its class."""
    from rjieba import tag  # loading its dictionary takes a moment

    tagged: list[tuple[str, str]] = tag(text)
    return tagged


def word_classes(text: str) -> list[str]:
    """Return the class of each word of a text."""
    return [kind for _, kind in tag_words(text)]
