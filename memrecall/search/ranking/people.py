"""Speakers that a query names."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from memrecall.text.language import STOP_TERMS
from memrecall.text.normalize import normalize
from memrecall.text.tokens import stem
from memrecall.text_length import cache_short_texts

_LATIN = "A-Za-z\u00c0-\u024f"
# "Ann昨天" is a name and a word: Chinese has no spaces, and "\\b" matches no boundary there.
_WORD = re.compile(rf"[{_LATIN}][{_LATIN}\d]*|\d+|[^\W\d_{_LATIN}]+")
_LETTER = re.compile(r"[^\W\d_]")
_IS_LATIN = re.compile(rf"[{_LATIN}]")
_WORD_START, _WORD_END = rf"(?<![{_LATIN}\d_])", rf"(?![{_LATIN}\d_])"
_MIN_NAME_LENGTH = 2  # "A" would be found in every query
_USER_LABEL = re.compile("用户(?!名)")  # 用户名 is a user name
_VERB = r"(?P<verb>did|does|do|has|have|is|was|were|are|will|would|had|can|could|should|might)"


def find_speakers(query: str, speakers: Sequence[str]) -> Mapping[str, str]:
    """Return the speakers that a query names, each with the words that name them there."""
    return _find_speakers(query, tuple(speakers)) if speakers else {}


@lru_cache(256)  # a search asks three times
def _find_speakers(query: str, speakers: tuple[str, ...]) -> Mapping[str, str]:
    words = [match.group() for match in _WORD.finditer(query)]
    names = {_speaker_key(word): word for word in words if not word.isdigit()}
    # "Lei Mingxuan" may be stored as leimingxuan, and "Speaker 2" is not any Speaker.
    pairs = {
        _speaker_key(first + second): (first, second)
        for first, second in pairwise(words)
        if not first.isdigit()
    }
    found: dict[str, str] = {}
    for speaker in speakers:
        folded = _speaker_key(speaker)
        if len(folded) < _MIN_NAME_LENGTH:
            continue
        if folded in pairs:
            found[speaker] = " ".join(pairs[folded])
        elif folded in names:
            found[speaker] = names[folded]
        elif not _IS_LATIN.search(speaker) and speaker in query:
            found[speaker] = speaker
    # "Ross Martin" in a query is not Ross Geller.
    in_whole_name = {word for name in found.values() if " " in name for word in name.split()}
    for speaker in speakers:
        first_name = _first_name(speaker)
        word = names.get(_speaker_key(first_name), "")
        if speaker in found or len(_speaker_key(first_name)) < _MIN_NAME_LENGTH:
            continue
        if word and word not in in_whole_name and _is_written_as_name(word):
            found[speaker] = word
        elif not _IS_LATIN.search(first_name) and first_name in query:
            found[speaker] = first_name
    return found


def _first_name(speaker: str) -> str:
    """Return Ross for Ross Geller and 陈建国 for 陈建国（同事）; "" for a name of one word."""
    first = _WORD.match(speaker)
    # An abbreviation is a title: Dr. Green.
    if not first or first.group().isdigit() or speaker.startswith(".", first.end()):
        return ""
    # "Speaker 1" has no first name.
    return first.group() if _LETTER.search(speaker, first.end()) else ""


def _is_written_as_name(word: str) -> bool:
    """Tell Will from will: only a whole name is found in lower case."""
    if not _IS_LATIN.match(word):
        return True
    return word[:1].isupper() and stem(word) not in STOP_TERMS


def to_first_person(query: str, names: Sequence[str]) -> str:
    """Return a query as if the people it names asked it about themselves."""
    for name in sorted(names, key=len, reverse=True):
        if not _IS_LATIN.search(name):
            query = query.replace(name, "我")
            continue
        # The parts of a name may be joined by any punctuation: "Mary-Jane", "O'Neil".
        pattern = _WORD_START + re.escape(name).replace(r"\ ", r"[\W_]+") + _WORD_END
        query = re.sub(rf"\b{_VERB}\s+{pattern}(?!['’]s)", r"\g<verb> I", query, flags=re.I)
        query = re.sub(rf"{pattern}['’]s\b", "my", query, flags=re.I)
        query = re.sub(pattern, "I", query, flags=re.I)
    return query


def user_to_first_person(query: str) -> str:
    """Return a query about "the user", a label that most memories have, as if they asked it."""
    return to_first_person(_USER_LABEL.sub("我", query), ["the user"])


@cache_short_texts(10_000, characters=100)
def _speaker_key(name: str) -> str:
    return re.sub(r"[\W_]+", "", normalize(name)).lower()
