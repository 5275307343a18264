"""Texts for a machine without conversations: Python's manual, and random Chinese."""

import random
import re
from pydoc_data.topics import topics

_SENTENCE = re.compile(r"[A-Z][^.\n]{20,180}\.")
_PARTICLES = "的了在是我他她也都就很不有到去说看"


def invent_texts(count: int, seed: int = 11) -> list[str]:
    """Return `count` texts of one to three sentences, half English, half Chinese."""
    chance = random.Random(seed)
    manual = " ".join(" ".join(topics[name].split()) for name in sorted(topics))
    english = _SENTENCE.findall(manual)
    words = _han_words(chance)
    texts: list[str] = []
    for number in range(count):
        size = 1 + chance.randrange(3)
        if number % 2:
            texts.append(" ".join(chance.choices(english, k=size)))
        else:
            texts.append("".join(_han_sentence(words, chance) for _ in range(size)))
    return texts


def _han_words(chance: random.Random) -> list[str]:
    # Characters of the commonest block, two a word; few words are frequent, most are rare.
    characters = [chr(code) for code in chance.sample(range(0x4E00, 0x9FA5), 2_500)]
    return ["".join(chance.choices(characters, k=2)) for _ in range(4_000)]


def _han_sentence(words: list[str], chance: random.Random) -> str:
    parts: list[str] = []
    for _ in range(4 + chance.randrange(8)):
        rank = int(len(words) ** chance.random()) - 1  # Zipf's law, near enough
        parts.append(words[rank])
        if chance.random() < 0.4:
            parts.append(chance.choice(_PARTICLES))
    if chance.random() < 0.2:
        parts.append(str(chance.randrange(1, 3_000)))
    return "".join(parts) + "。"
