"""Whom the found words tell of: a question about Ann may be answered by what Bob said of himself.

People talk of themselves with "I" and of the other with "you". Sentence by sentence, what was said
is told of its speaker or of those spoken to; then it can be compared how much of what is asked was
told of the person asked about, and how much of somebody else.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from memrecall.search.ranking.lexical import SearchTerm, all_terms
from memrecall.search.request import Hit
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


_SENTENCE = re.compile(r"[^.!?。！？\n]*[.!?。！？\n]*")
_I = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|ours)\b|我|咱|俺", re.IGNORECASE)
_YOU = re.compile(r"\b(?:you|your|yours|yourself|u)\b|你|您", re.IGNORECASE)
_BEGINNING = 3  # letters that a stem shares with its words
_TALKING = frozenset({"user", "assistant", "other"})
# How much of a sentence is told of its speaker, where it has neither or both of the two words.
_BOTH, _NEITHER, _NEITHER_ASKING = 0.5, 0.7, 0.3


def told_of(
    question: str, telling: Mapping[SearchTerm, float], hits: Sequence[Hit]
) -> dict[str, float]:
    """For each person who talks in the hits, the most of the question that one hit tells of them.

    From 0 to 1, by the weights of the question's terms. Empty unless the question names just one
    of them: only then somebody is asked about and others are not.
    """
    talking = [hit for hit in hits if hit.speaker and hit.role in _TALKING]
    people = list(dict.fromkeys(hit.speaker for hit in talking if hit.speaker))
    named = named_in(question, people)
    asked = _without_names(telling, people)
    if len(named) != 1 or not asked:
        return {}
    most = dict.fromkeys(people, 0.0)
    for hit in talking:
        for person, share in _shares(hit, asked, people):
            most[person] = max(most[person], share)
    return {person: round(share, 2) for person, share in most.items()}


def _without_names(
    telling: Mapping[SearchTerm, float], people: Iterable[str]
) -> dict[SearchTerm, float]:
    names = {term for person in people for term in all_terms(person)}
    return {term: weight for term, weight in telling.items() if term not in names}


def _shares(
    hit: Hit, asked: Mapping[SearchTerm, float], people: Sequence[str]
) -> Iterator[tuple[str, float]]:
    own = others = 0.0
    beginnings = {term[0][:_BEGINNING] for term in asked}
    for sentence in _SENTENCE.findall(normalize(hit.content).casefold()):
        # Most sentences have no asked word, and analysing them is what costs.
        if not any(beginning in sentence for beginning in beginnings):
            continue
        said = all_terms(sentence)
        covered = sum(weight for term, weight in asked.items() if term in said)
        if covered:
            share = _of_speaker(sentence)
            own += covered * share
            others += covered * (1 - share)
    total = sum(asked.values())
    for person in people:
        # Who of several is spoken to is not known.
        told = own if person == hit.speaker else others / max(len(people) - 1, 1)
        yield person, min(told / total, 1.0)


def _of_speaker(sentence: str) -> float:
    of_me, of_you = bool(_I.search(sentence)), bool(_YOU.search(sentence))
    if of_me != of_you:
        return float(of_me)
    if of_me:
        return _BOTH
    return _NEITHER_ASKING if sentence.rstrip().endswith(("?", "？")) else _NEITHER
