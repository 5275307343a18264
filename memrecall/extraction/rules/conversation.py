"""From a conversation to statements and facts, with corrections and short answers resolved."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from itertools import islice

from memrecall.extraction.protocol import Fact, Utterance
from memrecall.extraction.quotations import MAX_MESSAGE, is_person
from memrecall.extraction.rules.chinese import ChineseReader
from memrecall.extraction.rules.dates import date_statement, find_statement_times, last_date
from memrecall.extraction.rules.english import EnglishReader
from memrecall.extraction.rules.statements import (
    ReferenceTime,
    SpeakerContext,
    StatedRelation,
    Statement,
)
from memrecall.extraction.rules.tables import load_table
from memrecall.extraction.sentences import Sentence, split_sentences
from memrecall.extraction.signature import fact_keywords
from memrecall.text.language import language_of
from memrecall.text.normalize import normalize

_TABLES = {"en": load_table("en"), "zh": load_table("zh")}
_SHARED = load_table("shared")
_MAX_ANSWER_WORDS = 7
_MAX_ANSWER_CHARACTERS = 14
_MAX_CORRECTION_WORDS = 4
_MAX_CORRECTION_CHARACTERS = 30
_MAX_QUESTION = 400
_MAX_CORRECTED = 3


def complete_answer(sentence: Sentence, question: str) -> Sentence | None:
    """Return the short answer to a question as a whole sentence, or None."""
    text = sentence.text
    is_chinese = sentence.language == "zh"
    size = len(text) if is_chinese else len(text.split())
    limit = _MAX_ANSWER_CHARACTERS if is_chinese else _MAX_ANSWER_WORDS
    if sentence.is_question or size > limit or _SHARED.fullmatch("empty_answer", text):
        return None
    last = re.split(r"(?<=[.!。！\n])\s*", question.strip()[-_MAX_QUESTION:])[-1]
    if not last.rstrip().endswith(("?", "？")):
        return None
    answer = _SHARED.remove("answer_opening", text).strip(" ,.，。")
    for table in _TABLES.values():
        for template, pattern in table.patterns("answers"):
            if match := pattern.search(last):
                topic = next((group for group in match.groupdict().values() if group), "")
                count, _, rest = answer.partition(",")
                full = template.replace("{what}", topic.strip()).replace("{answer}", answer)
                full = full.replace("{count}", count).replace("{rest}", rest and f",{rest}")
                return Sentence(full, is_question=False, language=language_of(full))
    return None


def correct_statement(
    sentence: Sentence, previous: Statement, time: ReferenceTime, is_latest: bool
) -> Statement | None:
    """Return an earlier statement with what a sentence corrects; None if it is no correction.

    A value without a time corrects only the latest statement.
    """
    table = _TABLES[sentence.language]
    is_cue = table.match("correction_cue", sentence.text)
    match = table.fullmatch("correction", sentence.text) if is_cue else None
    if match is None or previous.language != sentence.language:
        return None
    new, old = match["new"].strip(), (match["old"] or "").strip()
    if table.search("no_object", new):
        return None  # 不是我
    text = _replace(previous, new, old, time, is_latest=is_latest)
    if text is None or text == previous.text:
        return None
    value = previous.value.replace(old, new) if old else previous.value
    kept = tuple(item for item in previous.relations if item.destination not in previous.value)
    return replace(previous, text=text, value=value, relations=kept)


def refers_back(text: str) -> bool:
    """Return True if a message changes something that an earlier one may name."""
    return any(table.search("dose_change", text[:MAX_MESSAGE]) for table in _TABLES.values())


def change_dose(
    sentence: Sentence, earlier: Sequence[Statement], speaker: SpeakerContext
) -> Statement | None:
    """Return what a speaker takes after a change of dose ("doubled it to 1000 mg", 改成半片).

    "It" is the last thing that they take a dose of.
    """
    table = _TABLES[sentence.language]
    match = table.search("dose_change", sentence.text)
    if match is None:
        return None
    after = _SHARED.search("drug_after_dose", sentence.text[match.end() :])
    dose, drug = match["dose"], match["drug"] or (after["drug"] if after else "")
    if dose.isdigit() and not table.search("drug", drug):
        return None  # "raised the rent to 940"
    kin = table.search("mentioned_kin", sentence.text)
    is_other = kin and table.mapping("kinship").get(kin["noun"]) != "treated_by"
    own = speaker.person(sentence.language)
    me = speaker.last_person if speaker.last_person and is_other else own
    for statement in reversed(earlier):
        taken = table.search("dosed_drug", statement.text)
        if taken and statement.subject == me.key and drug.casefold() in statement.text.casefold():
            if statement.negated:  # "was on metformin 500 mg"
                drug = taken["drug"] or taken["other"]
                break
            text = table.pattern("dose").sub(dose, statement.text, count=1)
            return replace(statement, text=text, relations=(), tense="present")
    if not drug:
        return None
    what = dose + drug if sentence.language == "zh" else f"{drug} {dose}"
    text = table.write("takes_dose", me=me.label, what=what)
    source = _READERS[sentence.language].entity_name(me, own)
    relation = StatedRelation("takes", drug, source=source)
    return Statement(text, me.key, sentence.language, "habit", value=what, relations=(relation,))


def _replace(
    previous: Statement, new: str, old: str, time: ReferenceTime, *, is_latest: bool
) -> str | None:
    text = previous.text
    if old and old in text:
        return text.replace(old, new)
    is_day = _SHARED.fullmatch("day_of_month", new)
    if is_day or find_statement_times(new, time):
        times = find_statement_times(text, time)
        if not times:
            return None
        start, words = times[-1].position, times[-1].text
        if is_day and _SHARED.search("month_and_day", words):
            new = re.sub(r"\d+", re.sub(r"\D", "", new), words)
        lead = re.match(r"(?:on|in|at) ", words, re.IGNORECASE)
        has_lead = re.match(r"(?:on|in|at|next|tomorrow|today|this)\b", new, re.IGNORECASE)
        new_time = lead.group() + new if lead and not has_lead else new
        return text[:start] + new_time + text[start + len(words) :]
    is_short = len(new.split()) <= _MAX_CORRECTION_WORDS and len(new) <= _MAX_CORRECTION_CHARACTERS
    has_value = (
        is_latest and previous.field is not None and previous.value and previous.value in text
    )
    return text.replace(previous.value, new) if is_short and has_value and not old else None


_CAPITALIZED = re.compile(r"(?<=[a-z,] )[A-Z][\w'-]+")
_READERS = {"en": EnglishReader(), "zh": ChineseReader()}


@dataclass(frozen=True, slots=True)
class SourcedStatement:
    """A statement with the message it comes from and when that was written."""

    statement: Statement
    utterance: Utterance
    time: ReferenceTime
    is_context: bool
    corrects: "SourcedStatement | None" = None


@dataclass(slots=True)
class _ConversationState:
    """The state of a conversation between sentences."""

    people: frozenset[str]
    capitalized: frozenset[str]
    speakers: dict[str | None, SpeakerContext] = field(default_factory=dict)
    statements: list[SourcedStatement] = field(default_factory=list)
    previous_message: str = ""

    def speaker(self, name: str | None) -> SpeakerContext:
        others = self.people - {name or ""}
        new = SpeakerContext(name, others, capitalized=self.capitalized)
        return self.speakers.setdefault(name, new)

    def latest(self, name: str | None) -> list[SourcedStatement]:
        """Return the last statements of a speaker, latest first: what a correction may mean."""
        own = (item for item in reversed(self.statements) if item.utterance.speaker == name)
        return list(islice(own, _MAX_CORRECTED))


def read_statements(
    utterances: Sequence[Utterance],
    *,
    now: datetime,
    zone: tzinfo,
    context: Sequence[Utterance] = (),
) -> list[SourcedStatement]:
    """Return everything that the utterances state, in order, without corrected statements."""
    by_people = [utterance for utterance in (*context, *utterances) if is_person(utterance)]
    people = frozenset(utterance.speaker for utterance in by_people if utterance.speaker)
    texts = (utterance.text[:MAX_MESSAGE] for utterance in by_people)
    capitalized = {word for text in texts for word in _CAPITALIZED.findall(text)}
    conversation = _ConversationState(people, people | capitalized)
    statements: list[SourcedStatement] = []
    for place, utterance in enumerate((*context, *utterances)):
        if is_person(utterance):
            time = ReferenceTime(utterance.ts or now, zone)
            is_context = place < len(context)
            statements += _read_utterance(utterance, conversation, time, is_context=is_context)
        conversation.previous_message = utterance.text
    corrected = {id(statement.corrects) for statement in statements}
    return [item for item in statements if not item.is_context and id(item) not in corrected]


def read_sentence(
    sentence: Sentence, speaker: SpeakerContext, time: ReferenceTime
) -> list[Statement]:
    """Return what one sentence states."""
    return list(_READERS[sentence.language].read(sentence, speaker, time))


def _read_utterance(
    utterance: Utterance, conversation: _ConversationState, time: ReferenceTime, *, is_context: bool
) -> Iterator[SourcedStatement]:
    speaker = conversation.speaker(utterance.speaker)
    time = replace(time, previous=speaker.last_date)
    speaker.in_scene = False
    speaker.in_person = bool(_TABLES["zh"].search("my_word", utterance.text[:MAX_MESSAGE]))
    speaker.about_other = bool(_TABLES["zh"].match("third_person", conversation.previous_message))
    for sentence in split_sentences(utterance.text):
        if _plays_role(sentence, speaker):
            continue
        statements = read_sentence(sentence, speaker, time)
        corrects: SourcedStatement | None = None
        is_dose = bool(_apply_dose(sentence, [], conversation, speaker))
        if not statements and not sentence.is_question and not is_dose:
            for place, last in enumerate(conversation.latest(utterance.speaker)):
                corrected = correct_statement(sentence, last.statement, last.time, place == 0)
                if corrected:
                    # The other words were said then, so their times are relative to then.
                    corrects, statements, time = last, [corrected], last.time
                    break
        if corrects is None and not sentence.is_question:
            statements = _read_answer(sentence, statements, conversation, speaker, time)
        statements = _apply_dose(sentence, statements, conversation, speaker)
        for statement in statements:
            sourced = SourcedStatement(statement, utterance, time, is_context, corrects)
            speaker.last_date = last_date(statement, time)
            time = replace(time, previous=speaker.last_date)
            conversation.statements.append(sourced)
            yield sourced
        speaker.previous = sentence.text


def _read_answer(
    sentence: Sentence,
    statements: list[Statement],
    conversation: _ConversationState,
    speaker: SpeakerContext,
    time: ReferenceTime,
) -> list[Statement]:
    """Return the statements with the short answer that opens the first sentence of a message."""
    question, conversation.previous_message = conversation.previous_message, ""
    head = re.split(r"[，,]| (?=[一-鿿])", sentence.text, maxsplit=1)[0] if statements else ""
    short = replace(sentence, text=head) if statements else sentence
    full = (
        None
        if any(head in item.text for item in statements if head)
        else complete_answer(short, question)
    )
    return (read_sentence(full, speaker, time) if full else []) + statements


def _apply_dose(
    sentence: Sentence,
    statements: list[Statement],
    conversation: _ConversationState,
    speaker: SpeakerContext,
) -> list[Statement]:
    """Return the statements of a sentence with the dose that it changes."""
    earlier = [item.statement for item in conversation.statements] + statements
    changed = None if sentence.is_question else change_dose(sentence, earlier, speaker)
    if changed is None:
        return statements
    # "Was on metformin 500 mg" is no longer so, and neither is its relation.
    return [item for item in statements if item.field != "medication"] + [changed]


def _plays_role(sentence: Sentence, speaker: SpeakerContext) -> bool:
    """Return True from "pretend I am a pirate" on, until the speaker stops playing.

    What somebody imagines ends with their message.
    """
    table, text = _TABLES[sentence.language], sentence.text
    if speaker.in_role and table.search("role_end", text):
        speaker.in_role = False
        return True
    if start := table.search("role_start", text):
        speaker.in_scene = True
        speaker.in_role = speaker.in_role or start["scene"] is None
    return speaker.in_role or speaker.in_scene


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
    return Fact(
        text=dated.text,
        subject=statement.subject,
        memory_type=statement.memory_type,
        field=slot_name(statement.field),
        source_ids=tuple(dict.fromkeys(_source_ids(sourced))),
        valid_from=now if statement.memory_type == "plan" else min(dated.since or now, now),
        negated=statement.negated,
        keywords=fact_keywords(statement.text, statement.subject),
    )


def slot_name(field: str | None) -> str | None:
    """Return a slot as an identifier: "staging port" becomes staging_port."""
    return re.sub(r"\s+", "_", field.strip().lower()) or None if field else None


def _source_ids(sourced: SourcedStatement) -> Iterator[str]:
    if sourced.corrects is not None:
        yield from _source_ids(sourced.corrects)
    yield sourced.utterance.message_id
