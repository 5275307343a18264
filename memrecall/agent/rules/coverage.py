"""How much of what was asked a text has: in its words, or in characters and stems."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from memrecall.text.normalize import normalize
from memrecall.text.tokens import analyze


@dataclass(frozen=True, slots=True)
class Said:
    """A text made ready to be asked for words."""

    plain: str
    stems: frozenset[str]

    @classmethod
    def of(cls, text: str) -> "Said":
        """Normalise and analyse a text once for many words."""
        analysis = analyze(text)
        stems = frozenset(analysis.atoms) | frozenset(analysis.extras)
        return cls(normalize(text).casefold(), stems)

    def has(self, word: "Said") -> float:
        """Whether a word was said, from 0 to 1: a long Chinese word may have been said in part."""
        if word.plain.isalpha() and word.plain.isascii():  # "art" is not in "party"
            return float(bool(word.stems) and self.stems >= word.stems)
        if word.plain in self.plain:
            return 1.0
        if word.plain.isascii():
            return float(bool(word.stems) and self.stems >= word.stems)
        pairs = [a + b for a, b in pairwise(word.plain)]
        return sum(pair in self.plain for pair in pairs) / len(pairs) if len(pairs) > 1 else 0.0


def covered(words: Iterable[str], text: str) -> float:
    """The share of the words that a text has, from 0 to 1; 0 without words."""
    said = Said.of(text)
    shares = [said.has(Said.of(word)) for word in words]
    return sum(shares) / len(shares) if shares else 0.0
