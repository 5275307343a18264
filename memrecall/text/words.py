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
_MAX_NOUN_PHRASE = 8


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


def tag_words(text: str) -> list[tuple[str, str]]:
    """Return the words of a text, each with its class."""
    from rjieba import tag  # loading its dictionary takes a moment

    tagged: list[tuple[str, str]] = tag(text)
    return tagged


def word_classes(text: str) -> list[str]:
    """Return the class of each word of a text."""
    return [kind for _, kind in tag_words(text)]


def is_ordinary_word(text: str) -> bool:
    """Return True if a word in the place of a name is of another kind: 终于, 特别."""
    if len(text) == 2 and text[0] == text[1]:
        return False  # Names such as 朵朵 and 乐乐.
    kinds = word_classes(text)
    return not text.isascii() and len(kinds) == 1 and kinds[0][:1] not in "naixzjl"


def starts_with_noun(text: str) -> bool:
    """Return True if a clause opens with a thing or a person, so that it has a subject."""
    word, kind = next(iter(tag_words(text[:12])), ("", ""))
    return word.istitle() or (kind.startswith(("n", "r", "s", "f")) and not kind.startswith("nt"))


def has_more_than_time(text: str) -> bool:
    """Return True if a text has words beyond times, numbers and measures."""
    words = tag_words(text)
    return any(kind[:1] not in "tmqfux" and not word[0].isdigit() for word, kind in words)


def has_predicate(text: str) -> bool:
    """Return True if a text has a verb, or a noun that can do without one: 每天两杯咖啡."""
    words = tag_words(text.lstrip("0123456789一二两三四五六七八九十半几"))
    return any(kind[:1] in "vai" or (kind[:1] in "nl" and len(word) > 1) for word, kind in words)


def is_place(text: str) -> bool:
    """Return True if a word is the name of a place."""
    return word_classes(text) == ["ns"]


def is_bare_noun(text: str) -> bool:
    """Return True if a clause only names a person or a thing: 小温, 另一家店."""
    # 换公司了 states something, whatever its words are tagged.
    if text.endswith("了") or len(text) > _MAX_NOUN_PHRASE:
        return False
    kinds = word_classes(text)
    return kinds != [] and all(kind[0] in "nrmqbuj" for kind in kinds)
