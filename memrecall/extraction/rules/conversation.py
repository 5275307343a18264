"""From a conversation to statements and facts, with corrections resolved."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from memrecall.extraction.protocol import USER, Fact, Utterance
from memrecall.extraction.quotations import is_person, own_words
from memrecall.extraction.rules.assertions import (
    asserted_clauses,
    has_end,
    is_about_change,
    is_fiction,
    is_introduction,
    normalize_sentence,
    split_paragraphs,
)
from memrecall.extraction.rules.dates import date_statement, find_statement_times, has_time
from memrecall.extraction.rules.slots import READERS, retract
from memrecall.extraction.rules.statements import USER_LABELS, Person, ReferenceTime, Statement
from memrecall.extraction.rules.tables import LanguageTable
from memrecall.extraction.sentences import Sentence, split_sentences
from memrecall.extraction.signature import fact_keywords
from memrecall.text.normalize import normalize
from memrecall.types import Language, Role

_MAX_CORRECTION = 30
_DAY_IN = re.compile(r"\d+(?:st|nd|rd|th)?")
_DAY = re.compile(r"(?:on )?(?:the )?(\d+(?:st|nd|rd|th))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourcedStatement:
    """A statement, the message and the clause it comes from, and when that was written.

    `earlier_ids` are the messages that it corrects.
    """

    statement: Statement
    utterance: Utterance
    time: ReferenceTime
    clause: str = ""
    earlier_ids: tuple[str, ...] = ()


@dataclass(slots=True)
class _Speaker:
    """A speaker's state between messages: whether they play a role, and what they said last.

    `relative` is the only relative or pet that they mentioned last: "my sister".
    """

    name: str | None
    in_role: bool = False
    last: SourcedStatement | None = None
    relative: str = ""
    plan: SourcedStatement | None = None

    def person(self, language: Language) -> Person:
        return Person(self.name or USER_LABELS[language], self.name or USER)


def read_statements(
    utterances: Sequence[Utterance],
    *,
    now: datetime,
    zone: tzinfo,
    context: Sequence[Utterance] = (),
) -> list[SourcedStatement]:
    """Return everything that the utterances state, in order, without corrected statements."""
    speakers: dict[str | None, _Speaker] = {}
    statements: list[SourcedStatement] = []
    asked = ""
    for place, utterance in enumerate((*context, *utterances)):
        if not is_person(utterance):
            asked = utterance.text
            continue
        speaker = speakers.setdefault(utterance.speaker, _Speaker(utterance.speaker))
        time = ReferenceTime(utterance.ts or now, zone)
        previous = speaker.last
        read = _read_utterance(utterance, speaker, time, asked)
        asked = ""
        if previous is not None and speaker.last is None:  # corrected
            statements = [item for item in statements if item is not previous]
        if not read and is_about_change(utterance.text):
            statements = [item for item in statements if item is not speaker.plan]
        speaker.last = read[-1] if read else None
        statements += read if place >= len(context) else []
    return [item for item in statements if not _says_nothing_new(item.statement, statements)]


def _says_nothing_new(weak: Statement, statements: Sequence[SourcedStatement]) -> bool:
    """Return True for "User has a son" if more is said of the son."""
    others = (item.statement for item in statements)
    return weak.is_weak and any(
        weak.value in other.text and weak.subject in (other.subject, USER) and not other.is_weak
        for other in others
    )


def refers_back(text: str) -> bool:
    """Return True if a message opens with a correction of an earlier one."""
    first = next(split_sentences(text), None)
    return bool(first and READERS[first.language].table.match("correction", first.text))


def read_sentence(sentence: Sentence, speaker: str | None, time: ReferenceTime) -> list[Statement]:
    """Return what one sentence states."""
    utterance = Utterance("", speaker, Role.USER, sentence.text)
    read = _SentenceRun(utterance, _Speaker(speaker), time)
    read.add(sentence)
    return [item.statement for item in read.statements]


def _read_utterance(
    utterance: Utterance, speaker: _Speaker, time: ReferenceTime, asked: str
) -> list[SourcedStatement]:
    run = _SentenceRun(utterance, speaker, time)
    has_fiction = is_fiction(utterance.text)
    for paragraph in split_paragraphs(own_words(utterance.text)):
        before = len(run.statements)
        for sentence in split_sentences(paragraph, whole=True):
            if not _plays_role(sentence, speaker) and not has_fiction:
                run.add(sentence)
        if len(run.statements) == before and not has_end(paragraph):
            break  # "opening of ch 1", "rate this:": what follows is pasted
    return _without_bare_names(run.statements, asked)


def _without_bare_names(read: list[SourcedStatement], asked: str) -> list[SourcedStatement]:
    """Drop "I'm Elvis", unless the speaker greets, is asked or says more of themselves."""
    weak = [item for item in read if item.statement.is_weak]
    if not weak or len(read) > len(weak) or is_introduction(weak[0].utterance.text, asked):
        return read
    return [item for item in read if not item.statement.name or not item.statement.is_weak]


def _plays_role(sentence: Sentence, speaker: _Speaker) -> bool:
    """Return True from "pretend I am a pirate" on: when it ends is hard to tell."""
    start = READERS[sentence.language].table.search("role_start", sentence.text)
    speaker.in_role = speaker.in_role or start is not None
    return speaker.in_role


class _SentenceRun:
    """Reads the sentences of one message in order."""

    def __init__(self, utterance: Utterance, speaker: _Speaker, time: ReferenceTime) -> None:
        self.utterance = utterance
        self.speaker = speaker
        self.time = time
        self.statements: list[SourcedStatement] = []

    def add(self, sentence: Sentence) -> None:
        """Read one more sentence."""
        table = READERS[sentence.language].table
        text = normalize_sentence(sentence)
        called = table.search("called", text)
        self._note_relative(text[: called.start()] if called else text, table)
        if topic := _forgotten(sentence):
            self._forget(topic, sentence.language)
        elif remembered := table.match("remember", text):
            inner = replace(sentence, text=remembered["what"])
            before = len(self.statements)
            self._read(inner)
            if all(item.statement.is_weak for item in self.statements[before:]):
                del self.statements[before:]
                if not sentence.is_question:
                    self._append(self._verbatim(inner), inner.text)
        else:
            self._read(sentence)

    def _read(self, sentence: Sentence) -> None:
        reader = READERS[sentence.language]
        me = self.speaker.person(sentence.language)
        person: Person | None = None
        statement: Statement | None = None
        for said in asserted_clauses(sentence):
            clause = self._name_relative(said, reader.table)
            if correction := reader.table.match("correction", clause):
                self._correct(correction, sentence.language)
                continue
            # 我搬家了，现在住海淀 goes on about the speaker; 我店搬了，搬到城东 does not.
            goes_on = statement is not None or reader.table.match("now", clause)
            previous = person if goes_on else None
            person, statement = reader.read_clause(clause, me, previous, self.time)
            if statement is not None and not reader.table.search("former", clause):
                self._append(statement, clause)
            for mention in reader.read_mentions(clause, me, self.time):
                if not statement or mention.value not in statement.text:
                    self._append(mention, clause)

    def _note_relative(self, text: str, table: LanguageTable) -> None:
        people = [match.groupdict() for match in table.pattern("somebody").finditer(text)]
        if people:
            noun = (people[0]["noun"] or people[0]["pet"] or "").lower()
            one = noun.removesuffix("s") if noun.removesuffix("s") in table.words("pets") else noun
            is_other = len(people) > 1 or table.search("former", text) or table.search("gone", text)
            self.speaker.relative = "" if is_other else one

    def _name_relative(self, clause: str, table: LanguageTable) -> str:
        """Return "her name is Ida" as "my sister is called Ida" if only she was mentioned."""
        called = table.match("called", clause)
        if called is None or not self.speaker.relative:
            return clause
        return table.write("called", noun=self.speaker.relative, name=clause[called.end() :])

    def _append(self, statement: Statement, clause: str, earlier_ids: tuple[str, ...] = ()) -> None:
        sourced = SourcedStatement(statement, self.utterance, self.time, clause, earlier_ids)
        self.statements.append(sourced)
        if statement.memory_type == "plan":
            self.speaker.plan = sourced

    def _correct(self, correction: re.Match[str], language: Language) -> None:
        """Apply "no wait, Milan" to the last statement; without a new value it is dropped."""
        reader, me = READERS[language], self.speaker.person(language)
        new = correction["new"].strip(" ,，.。")
        _, restated = reader.read_clause(new, me, None, self.time)
        if restated is not None:
            self._append(restated, new)
            return
        last = self.statements[-1] if self.statements else self.speaker.last
        if last is None or last.statement.language != language:
            return
        corrected: Statement | None = None
        if new and len(new) <= _MAX_CORRECTION and last.statement.value:
            clause = _replace_value(last, new)
            _, corrected = reader.read_clause(clause, me, me, last.time)
        is_same_slot = corrected is not None and corrected.field == last.statement.field
        if is_same_slot or correction["strong"]:
            if self.statements:
                self.statements.pop()
            else:
                self.speaker.last = None
        if corrected is not None and is_same_slot:
            ids = (*last.earlier_ids, last.utterance.message_id)
            self._append(corrected, clause, ids if last.utterance is not self.utterance else ())

    def _forget(self, topic: str, language: Language) -> None:
        """Add what to forget: a statement, or the slot that a noun names."""
        reader, me = READERS[language], self.speaker.person(language)
        _, statement = reader.read_clause(topic, me, me, self.time)
        if statement is not None:
            self._append(retract(statement), topic)
            return
        noun = reader.table.fullmatch("topic_noun", topic)
        field = reader.table.mapping("nouns").get(noun["noun"].lower()) if noun else None
        if field is not None:
            # A negated retraction empties its slot, whatever the value is.
            text = reader.table.rewrite("remembered", topic).replace("@", me.label)
            text += "。" if language == "zh" else "."
            self._append(
                Statement(text, me.key, language, "retraction", field, negated=True), topic
            )

    def _verbatim(self, sentence: Sentence) -> Statement:
        """Return what the assistant is asked to remember, in the third person."""
        me = self.speaker.person(sentence.language)
        text = READERS[sentence.language].table.rewrite("remembered", normalize_sentence(sentence))
        text = text.replace("@", me.label).strip(" ,:，：")
        end = "。" if sentence.language == "zh" else "."
        text = text[:1].upper() + text[1:] + end
        return Statement(text, me.key, sentence.language, "general", dates="all")


def _replace_value(last: SourcedStatement, new: str) -> str:
    """Return the clause of a statement with a new value, or with a new time."""
    spans = find_statement_times(last.clause, last.time)
    if spans and (day := _DAY.fullmatch(new)):
        return last.clause.replace(spans[-1].text, _DAY_IN.sub(day[1], spans[-1].text, count=1))
    if spans and has_time(new, last.time):
        return last.clause.replace(spans[-1].text, new)
    return last.clause.replace(last.statement.value, new)


def _forgotten(sentence: Sentence) -> str:
    """Return what the assistant is asked to forget; empty if nothing that the rules can read."""
    table = READERS[sentence.language].table
    match = table.match("forget", normalize_sentence(sentence))
    if match is None:
        return ""
    groups = match.groupdict()
    topic = (groups["what"] or groups.get("that") or "").strip("，, ")
    return "" if table.fullmatch("forget_nothing", topic) else topic


def build_facts(statements: Sequence[SourcedStatement]) -> list[Fact]:
    """Return the statements as facts; a repeated sentence is one fact with all its sources."""
    facts: dict[tuple[str, str, str], Fact] = {}
    for statement in statements:
        fact = _build_fact(statement)
        key = (normalize(fact.text).casefold(), fact.subject, fact.memory_type)
        if first := facts.get(key):
            sources = dict.fromkeys((*first.source_ids, *fact.source_ids))
            fact = replace(first, source_ids=tuple(sources))
        facts[key] = fact
    return list(facts.values())


def _build_fact(sourced: SourcedStatement) -> Fact:
    statement, now = sourced.statement, sourced.time.now
    dated = date_statement(statement, sourced.time)
    ids = dict.fromkeys((*sourced.earlier_ids, sourced.utterance.message_id))
    return Fact(
        text=dated.text,
        subject=statement.subject,
        memory_type=statement.memory_type,
        field=slot_name(statement.field),
        source_ids=tuple(ids),
        valid_from=now if statement.memory_type == "plan" else min(dated.since or now, now),
        negated=statement.negated,
        keywords=fact_keywords(statement.text, statement.subject),
    )


def slot_name(field: str | None) -> str | None:
    """Return a slot as an identifier: "staging port" becomes staging_port."""
    return re.sub(r"\s+", "_", field.strip().lower()) or None if field else None
