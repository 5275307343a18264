"""Whom the found words tell of: a question about Ann may be answered by what Bob said of himself.

People talk of themselves with "I" and of the other with "you". Sentence by sentence, what was said
is told of its speaker or of those spoken to; then it can be compared how much of what is asked was
told of the person asked about, and how much of somebody else.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from memrecall.search.people import named_in
from memrecall.search.request import Hit
from memrecall.search.terms import Term, all_terms
from memrecall.text.normalize import normalize

_SENTENCE = re.compile(r"[^.!?。！？\n]*[.!?。！？\n]*")
_I = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|ours)\b|我|咱|俺", re.IGNORECASE)
_YOU = re.compile(r"\b(?:you|your|yours|yourself|u)\b|你|您", re.IGNORECASE)
_BEGINNING = 3  # letters that a stem shares with its words
_TALKING = frozenset({"user", "assistant", "other"})
# How much of a sentence is told of its speaker, where it has neither or both of the two words.
_BOTH, _NEITHER, _NEITHER_ASKING = 0.5, 0.7, 0.3


def told_of(question: str, telling: Mapping[Term, float], hits: Sequence[Hit]) -> dict[str, float]:
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


def _without_names(telling: Mapping[Term, float], people: Iterable[str]) -> dict[Term, float]:
    names = {term for person in people for term in all_terms(person)}
    return {term: weight for term, weight in telling.items() if term not in names}


def _shares(
    hit: Hit, asked: Mapping[Term, float], people: Sequence[str]
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
