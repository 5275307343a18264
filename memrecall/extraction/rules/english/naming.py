"""Names, values and relations of English statements."""

import re
from collections.abc import Callable
from dataclasses import replace

from memrecall.extraction.rules.dating import Dates
from memrecall.extraction.rules.english.clauses import Clause
from memrecall.extraction.rules.english.grammar import Predicate
from memrecall.extraction.rules.english.kinship import (
    KIN_WORD,
    ONLY_ONE,
    PET_WORD,
    PETS,
    RELATION_OF,
)
from memrecall.extraction.rules.english.table import NAME, frame
from memrecall.extraction.rules.english.work import JOB
from memrecall.extraction.rules.frames import Frame, Told
from memrecall.extraction.rules.statements import Edge

_WITH = {
    "up": "{} with {}",
    "separated": "{} from {}",
    "divorced": "{} from {}",
    "engaged": "{} to {}",
    "married": "{} to {}",
    "dating": "{} {}",
}
_UNFOLDING: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\b(I|we) cannot get enough of "), r"\1 love "),
    (
        re.compile(rf"^[Tt]his is ({NAME}) (?:(?:from|here)\b[^,]*|speaking$)"),
        r"I am \1",
    ),
    (re.compile(r"^[Hh]ome is (?:now )?(?:in )?(?=an? |[A-Z])"), "I live in "),
    (re.compile(rf"^[Tt]he name is ({NAME})$"), r"I am \1"),
    (re.compile(r"^[Bb]orn (?=and |in [A-Z])"), "I was born "),
    (re.compile(r"\bborn and (?:raised|bred) (?=in )"), "born "),
    (
        re.compile(r"^(big|huge|massive) ([\w' ]{2,30}) fan(?: here)?$", re.IGNORECASE),
        r"I am a \1 \2 fan",
    ),
    (
        re.compile(
            r"\b(?:everyone|everybody|people|my friends|friends|they all|most people|my family) "
            r"calls? me (?=[A-Z])",
            re.IGNORECASE,
        ),
        "I go by ",
    ),
    (re.compile(rf"^I am ({NAME}), (?=\d{{1,3}}\b)"), r"I am \1, I am "),
    (
        re.compile(
            r"\b((?:I|he|she|\w+) )?(am|is) an? (\d{1,3})[- ]year[- ]old(?: (?!from|and"
            r"|in\b)(\w.*))?$"
        ),
        r"\1\2 \3 years old and I am a \4",
    ),
    (re.compile(rf"\bI am ({NAME}), (?:and )?(?:I am )?(an? .+)"), r"I am \1, I am \2"),
    (re.compile(rf"\bI am ({NAME}) from "), r"I am \1, I am from "),
    (re.compile(r"\bI am (an? [\w -]{3,40}?) from (?=[A-Z])"), r"I am \1, I am from "),
    (
        re.compile(r"\bI am (an? [\w -]{3,40}?) (?:based|living|who lives) in "),
        r"I am \1, I live in ",
    ),
    (
        re.compile(r"\b(work(?:s|ed)?|working) ((?:at|for) [^,]+?) as (an? [^,]+)"),
        r"\1 \2, I work as \3",
    ),
    (re.compile(r"\bwork as (an? [^,]+?) (at|for) (?=[A-Z])"), r"work as \1, I work \2 "),
    (re.compile(r"\bI am (\d{1,3}), (?:and )?(an? .+)"), r"I am \1, I am \2"),
    (re.compile(r"\bI am (\d{1,3}) and from "), r"I am \1, I am from "),
    (re.compile(rf"\bI am (\d{{1,3}}), (?=(?:[a-z]+ ){{0,2}}{JOB}\b)"), r"I am \1, I am a "),
    (re.compile(r"\b([Tt]he (?:user|User))\b"), "User"),
    (
        re.compile(
            rf"^({NAME}) and I (?:have )?(split up|broke up|separated|got divorced|got engaged"
            r"|got married|are (?:dating|engaged|divorced|married))(?=$|[ ,])"
        ),
        lambda match: f"I {_WITH[match[2].split()[-1]].format(match[2], match[1])}",
    ),
)
_ALSO_AM = re.compile(
    r"(?<=, )(?=(?:from|originally from|working|living|based|studying|married|currently "
    r"(?:working|living|studying)) )"
)
_TRAILING = re.compile(
    r"(?:[,;]? (?:now|currently|too|as well|though|these days|at the moment|right now"
    r"|already|again|so much"
    r"|a lot|very much|most of all|(?:ever )?since .+|for (?:\d|a |an |many |over |about "
    r"|almost |\w+ (?:year|month|week)).*"
    r"|any ?more|any longer|fluently|well|(?:over|than|rather than|instead of) .+|as an? "
    r".+|at home|on (?:my|the) .+|with (?:my|our) .+|and (?:I|we|it|that) .+|because .+"
    r"|but .+|when .+|where .+|which .+|who .+"
    r"|(?:last|next|this) (?:week|month|year|\w+day|spring|summer|fall|autumn|winter)"
    r"|yesterday|today|tomorrow|recently"
    r"|on (?:mon|tues|wednes|thurs|fri|satur|sun)\w*|in (?:19|20)\d\d|in (?:January"
    r"|February|March|April|May|June|July"
    r"|August|September|October|November|December).*|\d+ (?:years?|months?|weeks?|days?) "
    r"ago)|[.!?,;:…])+$",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:an?|the|my|our|some|to|playing|eating|drinking) ", re.IGNORECASE)
