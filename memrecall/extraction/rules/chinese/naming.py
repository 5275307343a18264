"""Names, values and relations of Chinese statements."""

import re
from dataclasses import replace
from datetime import UTC, datetime

from memrecall.extraction.rules.chinese.clauses import Clause
from memrecall.extraction.rules.chinese.kinship import (
    KIN_WORD,
    ONLY_ONE,
    PET_WORD,
    PETS,
    RELATION_OF,
)
from memrecall.extraction.rules.chinese.names import is_name, is_place
from memrecall.extraction.rules.chinese.table import frame
from memrecall.extraction.rules.dating import Dates
from memrecall.extraction.rules.frames import Frame, Told
from memrecall.extraction.rules.statements import Edge, Statement
from memrecall.text.times import find_times

# Only where a time stands matters here, not which one it is.
_ANY_TIME = datetime(2026, 6, 17, 12, tzinfo=UTC)

_NAMED = "[\u4e00-\u9fff]{2,4}|[A-Z][A-Za-z]+(?: [A-Z][A-Za-z]+)?"


SELF_NAME = (
    frame(
        "是(?:[^，]{2,8}的)?(?P<value>[\u4e00-\u9fff]{2,4}|[A-Z][A-Za-z]+)$",
        "user_profile",
        "name",
        whom="speaker",
    ),
)
_KIN_IS = frame(
    f"(?:名字)?(?:叫|名叫|是|叫做)(?P<value>{_NAMED})$", "relationship", "family", whom="speaker"
)
_TRAILING = re.compile(
    "(?:了|的|呢|啊|吧|呀|哦|这边|那边|这里|附近|已经|现在|目前|[，,。！!~]"
    "|快?[一二两三四五六七八九十\\d]+(?:多)?(?:个?[年月周天]|个星期)了?"
    "|(?:做|当|担任|写)[^，]{1,10}$|(?:因为|但|不过|而且|所以).*$)+$"
)
_LEADING = re.compile("^(?:一只|一条|一个|一位|两只|一些|了|着|过)")
_DOING = re.compile("^(?:吃|喝|看|玩|听)(?!力)")
_CALLED = re.compile("(?:名字)?(?:叫|名叫|叫做)(?P<name>[\u4e00-\u9fffA-Za-z]{1,8}?)(?:的|$)")
_AND = re.compile("、|和|以及|还有|跟")
_LISTED = frozenset({"likes", "dislikes", "speaks", "avoids", "allergic_to", "plays"})
_FANS = re.compile("(?:的)?(?:忠实)?(?:球迷|粉丝|铁粉|爱好者)$")
_LONGEST_VALUE = 24
_KIND = re.compile(f"{KIN_WORD}|{PET_WORD}")


def tidy(text: str) -> str:
    """The text as one sentence."""
    flat = re.sub(r"\s+", " ", text).strip(" ，,、;；:：")
    return flat.rstrip("。.！!？?…~～") + "。"


def turn_persons(text: str, speaker: str, *, own: bool) -> str:
    """First persons as third: of the speaker himself 自己的, of somebody else 用户的."""
    if own:
        text = re.sub("(?:我们|咱们|我|咱|俺)的", "自己的", text)
        text = re.sub(f"(?:我们|咱们|我|咱|俺)(?=(?:家|{KIN_WORD}))", "", text)
    else:
        text = re.sub("(?:我们|咱们|我|咱|俺)的", f"{speaker}的", text)
        text = re.sub(f"(?:我们|咱们|我|咱|俺)(?=(?:家|{KIN_WORD}))", f"{speaker}的", text)
    return re.sub("我们|咱们|我|咱|俺|本人", "自己" if own else speaker, text)


def introduced(clause: Clause, core: str) -> Told | None:
    """我妹妹叫小雨, 我的导师是张教授: facts about the speaker."""
    match = _KIN_IS.pattern.match(core)
    if match is None:
        return None
    if "叫" not in core[:3] and not is_name(match["value"]):
        return None
    noun = clause.noun.removeprefix("一只")
    field = "pet" if noun in PETS else noun if noun in ONLY_ONE else _KIN_IS.field
    return Told(replace(_KIN_IS, field=field), match["value"], negated=False)


