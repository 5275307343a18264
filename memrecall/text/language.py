"""English and Chinese: which one a text is in, its stop words, and how rare its words are.

In a store of ten messages nearly every word is rare. What a match says about a question depends on
how rare the word is in the language: "the" says nothing, "oboe" nearly everything. The cost of a
term is the negative logarithm of its probability. `benchmarks/make_word_costs.py` writes the table
and names its sources.

The classes of Chinese words are the tags of the segmenter: n for nouns, ns for places, …
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from memrecall.text.tokens import stem
from memrecall.types import Language


def language_of(text: str) -> Language:
    """Return "zh" if a text has any Chinese: it may be full of English names."""
    return "zh" if any("\u4e00" <= character <= "\u9fff" for character in text) else "en"


def read_phrases(file: Path) -> dict[str, tuple[str, str]]:
    """Return a file's texts in English and Chinese, by name; its sections are for readers."""
    sections: dict[str, dict[str, tuple[str, str]]] = json.loads(file.read_text("utf-8"))
    return {
        name: (english, chinese)
        for section in sections.values()
        for name, (english, chinese) in section.items()
    }


def language_of_most(texts: Iterable[str]) -> Language:
    """Return the language of most texts, English on a tie."""
    is_chinese = [language_of(text) == "zh" for text in texts]
    return "zh" if sum(is_chinese) * 2 > len(is_chinese) else "en"


def fill_phrase(
    phrases: Mapping[str, tuple[str, str]], language: Language, name: str, /, **values: object
) -> str:
    """Return a phrase of an (English, Chinese) table with its values filled in."""
    return phrases[name][language == "zh"].format(**values)


_ENGLISH_STOP_WORDS = """
a about after again all also am an and any are aren't as at be because been before being both but
by can can't could couldn't did didn't do does doesn't doing don't down each few for from further
had hadn't has hasn't have haven't having he he's her here hers herself him himself his how i i'd
i'll i'm i've if in into is isn't it it's its itself just let's me more most my myself no nor not
now of off on once only or other our ours ourselves out over own please same shall she she's should
shouldn't so some such than that that's the their theirs them themselves then there there's these
they they're they've this those through to too under until up upon us very was wasn't we we're
we've were weren't what what's when where which while who whom whose why will with won't would
wouldn't yes yet you you'd you'll you're you've your yours yourself yourselves
"""
_CHINESE_STOP_WORDS = """
我们 你们 您们 他们 她们 它们 咱们 自己 大家 别人 有人 这个 那个 哪个 这些 那些 哪些 这里 那里
哪里 这儿 那儿 哪儿 这样 那样 怎样 这么 那么 什么 怎么 多少 几个 一个 一些 一下 一点 一种 一样
一直 有点 有些 每个 各个 某个 因为 所以 因此 由于 但是 不过 可是 然而 而且 并且 或者 还是 如果
假如 要是 虽然 尽管 即使 只要 只有 除了 以及 为了 关于 对于 根据 按照 通过 随着 然后 于是 接着
同时 另外 此外 总之 例如 比如 就是 只是 还有 也是 都是 不是 是不是 有没有 没有 可以 可能 能够 应该
需要 必须 已经 曾经 正在 将要 刚刚 刚才 现在 目前 以前 以后 之前 之后 时候 的时候 的话 来说 非常
十分 特别 比较 更加 最好 大概 也许 其实 当然 确实 一定 不要 不会 不能 不用 不可 为什么 怎么样
怎么办 是否 如何 知道 觉得 认为 进行 使用 告诉 请问 谢谢 东西 事情 问题 上面 下面 里面 外面
"""

STOP_TERMS: frozenset[str] = frozenset(map(stem, _ENGLISH_STOP_WORDS.split()))
"""Stems of English stop words."""

STOP_CHARS: frozenset[str] = frozenset(
    "的了着过地得之所么们吗呢吧啊呀嘛啦哦喔哈嗯呃哎唉哇"
    "我你您他她它咱谁这那哪此其某每各"
    "是在有和与及或而且但又还也都就才只却则因于以从到对向给把被让由为跟同"
    "不没很太最更再已将会能可要想请个些几"
)
"""Chinese stop characters, which occur in nearly every text."""

STOP_WORDS: frozenset[str] = frozenset((_ENGLISH_STOP_WORDS + _CHINESE_STOP_WORDS).split())
"""English and Chinese stop words, not stemmed."""

FIRST_PERSON = re.compile(
    r"我|咱|俺|\b(?:i|i'm|i've|i'd|me|my|mine|myself|we|we've|our|ours|us)\b", re.IGNORECASE
)

_ENGLISH_QUESTION = re.compile(
    r"(?:what|who|whom|whose|when|where|which|why|how|did|does|do|is|are|was|were|has|have|had"
    r"|can|could|will|would|should|remind)\b",
    re.IGNORECASE,
)
_CHINESE_QUESTION = re.compile(
    "什么|哪|谁|多少|几(?!乎|何|率)|怎么|为何|如何|吗|呢(?!子|绒|料|喃)|来着|是不是|有没有|啥"
)


def is_question(text: str) -> bool:
    """Return True if a text asks for something, also without a question mark."""
    last = text.strip()
    return (
        last.endswith(("?", "？"))
        or _ENGLISH_QUESTION.match(last) is not None
        or _CHINESE_QUESTION.search(last) is not None
    )


TABLE = Path(__file__).with_name("word_costs.txt")
STEPS = 2  # costs are stored in steps of one half
UNKNOWN = 14.0  # the cost of a term that the table does not have


def term_cost(*term: str) -> float:
    """Return the cost of a word, of a character, or of a pair of characters."""
    costs = _load_costs()
    if len(term) == 2:
        pair = "".join(term)
        return costs.get(pair) or pair_cost(costs, pair)
    return costs.get(term[0], UNKNOWN)


def pair_cost(costs: Mapping[str, float], pair: str) -> float:
    """Return the cost of two characters that stand together by chance."""
    return min(sum(costs.get(character, UNKNOWN) for character in pair), 1.5 * UNKNOWN)


@cache
def _load_costs() -> dict[str, float]:
    costs: dict[str, float] = {}
    for line in TABLE.read_text("utf-8").splitlines():
        step, _, terms = line.partition("\t")
        costs.update(dict.fromkeys(terms.split(" "), int(step) / STEPS))
    return costs


def tag_words(text: str) -> list[tuple[str, str]]:
    """Return the words of a text, each with its class."""
    from rjieba import tag  # loading its dictionary takes a moment

    tagged: list[tuple[str, str]] = tag(text)
    return tagged


def word_classes(text: str) -> list[str]:
    """Return the class of each word of a text."""
    return [kind for _, kind in tag_words(text)]
