"""Reads Chinese sentences: what they tell, of whom, in the third person."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from memrecall.memory.extraction.rules.chinese.clauses import (
    Clause,
    read_clause,
    read_thing,
    strip_markers,
)
from memrecall.memory.extraction.rules.chinese.moods import asserted
from memrecall.memory.extraction.rules.chinese.names import (
    begins_with_noun,
    is_bare_noun,
    is_name,
    is_place,
    says_more_than_when,
)
from memrecall.memory.extraction.rules.chinese.naming import (
    SELF_NAME,
    dates_of,
    edges_of,
    introduced,
    naming_of,
    tidy,
    turn_persons,
)
from memrecall.memory.extraction.rules.chinese.orders import (
    phrase_order,
    read_choice,
    read_forget,
    read_order,
    read_remember,
)
from memrecall.memory.extraction.rules.chinese.plans import (
    CANCELLED,
    DECIDED,
    EVENTS,
    HABIT,
    PAST_WORDS,
    PLANS,
)
from memrecall.memory.extraction.rules.chinese.profile import AGES, PROFILE
from memrecall.memory.extraction.rules.chinese.table import frame
from memrecall.memory.extraction.rules.chinese.tastes import TASTES
from memrecall.memory.extraction.rules.chinese.things import SLOT_OF, told_of_thing
from memrecall.memory.extraction.rules.dating import Moment, has_time, is_ahead, times_in
from memrecall.memory.extraction.rules.frames import Frame, Tense, Told
from memrecall.memory.extraction.rules.speech import Sentence, is_balanced
from memrecall.memory.extraction.rules.statements import Person, Scene, Statement
from memrecall.text.normalize import replace_characters
from memrecall.text.times import find_times

_ADVERB = re.compile(
    "(?:家里?(?=有|养)|也|都|还|就|真的|真|其实|一直以来|一直|已经|现在|目前|如今|特别"
    "|非常|很|比较|超级|超|挺|蛮|有点儿?|有些|刚刚|刚|又|才|总是|经常|常常|平时|平常|一般"
    "|通常"
    "|偶尔|从来|从小就?|以前|曾经|之前|本来|原来|最近|近来|后来|终于|确实|的确|本身|最"
    "|主要|基本上?|大部分时间|周末|早上|晚上|下班后|睡前|同时|明明|正|周末都|全家|一家人?"
    "|每天早上|每天晚上|每天|每周末?|每个?月|每年|每晚|每次|天天|习惯|好|太|再|去年|今年"
    "|明年|差不多|马上|突然|不小心|一般都|老|特|巨|贼|可|蛮)"
)
# What is said to somebody stays between the two.
_YOU = re.compile("你|您")
_NO_HABIT = re.compile(
    "比如|除了|可以|每?次?[0-9一二三两几]+(?:分钟|次|个|-)|左右|挺|一步|觉得|感觉|想|不想"
    "|怀念|担心|总不能|以为|知道|认为|[^，]*的(?:那|这)[些个种]|好$|可以|能不能"
)
_NOT_TELLING = re.compile(
    "感觉|觉得|想起|知道|发现|看来|聊|听|说|以为|担心|希望这|看到|看了[一下些]?"
)
_NEEDS_SUBJECT = frozenset({"event", "plan", "habit", "decision"})
_ABOUT_TO = re.compile("就要|快要|马上|要|将|打算|准备|计划|会|得|想")
_NOT_OVER = re.compile("过(?:来|去|年|敏|得|程|于|分|期|节|生日)|不行了")
_DAY = re.compile("(?:周|星期|礼拜)[一二三四五六日天末]")
_HABIT_FRAME = frame("(?P<value>.+)", "habit")
_PARTICLES = re.compile(
    "(?:啊|呀|哦|啦|嘛|哈|呢|吧|喔|咯|哟|噢|滴|呐|哒|的说|来着|而已|[~～!！.…、]|\\s)+$"
)


@dataclass(frozen=True, slots=True)
class _Predicate:
    """A predicate, and its core without the times and adverbs before it."""

    said: str
    core: str
    tense: Tense
    habit: bool


def read_chinese(sentence: Sentence, scene: Scene, moment: Moment) -> Iterator[Statement]:
    """What a sentence tells, clause by clause."""
    folded = replace_characters(sentence.text)
    restored = {ord(new): old for old, new in zip(sentence.text, folded, strict=True) if old != new}
    for statement in _read(strip_markers(folded.strip()), sentence, scene, moment):
        # Rules know one script and one width; a fact keeps those of its speaker.
        yield replace(statement, text=statement.text.translate(restored))


def _read(text: str, sentence: Sentence, scene: Scene, moment: Moment) -> Iterator[Statement]:
    me = scene.me("zh")
    if forgotten := read_forget(text):
        yield from _retractions(forgotten, scene, moment)
        return
    if order := read_order(text):
        yield _instruction(*order, me)
        return
    if choice := read_choice(text):
        yield Statement(
            tidy(f"{me.label}决定{choice}"), me.key, "zh", "decision", value=choice, tense="future"
        )
        return
    remembered = read_remember(text)
    found = list(_tell(remembered or text, scene, moment, asks=sentence.asks))
    yield from found
    if remembered and not found and not sentence.asks:
        written = tidy(turn_persons(remembered, me.label, own=False))
        yield Statement(written, me.key, "zh", "general", value=remembered)


def _tell(text: str, scene: Scene, moment: Moment, *, asks: bool) -> Iterator[Statement]:
    before: Clause | None = None
    last: Statement | None = None
    topic = False
    people = {*scene.others, *scene.introduced}
    for piece in asserted(text, asks=asks):
        order = read_order(piece)
        if order:
            yield _instruction(*order, scene.me("zh"))
            continue
        clause = read_clause(piece, people)
        topic = topic and clause is None
        statement = _state(clause, scene, moment) if clause else None
        named = naming_of(piece, last) if clause is None else None
        if named is not None:
            clause, statement = named, _state(named, scene, moment)
        elif clause is None and not topic:
            clause, statement = _elided(piece, before, scene, moment)
            # 小温，下周一入职: what follows is about it
            topic = statement is None and is_bare_noun(piece)
        if clause is not None and (not clause.elided or statement is not None):
            before = replace(clause, elided=False)
        if statement is not None:
            last = last if named is not None else statement
            yield statement


def _elided(
    piece: str, before: Clause | None, scene: Scene, moment: Moment
) -> tuple[Clause | None, Statement | None]:
    """A clause without a subject: the one before is meant, else the speaker, or some thing."""
    if (thing := read_thing(piece)) and (told := _state(thing, scene, moment)):
        return thing, told
    person = before if before is not None and before.kind != "thing" else Clause("self", "")
    clause = replace(person, said=piece, lead="", elided=True)
    statement = _state(clause, scene, moment)
    has_subject = (
        statement is not None
        and statement.memory_type in _NEEDS_SUBJECT
        and begins_with_noun(_read_predicate(clause, moment).core)
    )
    return clause, None if has_subject else statement  # 锅炉保养过了 is not about the speaker


def _state(clause: Clause, scene: Scene, moment: Moment) -> Statement | None:
    if clause.kind == "it":
        return None
    me = scene.me("zh")
    person = _person(clause, scene)
    if clause.kind == "named" and person is not None:
        clause = replace(clause, name=person.key)
    predicate = _read_predicate(clause, moment)
    if clause.kind == "thing":
        said = _PARTICLES.sub("", clause.said)
        told = told_of_thing(replace(clause, said=said), moment)
    elif person is None:
        return None
    else:
        told = introduced(clause, predicate.core) if clause.kind == "kin" else None
        told = told or _told_by(predicate, clause, moment)
    if told is None or _YOU.search(predicate.said) or not is_balanced(predicate.said):
        return None
    if person is not None and clause.kind in ("kin", "named"):
        scene.last = person
    if told.frame.whom == "speaker" and clause.kind in ("kin", "thing"):
        scene.last = Person(told.value, told.value)
    about_me = person is None or clause.kind == "self" or told.frame.whom == "speaker"
    subject = me.key if about_me or person is None else person.key
    return Statement(
        text=_write(clause, predicate, scene),
        subject=subject,
        language="zh",
        memory_type=told.frame.memory_type,
        field=told.frame.field,
        value=told.value,
        negated=told.negated,
        tense="future" if told.frame.memory_type == "plan" else predicate.tense,
        dates=dates_of(told.frame),
        edges=() if "的" in clause.name else edges_of(clause, told, predicate.core),
        name=told.value if told.frame.field == "name" and clause.kind in ("self", "thing") else "",
    )


def _read_predicate(clause: Clause, moment: Moment) -> _Predicate:
    said = _PARTICLES.sub("", clause.lead + clause.said)
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
    return _Predicate(said, core, tense, habit)


_STEPS = frozenset({"home", "employer", "school", "marital_status", "job", "family", "age"})
_AGED = re.compile("今年.{0,4}$")
_BARE_ORIGIN = re.compile("[^，是来在有说]{2,6}人")
_ORIGIN = frame("(?P<value>[^，]{2,6}?)人$", "user_profile", "origin", "from", "place")


def _bare(predicate: _Predicate, clause: Clause) -> Told | None:
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


def _told_by(predicate: _Predicate, clause: Clause, moment: Moment) -> Told | None:
    """What a predicate of a person tells, if it is something that lasts."""
    said, core = predicate.said, predicate.core
    over = bool(PAST_WORDS.search(said[: len(said) - len(core)])) and not core.startswith(
        ("不", "没")
    )
    told = _first((*PROFILE, *TASTES), predicate, moment) or _bare(predicate, clause)
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


def _plan(predicate: _Predicate, moment: Moment) -> Told | None:
    told = _first(PLANS, predicate, moment)
    if told is None or not told.frame.timed or is_ahead(predicate.said, moment):
        return told
    return None


def _first(frames: Iterable[Frame], predicate: _Predicate, moment: Moment) -> Told | None:
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


def _person(clause: Clause, scene: Scene) -> Person | None:
    me = scene.me("zh")
    if clause.kind == "self":
        return me
    if clause.kind == "kin":
        person = Person(
            f"{me.label}的{clause.noun}{clause.name}", clause.name or f"{me.label}的{clause.noun}"
        )
        scene.introduced.setdefault(clause.name or clause.noun, person)
        return person
    if clause.kind == "named":
        if not clause.name:
            return scene.last
        known = scene.last if scene.last and scene.last.key == clause.name else None
        return known or scene.introduced.get(clause.name) or Person(clause.name, clause.name)
    return None


def _write(clause: Clause, predicate: _Predicate, scene: Scene) -> str:
    """The clause as a sentence that needs nobody to know who 我 is."""
    me = scene.me("zh")
    if clause.kind == "thing":
        owner = "" if not clause.own else me.label + ("" if clause.noun.startswith("最") else "的")
        noun = turn_persons(clause.noun, me.label, own=False)
        said = re.sub("^[:：]", "是", predicate.said[len(clause.lead) :])
        return tidy(f"{clause.lead}{owner}{noun}{turn_persons(said, me.label, own=False)}")
    person = _person(clause, scene)
    who = person.label if person else ""
    said = turn_persons(predicate.said, me.label, own=clause.kind == "self")
    return tidy(who + ("是" if _BARE_ORIGIN.fullmatch(said) else "") + said)


def _instruction(text: str, kind: str, field: str | None, me: Person) -> Statement:
    if kind == "remind":
        about = turn_persons(re.sub("^.*?提醒我", "", text), me.label, own=True)
        return Statement(
            tidy(f"{me.label}要求提醒{about}"), me.key, "zh", "plan", value=about, tense="future"
        )
    phrase = re.sub("我们|我", me.label, phrase_order(text, kind))
    phrase = f"在{phrase}" if kind == "when_i" and phrase.startswith(me.label) else phrase
    written = tidy(f"{me.label}希望助手{phrase}")
    return Statement(written, me.key, "zh", "instruction", field, value=text, dates="none")


def _retractions(what: str, scene: Scene, moment: Moment) -> Iterator[Statement]:
    """What is to be forgotten: as a statement if it is one, else by its words."""
    me = scene.me("zh")
    text = what if re.match("我|[^我]{0,6}我", what) else f"我{what}"
    found = list(_tell(text, scene, moment, asks=False))
    if found:
        yield from (
            replace(one, memory_type="retraction", negated=False, edges=(), name="")
            for one in found
        )
        return
    noun = re.sub("^我?的?", "", what)
    written = tidy(turn_persons(what, me.label, own=False))
    # Denying stands for "whatever it is": a slot is to be emptied.
    slot = SLOT_OF.get(noun)
    yield Statement(written, me.key, "zh", "retraction", slot, negated=slot is not None)
