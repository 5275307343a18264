"""From utterances to facts: who speaks, what each sentence tells, when, and what was corrected."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

from memrecall.extraction.gist import telling_words
from memrecall.extraction.protocol import Fact, Utterance
from memrecall.extraction.rules.answering import complete
from memrecall.extraction.rules.chinese.reader import read_chinese
from memrecall.extraction.rules.correcting import correct
from memrecall.extraction.rules.dating import Moment, write_dates
from memrecall.extraction.rules.english.reader import read_english
from memrecall.extraction.rules.speech import LONGEST_READ, Sentence, sentences, speaks
from memrecall.extraction.rules.statements import Scene, Statement
from memrecall.text.normalize import normalize

_CAPITAL = re.compile(r"(?<=[a-z,] )[A-Z][\w'-]+")


@dataclass(frozen=True, slots=True)
class Telling:
    """A statement, where it was said, and when."""

    statement: Statement
    utterance: Utterance
    moment: Moment
    fresh: bool  # not of the context
    corrects: "Telling | None" = None


@dataclass(slots=True)
class _Conversation:
    """What is kept from sentence to sentence."""

    people: frozenset[str]
    named: frozenset[str] = frozenset()
    scenes: dict[str | None, Scene] = field(default_factory=dict)
    last: dict[str | None, Telling] = field(default_factory=dict)
    asked: str = ""

    def scene(self, speaker: str | None) -> Scene:
        others = self.people - {speaker or ""}
        return self.scenes.setdefault(speaker, Scene(speaker, others, named=self.named))


def tell(
    utterances: Sequence[Utterance],
    *,
    now: datetime,
    zone: tzinfo,
    context: Sequence[Utterance] = (),
) -> list[Telling]:
    """Everything that the utterances tell, in order; what was corrected at once is left out."""
    spoken = [one for one in (*context, *utterances) if speaks(one)]
    people = frozenset(one.speaker for one in spoken if one.speaker)
    capitals = {word for one in spoken for word in _CAPITAL.findall(one.text[:LONGEST_READ])}
    talk = _Conversation(people, people | capitals)
    told: list[Telling] = []
    for place, utterance in enumerate((*context, *utterances)):
        fresh = place >= len(context)
        if speaks(utterance):
            moment = Moment(utterance.ts or now, zone)
            told += _read(utterance, talk, moment, fresh=fresh)
        talk.asked = utterance.text
    corrected = {id(one.corrects) for one in told if one.corrects}
    return [one for one in told if one.fresh and id(one) not in corrected]


def _read(
    utterance: Utterance, talk: _Conversation, moment: Moment, *, fresh: bool
) -> Iterator[Telling]:
    scene = talk.scene(utterance.speaker)
    for sentence in sentences(utterance.text):
        found = list(_read_sentence(sentence, scene, moment))
        corrects: Telling | None = None
        if not found and not sentence.asks:
            corrects = talk.last.get(utterance.speaker)
            statement = corrects and correct(sentence, corrects.statement, corrects.moment)
            if corrects and statement:
                # Its other words were said then; only the new ones belong to now.
                found, moment = [statement], corrects.moment
            elif full := complete(sentence, talk.asked):
                found = list(_read_sentence(full, scene, moment))
                corrects = None
        for statement in found:
            telling = Telling(statement, utterance, moment, fresh, corrects)
            talk.last[utterance.speaker] = telling
            yield telling
        scene.before = sentence.text


def _read_sentence(sentence: Sentence, scene: Scene, moment: Moment) -> Iterator[Statement]:
    read = read_chinese if sentence.language == "zh" else read_english
    return read(sentence, scene, moment)


def facts_of(told: Sequence[Telling]) -> list[Fact]:
    """The statements as facts; the same sentence twice is one fact with both sources."""
    facts: dict[tuple[str, str, str], Fact] = {}
    for telling in told:
        fact = _fact(telling)
        key = (normalize(fact.text).casefold(), fact.subject, fact.memory_type)
        if before := facts.get(key):
            sources = dict.fromkeys((*before.source_ids, *fact.source_ids))
            fact = replace(before, source_ids=tuple(sources))
        facts[key] = fact
    return list(facts.values())


def _fact(telling: Telling) -> Fact:
    said = telling.statement
    dated = write_dates(said.text, telling.moment, said.language, said.tense, said.dates)
    since = dated.since
    if since is None or since > telling.moment.now or said.memory_type == "plan":
        since = telling.moment.now
    return Fact(
        text=dated.text,
        subject=said.subject,
        memory_type=said.memory_type,
        field=slot_name(said.field),
        source_ids=tuple(dict.fromkeys(_sources(telling))),
        valid_from=since,
        negated=said.negated,
        keywords=telling_words(said.text, said.subject),
    )


def slot_name(field: str | None) -> str | None:
    """A slot as an identifier: "staging port" is staging_port."""
    return re.sub(r"\s+", "_", field.strip().lower()) or None if field else None


def _sources(telling: Telling) -> Iterator[str]:
    if telling.corrects is not None:
        yield from _sources(telling.corrects)
    yield telling.utterance.message_id
