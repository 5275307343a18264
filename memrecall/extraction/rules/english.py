"""The reader of English: clauses, facts and how statements are written."""

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
from memrecall.extraction.rules.dates import has_time, is_ahead
from memrecall.extraction.rules.english_grammar import (
    EN,
    PhraseReader,
    conjugate,
    expand_contractions,
    third_person,
    to_third_person,
    verb_form,
)
from memrecall.extraction.rules.matching import (
    as_former,
    match_first,
    match_introduction,
    match_slot,
)
from memrecall.extraction.rules.reader import Order, SentenceReader
from memrecall.extraction.rules.stated_relations import RelationReader
from memrecall.extraction.rules.statements import (
    Clause,
    FactMatch,
    FactPattern,
    Person,
    ReferenceTime,
    SpeakerContext,
    Statement,
    VerbPhrase,
)
from memrecall.types import Language

_LASTING = frozenset({"user_profile", "user_preference", "relationship", "habit", "general"})
_PERSONAL = frozenset({"user_profile", "user_preference", "relationship"})
_AUXILIARIES = frozenset({"am", "is", "are", "was", "can", "cannot", "will", "do"})
_MAX_NOUN_WORDS = 5


class EnglishReader(SentenceReader):
    """Reads English sentences."""

    language: ClassVar[Language] = "en"
    table = EN
    relations = RelationReader(EN)

    def _prepare(self, text: str, previous: str) -> tuple[str, str]:
        full = expand_contractions(text)
        bare = strip_opening(EN, full)
        # "I am now at Meta" is about work; after a change of jobs it is so without "now" too.
        if EN.search("new_job", f"{expand_contractions(previous)}. {bare}"):
            return EN.pattern("at_firm").sub("I work at ", bare), full
        if EN.search("work_topic", f"{previous} {bare}"):
            bare = EN.pattern("left_firm").sub("I no longer work at ", bare)
        return EN.pattern("now_at_firm").sub("I now work at ", bare), full

    def _read_clauses(
        self, text: str, speaker: SpeakerContext, time: ReferenceTime, *, is_question: bool
    ) -> Iterator[Statement]:
        told = EN.match("telling_question", text)
        text = _unfold_appositions(text[told.end() :] if told else text)
        is_question = is_question and told is None
        previous: Clause | None = None
        phrase: VerbPhrase | None = None
        clauses = _join_infinitives(split_clauses(EN, text))
        pieces = asserted_clauses(EN, clauses, text, is_question=is_question)
        for place, piece in enumerate(pieces):
            clause = read_clause(EN, piece, _is_name)
            self._note_mention(piece, speaker)
            if clause is None and (place == 0 or previous is not None):
                clause = _complete(piece, previous, phrase, has_time=is_ahead(piece, time))
            previous = clause
            if clause is not None:
                phrase = PhraseReader(clause.predicate, clause.lead).read()
                if statement := self._state(clause, phrase, speaker, time):
                    yield statement
            if EN.search("introduces_other", piece):
                speaker.last_person = None  # "my son has a new teacher, she is strict"

    def _match_clause(
        self, clause: Clause, phrase: VerbPhrase, speaker: SpeakerContext, time: ReferenceTime
    ) -> FactMatch | None:
        if clause.kind == "thing":
            return _match_thing(clause, phrase, time)
        match = None
        if clause.kind == "kin":
            match = match_introduction(EN, clause, phrase, lambda name: True)
        match = match or _match_person(phrase, time, is_self=clause.kind == "self")
        last = speaker.last_person
        is_known = clause.kind == "kin" or (last is not None and last.key == clause.name)
        if match is None and is_known and not phrase.negated:
            match = match_first(EN.facts("others"), phrase, time)
        return None if match and _is_doubtful(clause, match, speaker) else match

    def _write(
        self, clause: Clause, phrase: VerbPhrase, speaker: SpeakerContext, match: FactMatch
    ) -> str:
        me = speaker.person("en")
        own = clause.kind == "self"
        body = conjugate(phrase.text, past=phrase.tense == "past") if own else phrase.text
        body = to_third_person(body, me.label, own=own)
        person = self._find_person(clause, speaker)
        owner = {"the": "The", "": ""}.get(clause.owner, f"{me.label}'s")
        subject = (
            person.label if person else f"{owner} {self._third_person(clause.noun, me, own=False)}"
        )
        if match.rule.field == "age" and EN.fullmatch("bare_age", body):
            body += " years old"
        lead = to_third_person(clause.lead, me.label, own=own)
        lead = f"on {lead}" if EN.fullmatch("weekdays", lead) else lead[:1].lower() + lead[1:]
        return self._tidy(f"{subject} {body} {lead}")

    def _phrase_order(self, order: Order, me: Person) -> str:
        action = order.action
        if order.kind == "wish":
            action = re.sub(r"^you\b", "the assistant", action)
        action = re.sub(
            r"^(when(?:ever)?) you (\w+)",
            lambda match: f"{match[1]} it {third_person(match[2])}",
            action,
            flags=re.IGNORECASE,
        )
        text = EN.rewrite("order", action)
        if order.kind == "whenever":
            text = f"follow this: {text}"
        elif not re.match(r"[A-Z]{2}|I\b", text):
            text = text[:1].lower() + text[1:]
        return to_third_person(text, me.label, own=True)

    def _third_person(self, text: str, me: Person, *, own: bool) -> str:
        return to_third_person(text, me.label, own=own)


