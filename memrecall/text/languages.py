"""Which of the two languages a text is in."""

from collections.abc import Iterable
from typing import Literal

Language = Literal["en", "zh"]


def language_of(text: str) -> Language:
    """Chinese if any of it is: a Chinese request may be full of English names."""
    return "zh" if any("\u4e00" <= character <= "\u9fff" for character in text) else "en"


def language_of_most(texts: Iterable[str]) -> Language:
    """The language of most texts; English if it is a draw."""
    chinese = [language_of(text) == "zh" for text in texts]
    return "zh" if sum(chinese) * 2 > len(chinese) else "en"
