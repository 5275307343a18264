"""What a fact's sentence comes down to: its telling words, its numbers, whether it denies.

Memories are compared by this, because two people never word a thing the same way twice.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from memrecall.memory.extraction.facts import USER
from memrecall.text.keywords import extract_keywords
from memrecall.text.normalize import normalize
from memrecall.text.stopwords import STOP_CHARS, STOP_TERMS
from memrecall.text.tokens import BREAK, analyze, is_cjk, stem

_DENIES = re.compile(
    r"\b(?:not|no|never|none|cannot|nobody|nothing|without|hates?|dislikes?|despises?"
    r"|detests?|loathes?|avoids?|quit|stopped"
    r"|gave up|used to|former|formerly|ex|cancell?ed|called off|anymore)\b"
    r"|不|没|无|别|讨厌|厌恶|反感|受不了|戒|取消|以前|曾经|不再|忌",
    re.IGNORECASE,
)
# 不 and 没 are part of other words too.
_NOT_DENYING = re.compile(
    "差不多|不错|不过|不久|不同|不止|不仅|不但|不少|不断|没准|不锈钢|特别|分别|区别|级别"
    "|性别|个别|无锡|无线|无论|别墅|别克|别人"
)
# Verbs that go with every value of a slot and tell nothing of it; stopwords are left out anyway.
_LIGHT_EN = """
user live lives living lived move moved moving reside based stay work works working job like likes
love loves enjoy enjoys prefer prefers hate hates dislike dislikes favourite favorite fan really
always usually currently now anymore longer still also just recently already name named called call
go goes going went gone plan plans planning planned trip travel has have had get got gets getting
want wants would eat eats drink drinks own owns keep keeps quit stop stopped gave give
cancel cancelled canceled decide decided use uses used study studies studying learn learning
allergic allergy severely speak speaks years year old turn turned assistant make sure please
someday soon since stand bear avoid avoids take takes married single
"""
_LIGHT_ZH = (
    "用户住在搬到去来回喜欢爱讨厌受不了养有叫名字是一只条个了的不再没今年岁对现已经打算计"
    "划准备要会决定用学习戒掉取消助手希望以后请都最很非常特别些点们想吃喝刚还做当工作上班"
    "还在从前曾"
)
_LABELS = re.compile(r"\bUser(?:'s)?\b|用户")
_KEYWORDS = 6


@dataclass(frozen=True, slots=True)
class Gist:
    """The words that tell a fact from others of its kind; digits apart from letters."""

    terms: frozenset[str]
    numbers: frozenset[str]
    denies: bool
    plain: str


@lru_cache(maxsize=20_000)
def gist(text: str, subject: str = USER) -> Gist:
    """The gist of a sentence about somebody."""
    about = normalize(subject).casefold()
    plain = normalize(text).casefold()
    atoms = [atom for atom in analyze(plain.replace(about, " ")).atoms if atom != BREAK]
    numbers = frozenset(atom for atom in atoms if atom[0].isdigit())
    words = [atom for atom in atoms if not atom[0].isdigit()]
    telling = {word for word in words if not _is_light(word)}
    said = _NOT_DENYING.sub(" ", plain)
    return Gist(
        frozenset(telling or words),
        numbers,
        _DENIES.search(said) is not None,
        "".join(atoms),
    )


def _is_light(word: str) -> bool:
    if is_cjk(word):
        return word in STOP_CHARS or word in _LIGHT_CHARS
    return word in STOP_TERMS or word in _LIGHT_STEMS


_LIGHT_STEMS = frozenset(map(stem, _LIGHT_EN.split()))
_LIGHT_CHARS = frozenset(_LIGHT_ZH)


def telling_words(text: str, subject: str = USER) -> tuple[str, ...]:
    """The keywords of a fact, without the one it is about."""
    bare = _LABELS.sub(" ", text.replace(subject, " "))
    return tuple(one.word for one in extract_keywords(bare, _KEYWORDS))


def overlap(one: Gist, other: Gist) -> float:
    """How much two gists share: 0 nothing, 1 the very same words."""
    union = one.terms | other.terms
    return len(one.terms & other.terms) / len(union) if union else 0.0
