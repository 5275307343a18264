"""How sure a choice of keys is: about the chance that at least one of them is right."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from memrecall.agent.offline.findings import Candidate, Findings, Said
from memrecall.agent.offline.request import ParsedRequest
from memrecall.agent.offline.searches import named_speakers
from memrecall.agent.offline.vocabulary import (
    alternation,
    chinese_pattern,
    english_pattern,
    pattern_ignoring_case,
)
from memrecall.search.ranking.calibration import HALF
from memrecall.search.ranking.people import named_in

_MOST_WORDS = 16
_LEAST_WEIGHT = 0.1
# Where little is stored, few rows are found; the others, which have none of the words, count too.
_LEAST_ROWS = 10
_COMPARED = 6  # hits among which one is newer or older


@dataclass(frozen=True, slots=True)
class Measures:
    """What speaks for one candidate."""

    chance: float  # the chance that its search gave it, in log odds
    rank: float  # its place in its search, as a logarithm
    telling: float  # the share of the asked words it has; rare ones among the hits count more
    asks: float  # 1: it is a question itself
    newer: float  # the share of the best hits that were said before it


def as_row(measures: object) -> list[float]:
    """The measures as numbers, in the order of their fields."""
    return [getattr(measures, field.name) for field in fields(measures)]  # type: ignore[arg-type]


class EvidenceContext:
    """A request and what was found for it, made ready for measuring."""

    def __init__(self, reading: ParsedRequest, found: Findings) -> None:
        self.reading = reading
        self.found = found
        self.hits = found.hits
        self.speakers = named_speakers(reading, found)
        # A candidate's words, and who said them.
        self.said: Mapping[str, Said] = {
            key: Said.of(f"{candidate.speaker} {candidate.text}")
            for key, candidate in found.candidates.items()
        }
        self.weights = self.weigh(asked_words(reading))

    def weigh(self, words: Iterable[str]) -> "TermWeights":
        """How much each word tells: what every hit has tells nothing."""
        rows = max(len(self.hits), _LEAST_ROWS)
        weights: list[tuple[Said, float]] = []
        for word in map(Said.of, words):
            having = sum(self.said[hit.key].has(word) for hit in self.hits)
            weights.append((word, max(math.log((rows + 1) / (having + 0.5)), _LEAST_WEIGHT)))
        return TermWeights(weights)

    def measure(self, candidate: Candidate) -> Measures:
        """What speaks for a hit."""
        others = [hit for hit in self.hits[:_COMPARED] if hit.key != candidate.key]
        older = sum(hit.created_at < candidate.created_at for hit in others)
        return Measures(
            chance=log_odds(candidate.score) + log_odds(HALF),
            rank=math.log1p(candidate.rank),
            telling=self.weights.share(self.said[candidate.key]),
            asks=float(candidate.asks),
            newer=older / len(others) if others else 0.5,
        )


class TermWeights:
    """Words with what each of them tells."""

    def __init__(self, weights: Sequence[tuple[Said, float]]) -> None:
        self._weights = weights
        self.total = sum(weight for _, weight in weights)

    def share(self, said: Said) -> float:
        """The share of the words' weight that a text has."""
        if not self.total:
            return 0.0
        return sum(weight * said.has(word) for word, weight in self._weights) / self.total


def asked_words(reading: ParsedRequest) -> tuple[str, ...]:
    """The words that an answer should have: the message's own; a topic has the conversation's."""
    own = (*reading.words, *reading.exact)
    more = reading.context_words if reading.topical or not own else ()
    return tuple(dict.fromkeys((*own, *more)))[:_MOST_WORDS]


def log_odds(share: float) -> float:
    """A score from 0 to 1 as log odds; the tools round scores, so its ends are not infinite."""
    bounded = min(max(share, 0.001), 0.9995)
    return math.log(bounded / (1 - bounded))


def in_time(reading: ParsedRequest, candidate: Candidate) -> float:
    """Whether it was said within a time that the request names; one half if nobody can tell."""
    spans = reading.timing.spans
    if not spans or not candidate.created_at:
        return 0.5
    try:
        said = datetime.fromisoformat(candidate.created_at)
        inside = any(
            (span.start is None or said >= span.start) and (span.end is None or said < span.end)
            for span in spans
        )
    except (ValueError, TypeError):
        return 0.5
    return float(inside)


