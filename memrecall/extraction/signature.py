"""Signatures of facts: their content words, their numbers, and what they deny or end.

Memories are compared by signature, because the same fact is rarely worded the same way twice.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from memrecall.extraction.protocol import USER
from memrecall.text.keywords import extract_keywords
from memrecall.text.language import STOP_CHARS, STOP_TERMS
from memrecall.text.normalize import normalize
from memrecall.text.tokens import BREAK, analyze, is_cjk, stem

_DENIES = re.compile(
    r"\b(?:not|no|never|none|cannot|nobody|nothing|without|hates?|dislikes?|despises?"
    r"|detests?|loathes?|avoids?|quit|stopped"
    r"|gave up|used to|former|formerly|ex|cancell?ed|called off|anymore|decided against|dropped"
    r"|sold|gave away|got rid of|cut out|gone off|went off|goes off|fed up with)\b"
    r"|\bleft (?!for|the|to|a|an|their|home|early|late|it)[\w&'-]+(?: [\w&'-]+)?\.?$"
    r"|放弃|不|没|无|别|讨厌|厌恶|反感|受不了|戒|取消|以前|曾经|不再|忌|卖掉|卖了|送人|送走|送给|扔了"
    r"|扔掉|弄丢|丢了",
    re.IGNORECASE,
)
# Words of a change, as opposed to a more detailed statement of the same fact.
_CHANGES = re.compile(
    r"\b(?:no longer|any ?more|any longer|quit|stopped|gave up|used to|cancell?ed|called off|now"
    r"|decided against|dropped|sold|gave away|got rid of|switched|changed|instead)\b"
    r"|不再|再也不|戒|取消|以前|曾经|了。?$|改|换|现在|卖|送人|送走|扔|丢",
    re.IGNORECASE,
)
# Each group is what something else has replaced.
_REPLACED = re.compile(
    r"\b(?:switch|change|move|migrate|convert)\w* (?:over )?from (?P<a>.+?) (?:over )?to "
    r"|\bleft (?P<b>[A-Z0-9][\w&.'-]*(?: [A-Z0-9][\w&.'-]*){0,3}) (?:for|to join) (?=[A-Z0-9])"
    r"|\b(?:replaced|swapped|traded in|traded|ditched) (?:the |their )?(?P<c>.+?) (?:with|for|by) "
    r"|\binstead of (?P<d>.+)"
    r"|从(?P<e>[^，]{1,12}?)(?:换成|换到|改用|改喝|改吃|转到|切换到|迁移到|跳槽)"
    r"|[把将](?P<f>[^，]{1,12}?)(?:换成|改成|换为)"
    r"|(?:代替|取代|替代)了?(?P<g>[^，。]{1,12})"
)
_PREFERRED = re.compile(
    r"(?P<preferred>.*\bprefers? (?!to\b).+?) (?:to|over|rather than|instead of) (?P<less>.+)"
    r"|(?P<zh>.*(?:比起|相比))(?P<zhless>[^，]{1,10}?)(?=更)(?P<zhpreferred>.+)",
    re.IGNORECASE,
)
_WEEKDAY = re.compile(
    r"\b(?P<day>mon|tue|wed|thu|fri|sat|sun)(?:s|nes|rs|ur)?days?\b"
    r"|(?:周|星期|礼拜)(?P<zh>[一二三四五六日天])",
    re.IGNORECASE,
)
_DAYS = {"mon": "1", "tue": "2", "wed": "3", "thu": "4", "fri": "5", "sat": "6", "sun": "7"}
_DAYS |= dict(zip("一二三四五六日天", "12345677", strict=True))
_COUNT = re.compile(
    r"\b(?P<word>two|three|four|five|six|seven|eight|nine|ten)\b"
    r"|(?P<zh>[两二三四五六七八九十])(?=[个只条位名台辆套匹头])",
    re.IGNORECASE,
)
_COUNTS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_COUNTS |= {"nine": 9, "ten": 10}
_COUNTS |= dict(zip("两二三四五六七八九十", (2, *range(2, 11)), strict=True))
# Words in which 不, 没 and 别 do not negate.
_NOT_DENYING = re.compile(
    "差不多|不错|不过(?!敏)|不久|不同|不止|不仅|不但|不少|不断|没准|不锈钢|特别|分别|区别|级别"
    "|性别|个别|无锡|无线|无论|别墅|别克|别人"
)
# Verbs that go with every value of a slot and do not distinguish facts; stopwords come on top.
_LIGHT_EN = """
user live lives living lived move moved moving reside based stay work works working job like likes
love loves enjoy enjoys prefer prefers hate hates dislike dislikes favourite favorite fan really
always usually currently now anymore longer still also just recently already name named called call
go goes going went gone plan plans planning planned trip travel has have had get got gets getting
want wants would eat eats drink drinks own owns keep keeps quit stop stopped gave give
cancel cancelled canceled decide decided use uses used study studies studying learn learning
allergic allergy severely speak speaks years year old turn turned assistant make sure please
someday soon since stand bear avoid avoids take takes again every instead
leave left switch switched change changed sold sell gave away rid drop dropped against
play plays playing played
"""
_LIGHT_ZH = (
    "用户住在搬到去来回喜欢爱讨厌受不了养有叫名字是一只条个了的不再没今年岁对现已经打算计"
    "划准备要会决定用学习戒掉取消助手希望以后请都最很非常特别些点们想吃喝刚还做当工作上班"
    "还在从前曾改换卖送丢扔把打玩看听"
)
_LABELS = re.compile(r"\bUser(?:'s)?\b|用户")
_KEYWORDS = 6


@dataclass(frozen=True, slots=True)
class FactSignature:
    """The words that distinguish a fact from others of its kind; numbers are kept apart.

    `is_change` says that it was different before, `replaced` are the words of what it was, and
    `days` the weekdays on which it holds.
    """

    terms: frozenset[str]
    numbers: frozenset[str]
    is_negated: bool
    plain: str
    is_change: bool = False
    replaced: frozenset[str] = frozenset()
    days: frozenset[str] = frozenset()


@lru_cache(maxsize=20_000)
def fact_signature(text: str, subject: str = USER) -> FactSignature:
    """Return the signature of a sentence about a subject."""
    name = normalize(subject).casefold()
    plain = normalize(text).casefold()
    atoms = _atoms(plain.replace(name, " "))
    statement, old = _split_replaced(normalize(text))
    bare = _COUNT.sub(" ", _WEEKDAY.sub(" ", statement.casefold().replace(name, " ")))
    words = _atoms(bare)
    counts = {str(_COUNTS[match["word"] or match["zh"]]) for match in _COUNT.finditer(plain)}
    unambiguous = _NOT_DENYING.sub(" ", plain)
    return FactSignature(
        _content(words) or _content(atoms) or frozenset(atoms) - {*filter(str.isdigit, atoms)},
        frozenset(atom for atom in words if atom[0].isdigit()) | counts,
        _DENIES.search(unambiguous) is not None,
        "".join(atoms),
        _CHANGES.search(unambiguous) is not None,
        _content(_atoms(old.casefold())),
        frozenset(_DAYS[match["day"] or match["zh"]] for match in _WEEKDAY.finditer(plain)),
    )


def _atoms(text: str) -> list[str]:
    return [atom for atom in analyze(text).atoms if atom != BREAK]


def _content(atoms: list[str]) -> frozenset[str]:
    return frozenset(atom for atom in atoms if not atom[0].isdigit() and not _is_light(atom))


def _split_replaced(text: str) -> tuple[str, str]:
    """Split a sentence into what it states and what this replaces."""
    if match := _REPLACED.search(text):
        old = next(group for group in match.groups() if group)
        return text.replace(old, " ", 1), old
    if match := _PREFERRED.fullmatch(text):
        if match["less"]:
            return match["preferred"], match["less"]
        return match["zh"] + match["zhpreferred"], match["zhless"]
    return text, ""


def _is_light(word: str) -> bool:
    if is_cjk(word):
        return word in STOP_CHARS or word in _LIGHT_CHARS
    return word in STOP_TERMS or word in _LIGHT_STEMS


_LIGHT_STEMS = frozenset(map(stem, _LIGHT_EN.split()))
_LIGHT_CHARS = frozenset(_LIGHT_ZH)


def fact_keywords(text: str, subject: str = USER) -> tuple[str, ...]:
    """Return the keywords of a fact without its subject."""
    bare = _LABELS.sub(" ", text.replace(subject, " "))
    return tuple(keyword.word for keyword in extract_keywords(bare, _KEYWORDS))


def overlap(first: FactSignature, second: FactSignature) -> float:
    """Return the share of content words in common, from 0 to 1."""
    union = first.terms | second.terms
    return len(first.terms & second.terms) / len(union) if union else 0.0
