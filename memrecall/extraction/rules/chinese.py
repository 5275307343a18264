"""The reader of Chinese: clauses, names, facts and how statements are written."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from memrecall.extraction.rules.clauses import (
    asserted_clauses,
    read_clause,
    split_clauses,
    strip_opening,
)
from memrecall.extraction.rules.dates import find_statement_times, has_time, is_ahead
from memrecall.extraction.rules.matching import (
    as_former,
    match_first,
    match_introduction,
    match_slot,
)
from memrecall.extraction.rules.reader import Order, SentenceReader, read_order
from memrecall.extraction.rules.stated_relations import ChineseRelations
from memrecall.extraction.rules.statements import (
    Clause,
    FactMatch,
    Person,
    ReferenceTime,
    SpeakerContext,
    Statement,
    Tense,
    VerbPhrase,
)
from memrecall.extraction.rules.tables import load_table
from memrecall.extraction.sentences import Sentence
from memrecall.extraction.signature import is_name, may_name, opens_with_name
from memrecall.text.normalize import replace_characters
from memrecall.text.times import find_times
from memrecall.text.words import (
    has_more_than_time,
    is_bare_noun,
    is_place,
    starts_with_noun,
)
from memrecall.types import Language

ZH = load_table("zh")
# Somebody or something that the rules cannot name.
_SOMEBODY, _SOMETHING = Clause("it", ""), Clause("thing", "")
_OTHERS = frozenset({"kin", "named", "it"})
_NEEDS_SUBJECT = frozenset({"event", "plan", "habit", "decision"})
_TASTE_SLOTS = frozenset({"likes", "avoids", "hobby"})
_STEP_SLOTS = frozenset({"home", "employer", "school", "marital_status", "job", "family", "age"})
_HABIT_SLOTS = frozenset({"uses", "learning", "hobby"})
_MAX_ADVERBIALS = 16
_MAX_TIME = 40


class ChineseReader(SentenceReader):
    """Reads Chinese sentences."""

    language: ClassVar[Language] = "zh"
    table = ZH
    relations = ChineseRelations(ZH)

    def read(
        self, sentence: Sentence, speaker: SpeakerContext, time: ReferenceTime
    ) -> Iterator[Statement]:
        """Yield what a sentence states, in the script and width of its speaker."""
        folded = replace_characters(sentence.text)
        pairs = zip(sentence.text, folded, strict=True)
        original = {ord(new): old for old, new in pairs if old != new}
        for statement in super().read(replace(sentence, text=folded), speaker, time):
            yield replace(statement, text=statement.text.translate(original))

    def _prepare(self, text: str, previous: str) -> tuple[str, str]:
        text = ZH.rewrite("spoken", strip_opening(ZH, text.strip()))
        if ZH.search("new_job", f"{replace_characters(previous)}，{text}"):
            text = ZH.pattern("at_firm").sub(r"\g<0>工作", text)
        return text, text

    def _read_clauses(
        self, text: str, speaker: SpeakerContext, time: ReferenceTime, *, is_question: bool
    ) -> Iterator[Statement]:
        is_unknown = speaker.last_person is None and ZH.match("third_person", text)
        subject = _SOMEBODY if speaker.about_other or is_unknown else None
        last: Statement | None = None
        people = {*speaker.others, *speaker.people}
        clauses = list(split_clauses(ZH, text))
        for spoken in asserted_clauses(ZH, clauses, text, is_question=is_question):
            is_other = subject is not None and subject.kind in _OTHERS
            is_own = not is_other or ZH.search("my_word", spoken)
            piece = _turn_round(spoken) if is_own else spoken
            if order := read_order(ZH, piece):
                yield self._state_order(order, speaker.person("zh"))
                continue
            self._note_mention(piece, speaker)
            if other := ZH.fullmatch("others_kin", piece):
                subject = Clause("named", "", name=other["name"])
                continue
            clause = _read_clause(piece, people)
            naming = _read_naming(piece, last) if clause is None else None
            if clause := clause or naming:
                statement = self._state(clause, _read_phrase(clause, time), speaker, time)
                # 电话是010-… is that of the place that was asked about, 公司叫… a former firm's.
                is_shared = subject is _SOMEBODY or not speaker.in_person
                if ZH.match("shared_slot" if is_shared else "firm_slot", piece):
                    statement = None
            else:
                clause, statement = self._complete(piece, subject, speaker, time)
            subject = _next_subject(piece, clause, statement, subject)
            if subject is _SOMEBODY:
                speaker.last_person = None
            if statement is not None:
                last = last if naming is not None else statement
                yield statement
        speaker.about_other = subject is not None and subject.kind in _OTHERS

    def _complete(
        self, piece: str, subject: Clause | None, speaker: SpeakerContext, time: ReferenceTime
    ) -> tuple[Clause, Statement | None]:
        """Read a clause without a subject: about a thing, the previous subject or the speaker."""
        if match := ZH.fullmatch("free_thing", piece):
            thing = Clause("thing", match["predicate"], noun=match["noun"])
            if statement := self._state(thing, _read_phrase(thing, time), speaker, time):
                return thing, statement
        is_thing = subject is not None and subject.kind == "thing"
        if is_thing and not ZH.search("personal", piece):  # Things do not plan, eat or drink.
            return replace(_SOMETHING, elided=True), None
        person = Clause("self", "") if subject is None or is_thing else subject
        clause = replace(person, predicate=piece, lead="", elided=True)
        phrase = _read_phrase(clause, time)
        statement = self._state(clause, phrase, speaker, time)
        is_step = statement is not None and statement.memory_type in _NEEDS_SUBJECT
        # 锅炉保养过了 is not about the speaker, and neither is 每天9点开放.
        is_other = starts_with_noun(phrase.core) and not ZH.fullmatch("own_step", phrase.core)
        is_lost = subject is None and (is_step or not speaker.in_person)
        is_vague = is_lost and ZH.search("impersonal", phrase.core)
        return clause, None if is_vague or (is_step and is_other) else statement

    def _match_clause(
        self, clause: Clause, phrase: VerbPhrase, speaker: SpeakerContext, time: ReferenceTime
    ) -> FactMatch | None:
        if clause.kind == "thing":
            bare = replace(clause, predicate=ZH.remove("particles", clause.predicate))
            return _match_thing(bare, time)
        match = None
        if clause.kind == "kin":
            is_called = "叫" in phrase.core[:3]
            match = match_introduction(ZH, clause, phrase, lambda name: is_called or is_name(name))
        return match or _match_person(phrase, clause, time)

    def _write(
        self, clause: Clause, phrase: VerbPhrase, speaker: SpeakerContext, match: FactMatch
    ) -> str:
        me = speaker.person("zh")
        if clause.kind == "thing":
            particle = "" if clause.noun.startswith("最") else "的"
            owner = me.label + particle if clause.is_own else ""
            text = re.sub("^[:：]", "是", phrase.text[len(clause.lead) :])
            return self._tidy(
                f"{clause.lead}{owner}{self._third_person(clause.noun, me, own=False)}"
                f"{self._third_person(text, me, own=False)}"
            )
        person = self._find_person(clause, speaker)
        text = self._third_person(phrase.text, me, own=clause.kind == "self")
        verb = "是" if ZH.fullmatch("bare_origin", text) else ""
        return self._tidy((person.label if person else "") + verb + text)

    def _phrase_order(self, order: Order, me: Person) -> str:
        action = re.sub("我们|我", me.label, ZH.rewrite("order", order.text))
        is_condition = order.kind == "when_i" and action.startswith(me.label)
        return f"在{action}" if is_condition else action

    def _third_person(self, text: str, me: Person, *, own: bool) -> str:
        owner = "自己的" if own else f"{me.label}的"
        text = ZH.pattern("my").sub(owner, text)
        text = ZH.pattern("my_kin").sub("" if own else owner, text)
        return ZH.pattern("first_person").sub("自己" if own else me.label, text)


def _next_subject(
    piece: str, clause: Clause, statement: Statement | None, subject: Clause | None
) -> Clause | None:
    """Return whom a clause without a subject is about if it follows this one.

    After 班里有个小孩, 楼下新开了家店 or 房东姓欧阳 it is not the speaker.
    """
    if kin := ZH.fullmatch("bare_kin", piece):
        return Clause("kin", "", noun=kin["noun"], owner="my")
    if ZH.search("introduces_other", piece):
        return _SOMEBODY
    if ZH.match("nearby", clause.predicate):
        return _SOMETHING
    if statement is not None or (clause.kind != "self" and not clause.elided):
        return replace(clause, elided=False)
    if ZH.match("other_person" if clause.elided else "knowing", clause.predicate):
        return _SOMEBODY  # 我知道，是1986年成立的
    is_noun = is_bare_noun(piece) or starts_with_noun(piece)
    if clause.elided and is_noun and not ZH.match("no_topic", piece):
        return _SOMETHING
    return subject if clause.elided else clause


def _turn_round(text: str) -> str:
    """Put the subject first: 牛奶我喝不了 becomes 我喝不了牛奶."""
    for pattern, template in ZH.rewrites("object_first"):
        if match := pattern.fullmatch(text):
            return match.expand(template)
    return text


def _read_clause(text: str, people: set[str]) -> Clause | None:
    clause = read_clause(ZH, text, lambda name: name in people or opens_with_name(text, name))
    if clause and clause.kind == "kin" and clause.name and not may_name(clause.name, text):
        return replace(clause, predicate=clause.name + clause.predicate, name="")
    return clause


def _read_naming(piece: str, last: Statement | None) -> Clause | None:
    """Read 叫周悦 after 我有个姐姐: the name of the person just mentioned."""
    match = ZH.match("naming", piece)
    if match is None or last is None:
        return None
    kin = ZH.pattern("kin_word").findall(last.value)
    if not kin or last.field not in ("family", "pet", *ZH.words("single_kin")):
        return None
    noun = f"一只{kin[-1]}" if match["other"] else kin[-1]
    return Clause("kin", f"叫{match['other'] or match['name']}", noun=noun, owner="my")


def _read_phrase(clause: Clause, time: ReferenceTime) -> VerbPhrase:
    """Return the verb phrase of a clause: what stands behind its times and adverbs."""
    text = ZH.remove("particles", clause.lead + clause.predicate)
    core = _strip_adverbials(text, time)
    before = text[: len(text) - len(core)]
    is_former = bool(ZH.search("past_words", before))
    is_past = is_former and not re.search("不|没", core[:2])
    happened = _has_happened(text, time) and not ZH.match("about_to", core)
    tense: Tense = "past" if is_past or happened else "present"
    habitual = ZH.match("habit", before + core[:8]) and not ZH.match("no_habit", core)
    return VerbPhrase(
        text,
        core,
        tense,
        text,
        ended=is_former and not core.startswith(("不", "没")),
        habitual=bool(habitual),
    )


def _strip_adverbials(core: str, time: ReferenceTime) -> str:
    for _ in range(_MAX_ADVERBIALS):
        spans = find_times(core[:_MAX_TIME], time.now, time.zone)
        adverb = ZH.match("adverb", core)
        if spans and spans[0].position == 0 and len(spans[0].text) < len(core):
            core = core[len(spans[0].text) :].lstrip("，, ")
        elif adverb is None or adverb.end() == len(core):
            break
        else:
            core = core[adverb.end() :].lstrip("，, ")
    return core


def _has_happened(text: str, time: ReferenceTime) -> bool:
    # A bare weekday beside 了 is the last one.
    is_to_come = any(
        span.start and span.start > time.now and not ZH.match("weekday", span.text)
        for span in find_statement_times(text, time)
    )
    return bool(re.search("[了过]", ZH.remove("not_over", text))) and not is_to_come


def _match_person(phrase: VerbPhrase, clause: Clause, time: ReferenceTime) -> FactMatch | None:
    """Return what a predicate says about a person, if it is a lasting fact."""
    match = _match_lasting(phrase, clause, time)
    is_denied_taste = match and match.negated and match.rule.field in _TASTE_SLOTS
    if is_denied_taste and ZH.search("for_once", phrase.text):
        return None
    if match and phrase.ended:
        return as_former(match)
    is_habit = phrase.habitual and has_more_than_time(phrase.core)
    if is_habit and (match is None or match.rule.field in _HABIT_SLOTS):
        rule = ZH.fact("habit")
        return FactMatch(rule, phrase.core, negated=bool(re.match("不|没|从不", phrase.core)))
    return match or _match_step(phrase, time)


def _match_lasting(phrase: VerbPhrase, clause: Clause, time: ReferenceTime) -> FactMatch | None:
    match = _match_first(("profile", "tastes"), phrase, time) or _match_bare(phrase, clause)
    if match and match.rule.field in _STEP_SLOTS and is_ahead(phrase.text, time, "present"):
        if match.rule.relation == "works_at":
            return replace(match, rule=replace(match.rule, memory_type="plan", field=None))
        rule = ZH.fact("habit")
        return FactMatch(replace(rule, memory_type="plan"), phrase.core)
    if match is None and clause.kind == "self":
        name = _match_first(("self_name",), phrase, time)
        return name if name and is_name(name.value) else None
    return match


def _match_bare(phrase: VerbPhrase, clause: Clause) -> FactMatch | None:
    """Match what stands alone in a list about oneself: 今年32, 大阪人."""
    before = phrase.text[: -len(phrase.core)]
    is_lead = ZH.search("age_lead", before) or (clause.kind == "kin" and phrase.core.endswith("了"))
    if ZH.fullmatch("bare_age", phrase.core) and is_lead:
        return FactMatch(ZH.facts("profile")[0], phrase.core.rstrip("了"))
    for group, applies in (("origin", clause.elided), ("whereabouts", clause.kind == "self")):
        rule = ZH.fact(group)
        match = rule.pattern.fullmatch(phrase.core) if applies else None
        if match and is_place(match["value"]):
            return FactMatch(rule, match["value"])
    return None


def _match_step(phrase: VerbPhrase, time: ReferenceTime) -> FactMatch | None:
    match = _match_first(("cancelled", "decisions"), phrase, time)
    if match is None and phrase.tense != "past":
        match = _match_first(("plans",), phrase, time)
        if match and match.rule.timed and not is_ahead(phrase.text, time):
            match = None
    if match is None and not ZH.match("not_telling", phrase.core):
        match = _match_first(("milestones", "past_steps"), phrase, time)
    return match


def _match_first(
    groups: tuple[str, ...], phrase: VerbPhrase, time: ReferenceTime
) -> FactMatch | None:
    return match_first(ZH.facts(*groups), phrase, time, needs_content=True)


def _match_thing(clause: Clause, time: ReferenceTime) -> FactMatch | None:
    """Return what a clause says about a thing, whether or not it is the speaker's."""
    phrase = VerbPhrase(clause.predicate, clause.predicate, "present")
    if clause.is_own and (match := match_slot(ZH, clause.noun, phrase)):
        return match
    is_appointment = ZH.fullmatch("appointment_noun", clause.noun)
    expires = ZH.search("expiry", clause.predicate)
    if (is_appointment or expires) and (match := _match_scheduled(clause, time)):
        return match
    noun = ZH.remove("trailing_adverb", clause.noun)
    rule = ZH.fact("setting")
    setting = rule.pattern.match(clause.predicate)
    is_system = clause.is_own or ZH.search("system", noun + clause.predicate)
    is_technical = setting and is_system and ZH.search("technical", setting["value"])
    if setting and is_technical and not ZH.match("appointment_noun", noun):
        return FactMatch(replace(rule, field=noun), setting["value"])
    return _match_noun(replace(clause, noun=noun), time) if clause.is_own else None


def _match_scheduled(clause: Clause, time: ReferenceTime) -> FactMatch | None:
    whole = clause.lead + clause.predicate
    is_timed = has_time(whole, time) or ZH.search("habit", whole)
    for rule in ZH.facts("scheduled"):
        match = rule.pattern.match(clause.predicate)
        if match and (not rule.timed or is_timed):
            return FactMatch(rule, match["value"], rule.ended, rule.ended)
    return None


def _match_noun(clause: Clause, time: ReferenceTime) -> FactMatch | None:
    """Match any noun that is something, as in 我的理发师是老周, or what happened to it."""
    rule = ZH.fact("noun_value")
    if match := rule.pattern.match(clause.predicate):
        field = None if clause.noun in ZH.mapping("slots") else clause.noun
        return FactMatch(replace(rule, field=field), match["value"])
    event = ZH.fact("past_steps")
    match = event.pattern.match(clause.predicate)
    if match and has_time(clause.lead + clause.predicate, time):
        return FactMatch(event, match["value"])
    return None
