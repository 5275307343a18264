"""Who a question is about: speakers that it names, and the same question in the first person.

People speak of themselves as "I". A question that says "When did Ann move?" lies closer to "I moved
in May" once it asks "When did I move?"; with the name left in, it lies closest to greetings of Ann.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from memrecall.text.normalize import normalize

_LATIN = "A-Za-z\u00c0-\u024f"
# "Ann昨天" is a name and a word: Chinese has no spaces, and "\\b" sees no border there.
_WORD = re.compile(rf"[{_LATIN}]+|[^\W\d_{_LATIN}]+")
_IS_LATIN = re.compile(rf"[{_LATIN}]")
_BEGINS, _ENDS = rf"(?<![{_LATIN}\d_])", rf"(?![{_LATIN}\d_])"
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
        elif not _IS_LATIN.search(speaker) and speaker in question:
            found[speaker] = speaker
    return found


def in_first_person(question: str, names: Sequence[str]) -> str:
    """The question as if those it names asked it themselves."""
    for name in sorted(names, key=len, reverse=True):
        if not _IS_LATIN.search(name):
            question = question.replace(name, "我")
            continue
        # Between the parts of a name may stand whatever no word is made of: "Mary-Jane", "O'Neil".
        written = _BEGINS + re.escape(name).replace(r"\ ", r"[\W_]+") + _ENDS
        question = re.sub(rf"\b{_VERB}\s+{written}(?!['’]s)", r"\g<verb> I", question, flags=re.I)
        question = re.sub(rf"{written}['’]s\b", "my", question, flags=re.I)
        question = re.sub(written, "I", question, flags=re.I)
    return question


@lru_cache(10_000)
def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", normalize(name)).lower()
