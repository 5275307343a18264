"""What a Chinese predicate tells: its core is held against the tables of frames."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from memrecall.extraction.rules.chinese.clauses import Clause
from memrecall.extraction.rules.chinese.names import is_name, is_place, says_more_than_when
from memrecall.extraction.rules.chinese.naming import SELF_NAME
from memrecall.extraction.rules.chinese.plans import (
    CANCELLED,
    DECIDED,
    EVENTS,
    HABIT,
    PAST_WORDS,
    PLANS,
)
from memrecall.extraction.rules.chinese.profile import AGES, PROFILE
from memrecall.extraction.rules.chinese.table import frame
from memrecall.extraction.rules.chinese.tastes import TASTES
from memrecall.extraction.rules.dating import Moment, has_time, is_ahead, times_in
from memrecall.extraction.rules.frames import Frame, Tense, Told
from memrecall.text.times import find_times

_ADVERB = re.compile(
    "(?:家里?(?=有|养)|也|都|还|就|真的|真|其实|一直以来|一直|已经|现在|目前|如今|特别"
    "|非常|很|比较|超级|超|挺|蛮|有点儿?|有些|刚刚|刚|又|才|总是|经常|常常|平时|平常|一般"
    "|通常"
    "|偶尔|从来|从小就?|以前|曾经|之前|本来|原来|最近|近来|后来|终于|确实|的确|本身|最(?![后终近初])|最后|最终|早就|早已|固定"
    "|主要|基本上?|大部分时间|周末|早上|晚上|下班后|睡前|同时|明明|正|周末都|全家|一家人?"
    "|每天早上|每天晚上|每天|每周末?|每个?月|每年|每晚|每次|天天|习惯|好|太|再|去年|今年"
    "|明年|差不多|马上|突然|不小心|一般都|老(?![家婆公板师爸妈大二人])|特|巨|贼|可|蛮)"
)
_NO_HABIT = re.compile(
    "比如|除了|可以|每?次?[0-9一二三两几]+(?:分钟|次|个|-)|左右|挺|一步|觉得|感觉|想|不想"
    "|怀念|担心|总不能|以为|知道|认为|[^，]*的(?:那|这)[些个种]|好$|可以|能不能"
)
_NOT_TELLING = re.compile(
    "感觉|觉得|想起|知道|发现|看来|聊|听|说|以为|担心|希望这|看到|看了[一下些]?"
)
_ABOUT_TO = re.compile("就要|快要|马上|要|将|打算|准备|计划|会|得|想")
_NOT_OVER = re.compile("过(?:来|去|年|敏|得|程|于|分|期|节|生日)|不行了")
_DAY = re.compile("(?:周|星期|礼拜)[一二三四五六日天末]")
_HABIT_FRAME = frame("(?P<value>.+)", "habit")
PARTICLES = re.compile(
    "(?:啊|呀|哦|啦|嘛|哈|呢|吧|喔|咯|哟|噢|滴|呐|哒|的说|来着|而已|[~～!！.…、]|\\s)+$"
)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate, and its core without the times and adverbs before it."""

    said: str
    core: str
    tense: Tense
    habit: bool


def read_predicate(clause: Clause, moment: Moment) -> Predicate:
    """The predicate of a clause: what leads up to its core, its tense, whether it is a habit."""
    said = PARTICLES.sub("", clause.lead + clause.said)
    core = said
    while core:
        spans = find_times(core, moment.now, moment.zone)
        if spans and spans[0].position == 0 and len(spans[0].text) < len(core):
            core = core[len(spans[0].text) :].lstrip("，, ")
            continue
        adverb = _ADVERB.match(core)
        if adverb is None or adverb.end() == len(core):
            break
        core = core[adverb.end() :].lstrip("，, ")
    before = said[: len(said) - len(core)]
    past = bool(PAST_WORDS.search(before)) and not re.search("不|没", core[:2])
    happened = _happened(said, moment) and not _ABOUT_TO.match(core)
    tense: Tense = "past" if past or happened else "present"
    habit = HABIT.match(before + core[:8]) is not None and not _NO_HABIT.match(core)
    return Predicate(said, core, tense, habit)


