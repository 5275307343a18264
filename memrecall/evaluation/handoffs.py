"""What a recall hands off, beside a search that is cut at a number of keys.

A search gives a list, a recall gives an answer. To be worth its calls it must choose keys at least
as well as the best single cut of that list does, which nobody knows beforehand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.answers import Answer
from memrecall.evaluation.comparing import require_same_questions
from memrecall.evaluation.folder import Run
from memrecall.evaluation.questions import Question

DEEPEST_CUT = 20

_Pair = tuple[Question, Answer, frozenset[str]]


@dataclass(frozen=True, slots=True)
class HandedOff:
    """Keys of a recall against the first keys of a search, over the answerable questions.

    Nothing handed off counts as nothing found, on both sides of `recall`.
    """

    questions: int
    keys: float  # handed off, on average
    empty: float  # the share of these questions for which nothing was handed off
    f1: float
    search_f1: float  # cut at `best_cut`, which is the same for every question
    best_cut: int
    recall: float
    search_recall: float  # cut, question by question, at as many keys as the recall handed off


def hand_off_figures(search: Run, recall: Run) -> HandedOff:
    """Hold a recall run against a search run of the same questions."""
    modes = (search.state.plan.mode, recall.state.plan.mode)
    if modes != ("search", "recall"):
        raise InvalidArgument(
            f"{search.name} is a {modes[0]} run and {recall.name} a {modes[1]} run",
            hint="Give a search run first, then a recall run",
        )
    require_same_questions(search, recall)
    pairs = [
        (question, found, frozenset(given.recalled.relevant_memory_keys))
        for question, found, given in zip(
            search.questions, search.answers, recall.answers, strict=True
        )
        if question.answerable and given.recalled
    ]
    if not pairs:
        raise InvalidArgument(f"no question of {search.name} has an answer")
    cuts = [_mean(pairs, _cut_f1(cut)) for cut in range(1, DEEPEST_CUT + 1)]
    best = int(np.argmax(cuts))
    return HandedOff(
        questions=len(pairs),
        keys=_mean(pairs, lambda question, found, keys: len(keys)),
        empty=_mean(pairs, lambda question, found, keys: not keys),
        f1=_mean(pairs, lambda question, found, keys: _f1(keys, question.evidence)),
        search_f1=cuts[best],
        best_cut=best + 1,
        recall=_mean(pairs, lambda question, found, keys: _recall(keys, question.evidence)),
        search_recall=_mean(pairs, _search_recall),
    )


def _cut_f1(cut: int) -> Callable[[Question, Answer, frozenset[str]], float]:
    return lambda question, found, keys: _f1(frozenset(found.keys[:cut]), question.evidence)


def _search_recall(question: Question, found: Answer, keys: frozenset[str]) -> float:
    return _recall(frozenset(found.keys[: len(keys)]), question.evidence)


def _mean(
    pairs: Sequence[_Pair], figure: Callable[[Question, Answer, frozenset[str]], float]
) -> float:
    return round(float(np.mean([figure(*pair) for pair in pairs])), 6)


def _f1(keys: frozenset[str], evidence: Sequence[str]) -> float:
    return 2 * len(keys.intersection(evidence)) / (len(keys) + len(evidence))


def _recall(keys: frozenset[str], evidence: Sequence[str]) -> float:
    return len(keys.intersection(evidence)) / len(evidence)