def _unfold_appositions(text: str) -> str:
    """Return "I'm Anna, a nurse" as "I am Anna, I am a nurse"."""
    text = EN.rewrite("appositions", text)
    if text.startswith("I am "):
        text = EN.pattern("further_role").sub("I am ", text)
    return EN.remove("contrast", text).removesuffix(" and I am a ")


def _join_infinitives(clauses: Iterator[str]) -> list[str]:
    """Undo cuts between an infinitive and its verb: "to eat and drink"."""
    joined: list[str] = []
    for clause in clauses:
        first = clause.split()[0]
        is_bare = verb_form(first) == "base" and first.islower() and first != "have"
        if joined and is_bare and EN.search("open_infinitive", joined[-1]):
            joined[-1] += f" and {clause}"
        else:
            joined.append(clause)
    return joined


def _is_name(name: str) -> bool:
    return name.split()[0] not in EN.words("not_names")


def _complete(
    piece: str, previous: Clause | None, phrase: VerbPhrase | None, *, has_time: bool
) -> Clause | None:
    """Return a clause without a subject with that of the previous one, or with "I" in a diary."""
    first = re.split(r"\W", EN.remove("leading_adverbs", piece), maxsplit=1)[0].lower()
    form = verb_form(first)
    in_diary = EN.match("diary", piece)
    if previous is None or phrase is None:
        is_plan = form == "ing" and has_time
        if first == "been":
            return Clause("self", f"have {piece}", elided=True)
        if form != "past" and not in_diary and not is_plan:
            return None
        head = first if piece.startswith(first.upper()) else piece[0].lower()
        piece = head + piece[len(head) :]
        lacks_verb = is_plan or EN.match("diary_without_be", EN.remove("leading_adverbs", piece))
        return Clause("self", f"am {piece}" if lacks_verb else piece, elided=True)
    # "like" is more often "such as"; in "I ordered a disk, comes on Friday" the disk comes.
    if first == "like" or (form == "s" and previous.kind == "self"):
        return None
    if form == "ing":
        return replace(previous, predicate=f"am {piece}", lead="") if phrase.progressive else None
    if form or in_diary or first in _AUXILIARIES:
        predicate = f"am {piece}" if EN.match("diary_without_be", piece) else piece
        return replace(previous, predicate=predicate, lead="", elided=True)
    return None


def _is_doubtful(clause: Clause, match: FactMatch, speaker: SpeakerContext) -> bool:
    """Return True if a capitalized first word may be no name: "Van failed its test"."""
    if clause.kind != "named" or not clause.name or match.rule.memory_type in _PERSONAL:
        return match.rule in EN.facts("description") and clause.kind != "self"
    last = speaker.last_person
    is_known = clause.name in speaker.people or bool(last and last.key == clause.name)
    if EN.search("possessive_person", clause.predicate):
        return False  # "Sofie broke her wrist"
    return not is_known and clause.name.split()[0] not in speaker.capitalized


def _match_person(phrase: VerbPhrase, time: ReferenceTime, *, is_self: bool) -> FactMatch | None:
    """Return what a predicate says about a person, if it is a lasting fact."""
    if phrase.tense == "unreal":
        wish = replace(phrase, tense="present")
        return match_first(EN.facts("wishes"), wish, time) if phrase.modal == "would" else None
    # "I cannot have dairy" is about food, "I do not have a car" is not.
    denials = EN.facts("cannot", "denied") if phrase.modal == "cannot" else EN.facts("denied")
    if phrase.negated and (denial := match_first(denials, phrase, time)):
        is_passing = EN.search("for_once", phrase.timing)
        return None if is_passing else replace(denial, negated=True, ended=phrase.ended)
    if phrase.ended and phrase.tense == "past":
        present = replace(phrase, tense="present")
        match = match_first(EN.facts("profile", "tastes"), present, time)
        return as_former(match) if match else None
    match = _match_scheduled_step(phrase, time) or match_first(EN.facts("profile"), phrase, time)
    if is_self and match is None:
        match = match_first(EN.facts("self_name"), phrase, time)
    match = match or _match_habit(phrase)
    groups = ("tastes", "decisions", "cancelled", "left", "plans")
    match = match or match_first(EN.facts(*groups), phrase, time) or _match_step(phrase, time)
    match = match or match_first(EN.facts("description"), phrase, time)
    return _apply_negation(match, phrase) if match else None


