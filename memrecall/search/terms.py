"""What a question is searched by: its terms, each with how much it counts.

A term is a tuple: one atom or extra, or two neighbouring Chinese characters.
"""

from itertools import pairwise

from memrecall.text.stopwords import STOP_CHARS, STOP_TERMS, STOP_WORDS
from memrecall.text.tokens import BREAK, Analysis, analyze, is_cjk

Term = tuple[str] | tuple[str, str]
Terms = dict[Term, float]

# One character is a weak word: 型 of 血型 (blood group) is in 模型 (model) too.
CHARACTER = 0.5


def all_terms(text: str) -> Terms:
    """Every term of a text, each as often as it is said: what rows are filed under."""
    analysis = analyze(text)
    single: list[Term] = [(term,) for term in (*_atoms(analysis), *analysis.extras)]
    return _count([(term, 1.0) for term in (*single, *_pairs(analysis))])


def question_terms(text: str) -> Terms:
    """The terms of a plain question that tell something; all of them if none does."""
    analysis = analyze(text)
    telling: list[tuple[Term, float]] = [
        ((atom,), CHARACTER if is_cjk(atom) else 1.0)
        for atom in _atoms(analysis)
        if atom not in STOP_TERMS and atom not in STOP_CHARS
    ]
    telling += [((extra,), 1.0) for extra in analysis.extras]
    telling += [(pair, 1.0) for pair in _pairs(analysis) if _tells(pair)]
    return _count(telling) if telling else all_terms(text)


def _tells(pair: tuple[str, str]) -> bool:
    grammar = pair[0] in STOP_CHARS and pair[1] in STOP_CHARS
    return not grammar and "".join(pair) not in STOP_WORDS


def _atoms(analysis: Analysis) -> list[str]:
    return [atom for atom in analysis.atoms if atom != BREAK]


def _pairs(analysis: Analysis) -> list[tuple[str, str]]:
    return [(a, b) for a, b in pairwise(analysis.atoms) if is_cjk(a) and is_cjk(b)]


def _count(weighted: list[tuple[Term, float]]) -> Terms:
    terms: Terms = {}
    for term, weight in weighted:
        terms[term] = terms.get(term, 0.0) + weight
    return terms
