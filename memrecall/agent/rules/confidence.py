"""How sure a choice of keys is: about the chance that at least one of them is right."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memrecall.agent.rules.coverage import Said
from memrecall.agent.rules.findings import Candidate
from memrecall.agent.rules.measures import Scene, as_row, asked_words, in_time
from memrecall.agent.rules.searching import is_topic

# Below it the rules abstain. A higher one would catch more questions that have no answer and lose
# more that have one, which is the worse error: on LifeBench this loses 2 or 3 of 100 right answers
# and catches a quarter of the questions whose evidence had been hidden.
ABSTAIN_BELOW = 0.47
# Somebody else's words have so much more of what is asked than those of the person asked about.
_RIVAL = 0.1
_WHEN_RIVALLED = 0.3
# A path, a number or a quotation that was found letter by letter is no accident.
_WHEN_EXACT = 0.6


@dataclass(frozen=True, slots=True)
class Signs:
    """What speaks for a choice."""

    expected: float  # how many of its keys should be right, as a logarithm
    matched: float  # the weight of the asked words that its best key has, as a logarithm
    in_time: float  # whether the best was said within a time that the request names
    topic: float  # 1: searched by a conversation, which shares few words with what is meant


# Logistic regression on one half of LifeBench and MADial, and on the same questions asked as of a
# time before their evidence (a quarter of the weight each). LoCoMo was looked at, never fitted.
_WEIGHTS = Signs(expected=0.87, matched=0.7, in_time=1.05, topic=1.21)
_BIAS = -1.16


def confidence_of(scene: Scene, chances: Sequence[tuple[Candidate, float]]) -> float:
    """The confidence in the chosen candidates, which come with the chance of each, best first."""
    if not chances:
        return 0.0
    best = chances[0][0]
    reading, said = scene.reading, scene.said[best.key]
    signs = Signs(
        expected=math.log(max(sum(chance for _, chance in chances), 1e-3)),
        matched=math.log1p(scene.weights.share(said) * scene.weights.total),
        in_time=in_time(reading, best),
        topic=float(is_topic(reading)),
    )
    total = sum(w * s for w, s in zip(as_row(_WEIGHTS), as_row(signs), strict=True))
    sure = 1 / (1 + math.exp(-total - _BIAS))
    if reading.exact and all(said.has(Said.of(word)) >= 1 for word in reading.exact):
        sure = max(sure, _WHEN_EXACT)
    return min(sure, _WHEN_RIVALLED) if is_rivalled(scene) else sure


def is_rivalled(scene: Scene) -> bool:
    """Whether what is asked about one partner of a conversation was rather said by the other."""
    partners = [hit for hit in scene.hits if hit.role in ("user", "assistant") and hit.speaker]
    own = [hit for hit in partners if hit.speaker in scene.speakers]
    others = [hit for hit in partners if hit.speaker not in scene.speakers]
    if not own or not others:
        return False
    asked = asked_words(scene.reading)
    weights = scene.weigh(word for word in asked if not _names(word, scene.speakers))
    best_own = max(weights.share(scene.said[hit.key]) for hit in own)
    return max(weights.share(scene.said[hit.key]) for hit in others) - best_own > _RIVAL


def _names(word: str, people: Sequence[str]) -> bool:
    said = word.casefold()
    return any(said in who.casefold() or who.casefold() in said for who in people)