_CALLED = re.compile(rf"(?:named|called|,|:) (?P<names>{NAME}(?:(?:, |,? and |,? & ){NAME})*)")
_AND = re.compile(r", and |, | and | & ")
_ONE_OF_A_KIND = re.compile(rf"^.{{0,30}}?\b(?:called|named) (?P<name>{NAME})")
_LISTED = frozenset({"likes", "dislikes", "speaks", "avoids", "allergic_to", "plays", "learns"})
_KIN_IS = frame(
    rf"be (?:called |named )?(?P<value>{NAME})$", "relationship", "family", whom="speaker"
)
_COUNTED = re.compile(
    rf"\b(?:an?|one|two|three|four|five|my|our|\d) (?:[\w-]+ )*?(?P<noun>{KIN_WORD}|{PET_WORD})\b"
    rf"(?P<rest>.*?)(?=,? and an? |$)"
)


_NAME_OF_KIN = re.compile(rf"(?:[\w-]+ )*?(?P<who>{KIN_WORD}|{PET_WORD})'s name", re.IGNORECASE)
_SHORT = frozenset({"works_as", "plays", "uses", "prefers", "studies"})
_FURTHER = re.compile(r",.*$| (?:in|at|for|with|on|to|mostly) .*$")
_LONGEST_VALUE = 60
# "a small company": what has no name is nothing that a graph could find again.
_NAMELESS = re.compile(r"an? [^A-Z]+$")


# "Siemens in Munich" is a company and a city.
_ORGANISATION_IN = re.compile(
    r"(?P<firm>[A-Z0-9][\w&.'-]*(?: (?:[A-Z0-9&][\w&.'-]*|of|for|and|the))*?) in "
    r"(?P<place>[A-Z][\w.'-]*(?: [A-Z][\w.'-]*){0,3})"
)


def unfold(text: str) -> str:
    """Appositions as clauses: "I'm Anna, a nurse" as "I am Anna, I am a nurse"."""
    for pattern, full in _UNFOLDING:
        text = pattern.sub(full, text)
    if text.startswith("I am "):
        text = _ALSO_AM.sub("I am ", text)
    text = re.sub(r", not (?!to\b|only\b|just\b|really\b|that\b|because\b)[^,]{1,30}$", "", text)
    return text.removesuffix(" and I am a ")


def tidy(text: str) -> str:
    """The text as one sentence."""
    flat = re.sub(r"\s+", " ", text).strip(" ,;:-–")
    flat = re.sub(r" ([,.;:!?])", r"\1", flat)
    return (flat[:1].upper() + flat[1:] if flat[:1].isascii() else flat).rstrip(".!?…") + "."