# People by what they are to somebody. 妈 is in 妈妈 and 老妈, 姐 in 姐姐 and 表姐.
_RELATIONS = (
    english_pattern(
        """
        sister,brother,mother,mum,mom,father,dad,wife,husband,son,daughter,uncle,aunt,cousin,niece
        nephew,grandma,grandmother,grandpa,grandfather,boss,manager,colleague,coworker,neighbour
        neighbor,friend,roommate,flatmate,landlord,teacher,doctor,partner,girlfriend,boyfriend,kid
        kids,child,children,baby
        """
    ),
    chinese_pattern(
        """
        姐,妹,哥,弟,妈,爸,母亲,父亲,老婆,老公,妻子,丈夫,儿子,女儿,叔,姨,舅,姑,奶奶,爷爷,外婆,外公
        老板,经理,同事,邻居,朋友,室友,房东,老师,医生,女友,男友,孩子
        """
    ),
)
_SENTENCE_START = re.compile(r"(?:^|[.?!:;\n]\s+)[\"'“(]*[A-Z][a-z]+")
_CAPITAL = re.compile(r"\b[A-Z][a-z]+\b")
_DATES = english_pattern(
    """
    Monday,Tuesday,Wednesday,Thursday,Friday,Saturday,Sunday,January,February,March,April,May,June
    July,August,September,October,November,December
    """
)
_DOUBT = (
    pattern_ignoring_case(
        r"\b(?:don't|do not|didn't|not)\s+(?:know|remember|sure|decided?|yet)\b",
        r"\b(?:no idea|haven't|hasn't|forgot|unknown|tbd|to be (?:decided|confirmed))\b",
    ),
    chinese_pattern("不知道,不清楚,还没,没定,未定,没说,不确定,没想好,忘了,不记得,待定,没问,没有问"),
)
_ASKS_NUMBER = (
    pattern_ignoring_case(
        r"\bhow\s+(?:many|much|old)\b",
        r"\b(?:number|phone|price|password|pin|port)\b",
    ),
    re.compile("多少|几岁|几点|几号|号码|电话|手机号|价格|密码|端口|账号"),
)
_SMALL = "one,two,three,four,five,six,seven,eight,nine,ten,eleven,twelve,twenty,thirty,forty,fifty"
_NUMBER = re.compile(
    r"\d|[零一二两三四五六七八九十百千万半][个次天周月年岁本位点号件只条块元毛斤米公分度人家层楼页种双套克]"
    rf"|\b(?:{alternation(_SMALL + ',hundred,half,dozen,once,twice')})\b",
    re.IGNORECASE,
)


def misses_person(asked: str, told: str) -> bool:
    """Whether a text says nothing of somebody whom the request names, by name or relation."""
    heard = told.casefold()
    if any(who.casefold() not in heard for who in _names(asked)):
        return True
    return any(
        match.group().casefold() not in heard
        for pattern in _RELATIONS
        for match in pattern.finditer(asked)
    )


def _names(text: str) -> list[str]:
    """Capitalised words within sentences."""
    starts = {match.end() for match in _SENTENCE_START.finditer(text)}
    return [
        match.group()
        for match in _CAPITAL.finditer(text)
        if match.end() not in starts and not _DATES.fullmatch(match.group())
    ]


def doubts(text: str) -> bool:
    """Whether it says that something is not known or not settled."""
    return any(pattern.search(text) for pattern in _DOUBT)


def asks_number(text: str) -> bool:
    """Whether only a number can be the answer: an amount, a price, somebody's phone."""
    return any(pattern.search(text) for pattern in _ASKS_NUMBER)


def has_number(text: str) -> bool:
    """Whether a number is in it, in digits or in words."""
    return _NUMBER.search(text) is not None


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


def confidence_of(scene: EvidenceContext, chances: Sequence[tuple[Candidate, float]]) -> float:
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


def _signs(scene: EvidenceContext, chances: Sequence[tuple[Candidate, float]]) -> Signs:
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


def is_unheard(scene: EvidenceContext) -> bool:
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


def _rivalry(scene: EvidenceContext) -> float:
    """How much more of the request was told of somebody else; 0 where nobody can tell."""
    told = scene.found.told_of
    named = named_in(scene.reading.text, list(told))
    if len(named) != 1:
        return 0.0
    others = max((share for who, share in told.items() if who not in named), default=0.0)
    return max(others + _LEAD - told[next(iter(named))], 0.0)
