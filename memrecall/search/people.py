"""Who a question is about: speakers that it names, and the same question in the first person.

People speak of themselves as "I". A question that says "When did Ann move?" lies closer to "I moved
in May" once it asks "When did I move?"; with the name left in, it lies closest to greetings of Ann.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from memrecall.text.normalize import normalize

_WORD = re.compile(r"[^\W\d_]+")
_SHORTEST = 2  # characters of a name: "A" would be found in every question
_VERB = r"(?P<verb>did|does|do|has|have|is|was|were|are|will|would|had|can|could|should|might)"


def named_in(question: str, speakers: Sequence[str]) -> dict[str, str]:
    """The speakers that the question names, each with the words that name them there."""
    words = [match.group() for match in _WORD.finditer(question)]
    spoken = {_plain(word): word for word in words}
    # "Lei Mingxuan" may be filed as leimingxuan.
    for first, second in pairwise(words):
        spoken[_plain(first + second)] = f"{first} {second}"
    found: dict[str, str] = {}
    for speaker in speakers:
        plain = _plain(speaker)
        if len(plain) < _SHORTEST:
            continue
        if plain in spoken:
            found[speaker] = spoken[plain]
        elif not speaker.isascii() and speaker in question:
            found[speaker] = speaker
    return found


def in_first_person(question: str, names: Sequence[str]) -> str:
    """The question as if those it names asked it themselves."""
    for name in sorted(names, key=len, reverse=True):
        if not name.isascii():
            question = question.replace(name, "我")
            continue
        written = re.escape(name).replace(r"\ ", r"\s+")
        question = re.sub(rf"\b{_VERB}\s+{written}\b(?!['’]s)", r"\g<verb> I", question, flags=re.I)
        question = re.sub(rf"\b{written}['’]s\b", "my", question, flags=re.I)
        question = re.sub(rf"\b{written}\b", "I", question, flags=re.I)
    return question


@lru_cache(10_000)
def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", normalize(name)).lower()
