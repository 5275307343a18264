"""How sure a choice of keys is: about the chance that at least one of them is right."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memrecall.agent.rules.coverage import Said
from memrecall.agent.rules.findings import Candidate
from memrecall.agent.rules.lacking import asks_number, doubts, has_number, misses_person
from memrecall.agent.rules.measures import Scene, as_row, in_time, log_odds
from memrecall.search.people import named_in

# Below it the rules abstain. That loses 1 to 4 of 100 questions that have an answer, and 7 on
# fixtures/eval. Six of ten questions about one person that are true of another are noticed, but few
# about something that was nearly said: by words and scores they look like the others.
ABSTAIN_BELOW = 0.26
_LEAD = 0.1  # of somebody rightly asked about so much more is told than of others
_A_WORD = 0.05  # of the weight of the asked words; less is none
# Where no hit has any asked word, the best must be close in meaning, or stand out from the next.
# In stretches of 15 to 60 messages, six of ten questions that fail this have no answer there.
_CLOSE = 0.8  # relevance
_STANDS_OUT = 0.7  # log odds
_NEXT = 3
_WHEN_UNHEARD = 0.25
# A path, a number or a quotation that was found letter by letter is no accident.
_WHEN_EXACT = 0.6


@dataclass(frozen=True, slots=True)
class Signs:
    """What speaks for a choice, and what against it."""

    best: float  # the chance of its best key, in log odds
    expected: float  # how many of its keys should be right if more than one, as a logarithm
    in_time: float  # whether the best was said within a time that the request names
    topic: float  # 1: searched by a conversation, which shares few words with what is meant
    impersonal: float  # 1: the best says nothing of a person that the request names
    doubting: float  # 1: the best says that something is not known
    numberless: float  # 1: a number is asked for, and none of the keys has one
    rivalled: float  # how much more of what is asked was told of somebody else


# Is any of the keys right? Logistic regression on one half of LifeBench and MADial and on
# fixtures/eval, whole and cut into stretches of 15 to 160 messages; 15 % of the weight are
# questions whose evidence cannot be seen. By hand: `expected` and `topic`, to be right on average
# in every set; and the last two, which hardly any question of those sets shows.
_WEIGHTS = Signs(
    best=0.56,
    expected=0.9,
    in_time=1.3,
    topic=0.9,
    impersonal=-0.15,
    doubting=-0.7,
    numberless=-1.6,
    rivalled=-7.0,
)
_BIAS = -0.15


def confidence_of(scene: Scene, chances: Sequence[tuple[Candidate, float]]) -> float:
    """The confidence in the chosen candidates, which come with the chance of each, best first."""
    if not chances:
        return 0.0
    signs = _signs(scene, chances)
    total = sum(w * s for w, s in zip(as_row(_WEIGHTS), as_row(signs), strict=True))
    sure = 1 / (1 + math.exp(-total - _BIAS))
    reading, said = scene.reading, scene.said[chances[0][0].key]
    if reading.exact and all(said.has(Said.of(word)) >= 1 for word in reading.exact):
        sure = max(sure, _WHEN_EXACT)
    return min(sure, _WHEN_UNHEARD) if is_unheard(scene) else sure


def _signs(scene: Scene, chances: Sequence[tuple[Candidate, float]]) -> Signs:
    reading = scene.reading
    best, chance = chances[0]
    told = f"{best.speaker} {best.text}"
    numbers = any(has_number(candidate.text) for candidate, _ in chances)
    return Signs(
        best=log_odds(chance),
        expected=math.log(max(sum(chance for _, chance in chances), 1.0)),
        in_time=in_time(reading, best),
        topic=float(reading.topical),
        impersonal=float(misses_person(reading.text, told)),
        doubting=float(doubts(best.text)),
        numberless=float(not numbers and not reading.topical and asks_number(reading.text)),
        rivalled=_rivalry(scene),
    )


def is_unheard(scene: Scene) -> bool:
    """Whether nobody said any word of the request, and no hit comes close to its meaning."""
    if scene.reading.topical or not scene.weights.total:
        return False
    if any(scene.weights.share(scene.said[hit.key]) >= _A_WORD for hit in scene.hits):
        return False
    reading, best = scene.reading, scene.hits[0]
    first, *others = (log_odds(hit.score) for hit in scene.hits[: _NEXT + 1])
    # Within what one person said, or at one time, scores compare few rows.
    filtered = reading.whose is not None or reading.timing.said is not None
    close = first >= log_odds(_CLOSE) and not filtered
    # Among one or two nothing stands out; nor does what only was said at the right time.
    timed = bool(reading.timing.spans) and in_time(reading, best) == 1
    compared = len(others) == _NEXT and not timed
    return not close and not (compared and first - sum(others) / _NEXT >= _STANDS_OUT)


def _rivalry(scene: Scene) -> float:
    """How much more of the request was told of somebody else; 0 where nobody can tell."""
    told = scene.found.told_of
    named = named_in(scene.reading.text, list(told))
    if len(named) != 1:
        return 0.0
    others = max((share for who, share in told.items() if who not in named), default=0.0)
    return max(others + _LEAD - told[next(iter(named))], 0.0)
