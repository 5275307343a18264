"""People in queries and results: speakers that a query names, and whom a sentence is about.

People talk about themselves with "I" and about the other with "you". Each sentence is attributed to
its speaker or to those it addresses; then the results show how much of the query is said about the
person in question and how much about others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from memrecall.search.ranking.lexical import SearchTerm, all_terms
from memrecall.search.results import Hit
from memrecall.text.normalize import normalize

_LATIN = "A-Za-z\u00c0-\u024f"
# "Ann昨天" is a name and a word: Chinese has no spaces, and "\\b" matches no boundary there.
_WORD = re.compile(rf"[{_LATIN}]+|[^\W\d_{_LATIN}]+")
_IS_LATIN = re.compile(rf"[{_LATIN}]")
_WORD_START, _WORD_END = rf"(?<![{_LATIN}\d_])", rf"(?![{_LATIN}\d_])"
_MIN_NAME_LENGTH = 2  # "A" would be found in every query
_VERB = r"(?P<verb>did|does|do|has|have|is|was|were|are|will|would|had|can|could|should|might)"


def find_speakers(query: str, speakers: Sequence[str]) -> dict[str, str]:
    """Return the speakers that a query names, each with the words that name them there."""
    words = [match.group() for match in _WORD.finditer(query)]
    names = {_speaker_key(word): word for word in words}
    # "Lei Mingxuan" may be stored as leimingxuan.
    for first, second in pairwise(words):
        names[_speaker_key(first + second)] = f"{first} {second}"
    matches: dict[str, str] = {}
    for speaker in speakers:
        folded = _speaker_key(speaker)
        if len(folded) < _MIN_NAME_LENGTH:
            continue
        if folded in names:
            matches[speaker] = names[folded]
        elif not _IS_LATIN.search(speaker) and speaker in query:
            matches[speaker] = speaker
    return matches


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


@lru_cache(10_000)
def _speaker_key(name: str) -> str:
    return re.sub(r"[\W_]+", "", normalize(name)).lower()


_SENTENCE = re.compile(r"[^.!?。！？\n]*[.!?。！？\n]*")
_FIRST_PERSON = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|ours)\b|我|咱|俺", re.IGNORECASE)
_SECOND_PERSON = re.compile(r"\b(?:you|your|yours|yourself|u)\b|你|您", re.IGNORECASE)
_STEM_PREFIX = 3  # letters that a stem shares with its words
_PERSON_ROLES = frozenset({"user", "assistant", "other"})
# The share of a sentence that is about its speaker if it has both pronouns or none.
_BOTH_PERSONS, _NO_PERSON, _NO_PERSON_QUESTION = 0.5, 0.7, 0.3


def coverage_by_person(
    query: str, weights: Mapping[SearchTerm, float], hits: Sequence[Hit]
) -> dict[str, float]:
    """Return for each speaker of the hits how much of the query one hit says about them.

    From 0 to 1, by the weights of the query's terms; the best hit counts. Empty unless the query
    names exactly one of them: only then results about others are misleading.
    """
    statements = [hit for hit in hits if hit.speaker and hit.role in _PERSON_ROLES]
    people = list(dict.fromkeys(hit.speaker for hit in statements if hit.speaker))
    names = {term for person in people for term in all_terms(person)}
    terms = {term: weight for term, weight in weights.items() if term not in names}
    if len(find_speakers(query, people)) != 1 or not terms:
        return {}
    best = dict.fromkeys(people, 0.0)
    for hit in statements:
        for person, share in _shares(hit, terms, people):
            best[person] = max(best[person], share)
    return {person: round(share, 2) for person, share in best.items()}


def _shares(
    hit: Hit, terms: Mapping[SearchTerm, float], people: Sequence[str]
) -> Iterator[tuple[str, float]]:
    own = others = 0.0
    prefixes = {term[0][:_STEM_PREFIX] for term in terms}
    for sentence in _SENTENCE.findall(normalize(hit.content).casefold()):
        # Most sentences contain no term of the query, and analysing them is expensive.
        if not any(prefix in sentence for prefix in prefixes):
            continue
        sentence_terms = all_terms(sentence)
        covered = sum(weight for term, weight in terms.items() if term in sentence_terms)
        if covered:
            share = _speaker_share(sentence)
            own += covered * share
            others += covered * (1 - share)
    total = sum(terms.values())
    for person in people:
        # Which of several listeners is addressed is unknown.
        covered = own if person == hit.speaker else others / max(len(people) - 1, 1)
        yield person, min(covered / total, 1.0)


def _speaker_share(sentence: str) -> float:
    has_first = bool(_FIRST_PERSON.search(sentence))
    if has_first != bool(_SECOND_PERSON.search(sentence)):
        return float(has_first)
    if has_first:
        return _BOTH_PERSONS
    return _NO_PERSON_QUESTION if sentence.rstrip().endswith(("?", "？")) else _NO_PERSON
