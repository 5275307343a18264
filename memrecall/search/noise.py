"""How near two texts lie that have nothing to do with each other.

Every embedding model has its own answer: with one, strangers have a cosine of 0, with another of
0.7. So it is measured: the question's cosines with remote sentences of all sorts show what is
noise for this model and this question.
"""

import math

import numpy as np
import numpy.typing as npt

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