# 今天不喝了 tells nothing of what somebody likes.
_FOR_ONCE = re.compile("今天|今晚|今早|今儿|明天|明晚|这次|这顿|这周|先不|暂时|待会|等会")
_TASTE = frozenset({"likes", "avoids", "hobby"})
_STEPS = frozenset({"home", "employer", "school", "marital_status", "job", "family", "age"})
_AGED = re.compile("今年.{0,4}$")
_ORIGIN = frame("(?P<value>[^，]{2,6}?)人$", "user_profile", "origin", "from", "place")


def _bare(predicate: Predicate, clause: Clause) -> Told | None:
    """What stands alone in a list about oneself: 今年32, 大阪人."""
    aged = re.fullmatch("(?:1[01][0-9]|[0-9]{2}|[一二三四五六七八九十]{2,3})了?", predicate.core)
    if aged and _AGED.search(predicate.said[: -len(predicate.core)]):
        return Told(AGES[0], predicate.core.rstrip("了"), negated=False)
    match = _ORIGIN.pattern.fullmatch(predicate.core) if clause.elided else None
    return (
        Told(_ORIGIN, match["value"], negated=False) if match and is_place(match["value"]) else None
    )


def _happened(said: str, moment: Moment) -> bool:
    spans = times_in(said, moment, "present")
    said = _NOT_OVER.sub("", said)
    # A bare weekday beside 了 is the last one.
    ahead = any(
        span.start and span.start > moment.now and not _DAY.match(span.text) for span in spans
    )
    return bool(re.search("[了过]", said)) and not ahead


def told_by(predicate: Predicate, clause: Clause, moment: Moment) -> Told | None:
    """What a predicate of a person tells, if it is something that lasts."""
    said, core = predicate.said, predicate.core
    over = bool(PAST_WORDS.search(said[: len(said) - len(core)])) and not core.startswith(
        ("不", "没")
    )
    told = _first((*PROFILE, *TASTES), predicate, moment) or _bare(predicate, clause)
    if told is not None and told.negated and told.frame.field in _TASTE and _FOR_ONCE.search(said):
        return None
    if told is not None and told.frame.field in _STEPS and is_ahead(said, moment, "present"):
        told = Told(replace(_HABIT_FRAME, memory_type="plan"), core, negated=False)
    if told is None and clause.kind == "self":
        named = _first(SELF_NAME, predicate, moment)
        told = named if named and is_name(named.value) else None
    if over and told is not None:
        frame = replace(told.frame, field=None, memory_type="event")
        return replace(told, frame=frame, negated=True, ended=True)
    if (
        predicate.habit
        and says_more_than_when(core)
        and (told is None or told.frame.field in ("uses", "learning", "hobby"))
    ):
        return Told(_HABIT_FRAME, core, negated=bool(re.match("不|没|从不", core)))
    if told is not None:
        return told
    if told := _first(CANCELLED, predicate, moment):
        return replace(told, negated=True)
    told = _first(DECIDED, predicate, moment)
    if told is None and predicate.tense != "past":
        told = _plan(predicate, moment)
    if told is None and not _NOT_TELLING.match(core):
        told = _first(EVENTS, predicate, moment)
    return told


def _plan(predicate: Predicate, moment: Moment) -> Told | None:
    told = _first(PLANS, predicate, moment)
    if told is None or not told.frame.timed or is_ahead(predicate.said, moment):
        return told
    return None


def _first(frames: Iterable[Frame], predicate: Predicate, moment: Moment) -> Told | None:
    for one in frames:
        match = one.pattern.match(predicate.core)
        if match is None or (one.timed and not has_time(predicate.said, moment)):
            continue
        if one.timed and not _has_content(match["value"], moment):
            continue
        denied = match.groupdict().get("neg") or ""
        if (
            denied
            and (one.negated or one.memory_type in ("plan", "event", "decision"))
            and not one.ended
        ):
            continue
        ended = one.ended or (bool(denied) and _ends(denied, predicate.core))
        value = match["value"] or match.groupdict().get("other") or ""
        return Told(one, value.strip(), bool(denied) or one.negated or one.ended, ended)
    return None


def _has_content(value: str, moment: Moment) -> bool:
    """Whether a plan or event says more than when it is."""
    for span in times_in(value, moment):
        value = value.replace(span.text, "")
    return len(re.sub("[的了在到约订有个\\s]", "", value)) > 0


def _ends(denied: str, core: str) -> bool:
    return denied in ("再也不", "不再", "已经不") or core.endswith("了")
