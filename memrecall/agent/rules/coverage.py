"""How much of what was asked a text has: in its words, or in characters and stems."""

from collections.abc import Iterable

from memrecall.text.normalize import normalize
from memrecall.text.tokens import analyze


def covered(words: Iterable[str], text: str) -> float:
    """The share of the words that a text has, from 0 to 1; 0 without words."""
    wanted = list(words)
    if not wanted:
        return 0.0
    plain = normalize(text).casefold()
    analysis = analyze(text)
    stems = frozenset(analysis.atoms) | frozenset(analysis.extras)
    return sum(_has(word, plain, stems) for word in wanted) / len(wanted)


def _has(word: str, plain: str, stems: frozenset[str]) -> float:
    if normalize(word).casefold() in plain:
        return 1.0
    parts = analyze(word).atoms
    if not word.isascii() and len(parts) > 2:  # a long Chinese word may have been said in part
        pairs = [a + b for a, b in zip(parts, parts[1:], strict=False)]
        return sum(pair in plain for pair in pairs) / len(pairs)
    return float(bool(parts) and word.isascii() and stems.issuperset(parts))
