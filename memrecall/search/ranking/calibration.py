"""Calibration: scores as probabilities, and the cosine below which similarity is noise.

Unrelated texts have a cosine of 0 with one embedding model and of 0.7 with another. So it is
measured: the cosines of the query with unrelated sentences show what is noise for this model and
this query.
"""

import math

import numpy as np

from memrecall.search.index.rows import Floats, Mask
from memrecall.search.ranking.scores import logit

RIVALS = 50  # the rows that compete for the probability
LOOKED_AT = 20  # the rows whose features shift the score
NONE_OF_THEM = 0.0  # the score of "none of them is relevant"
SHARE, LONE, TIMED, BIAS = 1.0, 0.85, 0.78, 0.98
# A probability of 0.05 is a relevance of one half: on labelled conversations that keeps about nine
# tenths of the evidence that ranks among the first ten.
HALF = 0.05


def calibrate(scores: Floats, visible: Mask, lone: Floats, time: Floats) -> Floats:
    """Return scores as the logit of relevance: 0 is one half. The order stays the same.

    `visible` marks the candidates that may be shown; `lone` and `time` are their features.
    """
    rows = np.flatnonzero(visible)
    if not len(rows):
        return scores
    if len(rows) > RIVALS:
        rows = rows[np.argpartition(-scores[rows], RIVALS)[:RIVALS]]
    best = rows[np.argsort(-scores[rows], kind="stable")]
    rivals = np.append(scores[best].astype(np.float64), NONE_OF_THEM)
    total = float(np.logaddexp.reduce(rivals))
    first = best[:LOOKED_AT]
    kind = LONE * float(lone[first].mean()) + TIMED * float(time[first].mean())
    shift = kind + BIAS - SHARE * total - logit(HALF)
    return np.round(np.float32(SHARE) * scores + np.float32(shift), 4)


def probability(score: float) -> float:
    """Return the probability of relevance for a calibrated score."""
    return round(1 / (1 + math.exp(-(score + logit(HALF)))), 4)


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
_MIN_ROWS = 8
_MAD_TO_DEVIATION = 1.4826  # converts a median absolute deviation into a standard deviation
_MIN_SPREAD = 0.02


def noise_floor(cosines: Floats, rows: int) -> float:
    """Return the lowest cosine that is significant among `rows` rows.

    `cosines` are those of the query with the background sentences. The closest of many unrelated
    rows is closer than that of few, so the floor rises with `rows`. Medians keep a query about one
    of the sentences from raising it.
    """
    median = float(np.median(cosines))
    spread = _MAD_TO_DEVIATION * float(np.median(np.abs(cosines - median)))
    deviations = 1 + math.sqrt(2 * math.log(max(rows, _MIN_ROWS)))
    return median + deviations * max(spread, _MIN_SPREAD)
