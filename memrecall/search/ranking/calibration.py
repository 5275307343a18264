"""How near two texts lie that have nothing to do with each other.

Every embedding model has its own answer: with one, strangers have a cosine of 0, with another of
0.7. So it is measured: the question's cosines with remote sentences of all sorts show what is
noise for this model and this question.
"""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

RIVALS = 50  # the rows that share the chance
LOOKED_AT = 20  # those that tell what kind of rows these are
NONE_OF_THEM = 0.0  # the score of "none of them"
SHARE, LONE, TIMED, BIAS = 1.0, 0.85, 0.78, 0.98
# A chance of five in a hundred is a relevance of one half: on labelled conversations that
# keeps about nine tenths of the evidence that ranks among the first ten.
HALF = 0.05


def calibrate(
    scores: Floats, open_rows: npt.NDArray[np.bool_], lone: Floats, time: Floats
) -> Floats:
    """The scores as the logit of relevance: 0 is one half. The order stays as it is.

    `open_rows` are the candidates that may be shown; `lone` and `time` are evidence of each.
    """
    shown = np.flatnonzero(open_rows)
    if not len(shown):
        return scores
    if len(shown) > RIVALS:  # among equals at the end of the list it does not matter which
        shown = shown[np.argpartition(-scores[shown], RIVALS)[:RIVALS]]
    best = shown[np.argsort(-scores[shown], kind="stable")]
    rivals = np.append(scores[best].astype(np.float64), NONE_OF_THEM)
    together = float(np.logaddexp.reduce(rivals))
    seen = best[:LOOKED_AT]
    kind = LONE * float(lone[seen].mean()) + TIMED * float(time[seen].mean())
    shift = kind + BIAS - SHARE * together - _logit(HALF)
    return np.round(np.float32(SHARE) * scores + np.float32(shift), 4)


def probability(total: float) -> float:
    """The chance of a calibrated score."""
    return round(1 / (1 + math.exp(-(total + _logit(HALF)))), 4)


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


BACKGROUND = (
    "Basalt forms when lava cools quickly at the surface.",
    "The treaty of 1648 ended thirty years of war.",
    "Beetles are the largest order of insects.",
    "A sonnet has fourteen lines and a fixed rhyme.",
    "Saturn's rings consist mostly of ice.",
    "The violin is tuned in perfect fifths.",
    "Roman aqueducts carried water by gravity alone.",
    "Salmon return to the river where they hatched.",
    "Gothic cathedrals are held up by flying buttresses.",
    "The desert fox hunts at night.",
    "Copper and tin are melted together into bronze.",
    "Glaciers carve valleys in the shape of a U.",
    "蝉在地下生活多年才羽化。",
    "唐代的诗人常写边塞风光。",
    "珊瑚礁由无数微小的动物筑成。",
    "青铜器上刻有古老的铭文。",
    "月球绕地球一周约二十七天。",
    "竹子是生长最快的植物之一。",
    "长城的一部分建于明代。",
    "火山灰使土壤变得肥沃。",
    "候鸟秋天飞往南方过冬。",
    "瓷器在高温的窑里烧成。",
    "鲸鱼用肺呼吸，属于哺乳动物。",
    "沙丘随着风慢慢移动。",
)
_FEWEST = 8
_SPREAD_OF_MAD = 1.4826  # how a median deviation is turned into a standard one
_LEAST_SPREAD = 0.02


def noise_floor(cosines: npt.NDArray[np.float32], rows: int) -> float:
    """The least cosine that stands out among so many rows, by those with the background.

    The nearest of many strangers is nearer than that of few: a spread above where it is expected.
    By medians: a question that happens to be about one of the sentences does not raise it.
    """
    middle = float(np.median(cosines))
    spread = _SPREAD_OF_MAD * float(np.median(np.abs(cosines - middle)))
    spreads = 1 + math.sqrt(2 * math.log(max(rows, _FEWEST)))
    return middle + spreads * max(spread, _LEAST_SPREAD)