# 杭州的阿里巴巴 is a city and a company.
_ORGANISATION_IN = re.compile(
    "(?P<place>[^的]{2,6})的(?P<firm>(?!(?:大学|公司|医院|学校|银行|工厂|企业|单位|酒店|餐厅)$)[^的]{2,20})"
)
# 一家, 一家小公司, 那个地方: what has no name is nothing that a graph could find again.
_NAMELESS = re.compile(
    "(?:[一某这那几两]|好几)[家个所间座](?![^，]*叫)"
    "(?:[^，]{0,12}(?:公司|企业|单位|学校|大学|医院|工厂|店|地方|城市|小镇|村子?))?"
)
_NAMING = re.compile(
    "(?:名字|取名|起名|给它取名|给他取名)?(?:就)?(?:叫做|名叫|叫作"
    "|叫)(?P<name>[\u4e00-\u9fffA-Za-z]{1,8})$"
    "|(?:另|还有)?一[只条个](?:叫|是)(?P<one>[\u4e00-\u9fffA-Za-z]{1,8})$"
)


def naming_of(piece: str, last: Statement | None) -> Clause | None:
    """叫周悦 behind 我有个姐姐: the name of whom the statement before told of."""
    match = _NAMING.match(piece)
    if match is None or last is None or last.field not in ("family", "pet", *ONLY_ONE):
        return None
    nouns = _KIND.findall(last.value)
    if not nouns:
        return None
    if match["one"]:
        return Clause("kin", f"叫{match['one']}", noun=f"一只{nouns[-1]}")
    return Clause("kin", f"叫{match['name']}", noun=nouns[-1])


def dates_of(frame: Frame) -> Dates:
    """Which times of its facts become dates."""
    if frame.field == "age":
        return "none"
    if frame.field in ("birthday", "anniversary"):
        return "relative"
    if frame.memory_type == "user_profile":
        return "steady"
    if frame.memory_type in ("habit", "user_preference"):
        return "relative"
    return "all"


def trim_value(value: str) -> str:
    """The value without what only goes along with it: 成都 of 成都三年了."""
    for span in reversed(find_times(value, _ANY_TIME)):
        if span.position == 0 or span.position + len(span.text) == len(value):
            value = value.replace(span.text, "")
    return _LEADING.sub("", _TRAILING.sub("", value.strip())).strip(" ，,。、的")


def edges_of(clause: Clause, told: Told, core: str) -> tuple[Edge, ...]:
    """The relations that a statement tells, each from its subject."""
    source = None if clause.kind in ("self", "thing") else clause.name or None
    edges: list[Edge] = []
    noun = _KIND.search(clause.noun)
    if clause.kind == "kin" and clause.name and noun:
        edges.append(_kin_edge(noun.group(), clause.name))
    if told.frame.whom == "speaker" and clause.kind == "kin" and noun:
        edges.append(_kin_edge(noun.group(), told.value))
    elif clause.kind == "kin" and source is None:
        return tuple(edges)
    else:
        edges += _value_edges(told, source, core)
    return tuple(edges)


def _value_edges(told: Told, source: str | None, core: str) -> list[Edge]:
    called = _CALLED.search(told.value)
    noun = _KIND.search(told.value)
    if told.frame.field in ("family", "pet"):
        return [_kin_edge(noun.group(), called["name"], source)] if called and noun else []
    relation, value = told.frame.relation, trim_value(told.value)
    if relation is None or not value or len(value) > _LONGEST_VALUE:
        return []
    if relation == "likes" and told.negated:
        relation = "dislikes"
    ended = told.ended or (told.negated and relation not in ("dislikes", "avoids"))
    if relation == "from":
        value = value.removesuffix("人")
    if told.frame.kind == "organization" and called:
        value = called["name"]
    value = _FANS.sub("", value)
    if told.frame.kind == "organization" and (within := _ORGANISATION_IN.fullmatch(value)):
        place, firm = within["place"], within["firm"]
        if is_place(place):
            edges = [
                Edge(relation, firm, told.frame.kind, source, ended=ended),
                Edge("located_in", place, "place", firm, "organization"),
            ]
            return edges + _second_edges(told, source, core)
    values = _AND.split(_DOING.sub("", value)) if relation in _LISTED else [value]
    named = (one for one in values if one and not _NAMELESS.fullmatch(one))
    edges = [Edge(relation, one, told.frame.kind, source, ended=ended) for one in named]
    return edges + _second_edges(told, source, core)


def _second_edges(told: Told, source: str | None, core: str) -> list[Edge]:
    """What is studied at a school, and as what somebody works at a company."""
    match = told.frame.pattern.match(core)
    groups = match.groupdict() if match else {}
    if subject := trim_value(groups.get("subject") or ""):
        relation = "studies" if told.frame.field == "school" else "teaches"
        return [Edge(relation, subject.removesuffix("专业"), "field", source)]
    if role := trim_value(groups.get("role") or ""):
        return [Edge("works_as", role, "field", source)]
    return []


def _kin_edge(noun: str, name: str, source: str | None = None) -> Edge:
    if noun in PETS:
        return Edge("owns", name, "animal", source)
    return Edge(RELATION_OF.get(noun, "knows"), name, "person", source)