def trim_value(value: str) -> str:
    """The value without what only goes along with it: "Berlin" of "Berlin now with my wife"."""
    return _ARTICLE.sub("", _TRAILING.sub("", value.strip())).strip(" ,.")


def introduced(clause: Clause, predicate: Predicate) -> Told | None:
    """ "My sister is Anna": a fact about the speaker."""
    match = _KIN_IS.pattern.match(predicate.core)
    if match is None or predicate.tense != "present":
        return None
    noun = clause.noun.split()[-1]
    field = "pet" if noun in PETS else noun if clause.noun in ONLY_ONE else _KIN_IS.field
    return Told(replace(_KIN_IS, field=field), match["value"], predicate.negated)


def dates_of(frame: Frame, predicate: Predicate) -> Dates:
    """Which times of its facts become dates."""
    if frame.field and frame.field.endswith(("birthday", "anniversary")):
        return "relative"
    if predicate.tense == "present" and frame.memory_type in ("habit", "user_preference"):
        return "relative"
    if predicate.tense == "present" and frame.memory_type == "user_profile":
        return "steady"
    return "all"


def named_kin(clause: Clause, told: Told) -> tuple[str, str] | None:
    """ "My husband's name is Carlos": the word for him, and his name."""
    match = _NAME_OF_KIN.fullmatch(clause.noun) if clause.kind == "thing" else None
    name = re.match(NAME, told.value)
    return (match["who"].lower(), name.group()) if match and name else None


def edges_of(clause: Clause, told: Told) -> tuple[Edge, ...]:
    """The relations that a statement tells, each from its subject."""
    if kin := named_kin(clause, told):
        return (_kin_edge(*kin),)
    edges: list[Edge] = []
    source = None if clause.kind in ("self", "thing") else clause.name or None
    noun = clause.noun.split()[-1] if clause.noun else ""
    if clause.kind == "kin" and clause.name:
        edges.append(_kin_edge(noun, clause.name))
    if clause.kind == "kin" and told.frame.whom == "speaker":
        edges.append(_kin_edge(noun, told.value))
    elif told.frame.field in ("family", "pet") or told.frame.relation:
        edges += _value_edges(told, source, clause)
    return tuple(edges)


def _value_edges(told: Told, source: str | None, clause: Clause) -> list[Edge]:
    if clause.kind in ("kin", "named") and source is None:
        return []
    if told.frame.field in ("family", "pet"):
        return [
            _kin_edge(counted["noun"], name, source)
            for counted in _COUNTED.finditer(told.value)
            if (called := _CALLED.search(counted["rest"]))
            for name in _AND.split(called["names"])
        ]
    relation, value = told.frame.relation, trim_value(told.value)
    if not value or relation is None or len(value) > _LONGEST_VALUE:
        return []
    if relation in _SHORT:
        value = _FURTHER.sub("", value)
    if relation == "likes" and told.negated:
        relation = "dislikes"
    if relation == "works_at" and (called := _ONE_OF_A_KIND.match(value)):
        value = called["name"]
    elif relation == "works_at" and _NAMELESS.match(told.value):
        return []
    ended = told.ended or (told.negated and relation not in ("dislikes", "avoids"))
    if told.frame.kind == "organization" and (within := _ORGANISATION_IN.fullmatch(value)):
        place = Edge("located_in", within["place"], "place", within["firm"], "organization")
        return [Edge(relation, within["firm"], told.frame.kind, source, ended=ended), place]
    values = _AND.split(value) if relation in _LISTED else [value]
    return [
        Edge(relation, _ARTICLE.sub("", one), told.frame.kind, source, ended=ended)
        for one in values
        if one
    ]


def _kin_edge(noun: str, name: str, source: str | None = None) -> Edge:
    if noun in PETS:
        return Edge("owns", name, "animal", source)
    return Edge(RELATION_OF.get(noun, "knows"), name, "person", source)