def _match_scheduled_step(phrase: VerbPhrase, time: ReferenceTime) -> FactMatch | None:
    """Match a present tense with a time to come: "she is getting married in July"."""
    if phrase.tense != "present" or phrase.modal or EN.match("steady", phrase.core):
        return None
    if phrase.habitual or not is_ahead(phrase.timing, time):
        return None
    group = "progressive" if phrase.progressive else "timetable"
    return match_first(EN.facts("starts", group), phrase, time)


def _match_habit(phrase: VerbPhrase) -> FactMatch | None:
    if phrase.tense != "present" or not phrase.habitual or phrase.modal:
        return None
    rule = EN.fact("habit")
    return None if EN.match("no_habit", phrase.core) else FactMatch(rule, phrase.core)


def _match_step(phrase: VerbPhrase, time: ReferenceTime) -> FactMatch | None:
    """Match something done or to be done once."""
    if phrase.tense == "past":
        return match_first(EN.facts("milestones", "past_steps"), phrase, time)
    # "I will send it" is said all day; with a time it is a plan.
    is_promise = phrase.modal in ("will", "shall") and not has_time(phrase.timing, time)
    if phrase.tense != "future" or is_promise:
        return None
    return match_first(EN.facts("future"), phrase, time)


def _apply_negation(match: FactMatch, phrase: VerbPhrase) -> FactMatch | None:
    """Return the match as "not" leaves it: a denial, or nothing worth keeping."""
    ended = match.ended or phrase.ended
    if not phrase.negated:
        return replace(match, negated=match.negated or ended, ended=ended)
    if match.negated and not match.ended:
        return None  # "I do not hate it" says little.
    if match.rule.memory_type in _LASTING or ended or phrase.tense == "future":
        return replace(match, negated=True, ended=ended)
    return None


def _match_thing(clause: Clause, phrase: VerbPhrase, time: ReferenceTime) -> FactMatch | None:
    """Return what a clause says about "my …", "our …" or "the …"."""
    noun = clause.noun.lower()
    if clause.is_own and (match := match_slot(EN, noun, phrase) or _match_condition(noun, phrase)):
        return match
    if EN.fullmatch("appointment_noun", noun):
        if cancelled := match_first(EN.facts("cancelled"), phrase, time):
            return replace(cancelled, negated=True)
        if match := match_first(EN.facts("scheduled"), phrase, time):
            return replace(match, negated=phrase.negated)
    if match := _match_setting(clause, phrase):
        return match
    if is_ahead(phrase.timing, time) and EN.match("dated_verb", phrase.core):
        match = match_first(EN.facts("scheduled"), phrase, time)
        return match and replace(match, negated=phrase.negated)
    if clause.is_own and (match := _match_noun(noun, phrase)):
        return match
    if clause.is_own and phrase.tense == "past":
        match = match_first(EN.facts("past_steps"), phrase, time)
        return match and replace(match, negated=phrase.negated)
    return None


def _match_condition(noun: str, phrase: VerbPhrase) -> FactMatch | None:
    """Match "my knees are bad" and "my Spanish is basic"."""
    for nouns, group in (("body_part", "body"), ("spoken_language", "language_level")):
        rule = EN.fact(group)
        match = rule.pattern.match(phrase.core)
        if match and EN.fullmatch(nouns, noun) and phrase.tense == "present":
            return _fill(rule, match, phrase)
    return None


def _match_setting(clause: Clause, phrase: VerbPhrase) -> FactMatch | None:
    """Match a setting of a system: "our staging server listens on port 8080"."""
    rule = EN.fact("setting")
    match = rule.pattern.match(phrase.core)
    if match is None or phrase.tense not in rule.tenses or phrase.modal:
        return None
    uses = clause.owner in ("my", "our") and EN.match("using_verb", phrase.core)
    is_named = EN.search("system", clause.noun) and EN.match("naming_verb", phrase.core)
    names_system = EN.search("system", f"{clause.noun} {phrase.core}")
    is_technical = names_system and EN.search("technical", match["value"])
    if not (uses or is_named or is_technical):
        return None
    return _fill(replace(rule, field=clause.noun.lower()), match, phrase)


def _match_noun(noun: str, phrase: VerbPhrase) -> FactMatch | None:
    """Match any noun with a name or a number as its value: "my tailor is Rossi"."""
    rule = EN.fact("slot_value")
    match = rule.pattern.match(phrase.core)
    if match is None or phrase.tense != "present" or len(noun.split()) > _MAX_NOUN_WORDS:
        return None
    if phrase.modal or not EN.search("specific", match["value"]):
        return None
    field = None if noun in EN.mapping("slots") else noun
    return _fill(replace(rule, memory_type="general", field=field), match, phrase)


def _fill(rule: FactPattern, match: re.Match[str], phrase: VerbPhrase) -> FactMatch:
    return FactMatch(rule, match["value"].strip(), phrase.negated)
