"""A deterministic extractor for tests whose users say plain sentences."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from memrecall.extraction.protocol import (
    RETRACTION,
    USER,
    Entity,
    Extracted,
    Fact,
    FactType,
    KnownMemory,
    Relation,
    Summary,
    Utterance,
)

_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]?")
_PART = re.compile(r" and (?=I |my )|, |，")


@dataclass(frozen=True, slots=True)
class Statement:
    """A form of sentence, and the fact and the relation that it states."""

    pattern: str  # it captures the value
    text: str
    memory_type: FactType
    field: str
    relationship: str | None = None
    replaces: bool = False  # what is known of the field

    def match(self, part: str) -> str | None:
        """Return the value that a part of a sentence states."""
        match = re.fullmatch(self.pattern, part.strip())
        return match and match[1].strip()


_STATEMENTS = (
    Statement(r"(?:I|User) lives? in (.+)", "{} lives in {}.", "user_profile", "home",
              "lives_in", replaces=True),
    Statement(r"(?:I|User) moved to (.+)", "{} moved to {}.", "user_profile", "home",
              "lives_in", replaces=True),
    Statement(r"(?:I|User) works? at (.+)", "{} works at {}.", "user_profile", "employer",
              "works_at", replaces=True),
    Statement(r"(?:I am|I'm|User is) allergic to (.+)", "{} is allergic to {}.", "user_profile",
              "allergy", "allergic_to"),
    Statement(r"(?:I|User) likes? (.+)", "{} likes {}.", "user_preference", "likes", "likes"),
    Statement(r"(?:I|User) prefers? (.+)", "{} prefers {}.", "user_preference", "preference"),
    Statement(r"(?:My|User's) name is (.+)", "{}'s name is {}.", "user_profile", "name",
              replaces=True),
    Statement(r"(?:My|User's) sister (\w+) .+", "{0}'s {rest}.", "relationship",
              "sister", "sibling_of"),
    Statement(r"(?:我|用户)住在(.+)", "{}住在{}。", "user_profile", "home", "lives_in",
              replaces=True),
    Statement(r"(?:我|用户)搬到(.+?)了?", "{}搬到{}了。", "user_profile", "home", "lives_in",
              replaces=True),
    Statement(r"(?:我|用户)在(.+)上班", "{}在{}上班。", "user_profile", "employer", "works_at",
              replaces=True),
    Statement(r"(?:我|用户)对(.+)过敏", "{}对{}过敏。", "user_profile", "allergy", "allergic_to"),
    Statement(r"(?:我|用户)喜欢(.+)", "{}喜欢{}。", "user_preference", "likes", "likes"),
    Statement(r"(?:我叫|用户的名字是)(.+)", "{}的名字是{}。", "user_profile", "name",
              replaces=True),
)  # fmt: skip
_FORGET = {"Forget where I live.": "home", "忘掉我住在哪里。": "home"}


class SentenceExtractor:
    """Reads "I live in Rome and I am allergic to nuts.", "我住在北京。" and the other forms above.

    A fact that is known is not repeated. A home, an employer and a name replace the one before.
    """

    async def extract(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
        known: Sequence[KnownMemory] = (),
    ) -> Extracted:
        facts: dict[str, Fact] = {}
        relations: list[Relation] = []
        entities: dict[str, Entity] = {}
        for utterance in utterances:
            if not utterance.is_from_person:
                continue
            sources, subject = (utterance.message_id,), utterance.speaker or USER
            for statement, value, text in _read(utterance):
                facts[text] = Fact(
                    text,
                    subject,
                    statement.memory_type,
                    statement.field,
                    sources,
                    utterance.ts,
                    keywords=(value,),
                    replaces=_replaced(statement, subject, text, known),
                )
                if statement.field == "name":
                    entities[subject] = Entity(subject, "person", (value,), sources)
                elif statement.relationship is not None:
                    entities.setdefault(subject, Entity(subject, "person"))
                    entities.setdefault(value, Entity(value))
                    relation = (subject, statement.relationship, value, sources, utterance.ts)
                    relations.append(Relation(*relation))
            facts |= {f"-{fact.text}": fact for fact in _retractions(utterance, known)}
        stored = {(memory.subject, memory.text) for memory in known}
        new = tuple(f for f in facts.values() if (f.subject, f.text) not in stored)
        return Extracted(new, tuple(entities.values()), tuple(relations))

    async def summarise(
        self, lines: str | Sequence[Utterance | str], limit_characters: int
    ) -> Summary:
        messages = [lines] if isinstance(lines, str) else lines
        texts = [line if isinstance(line, str) else line.text for line in messages]
        return Summary("\n".join(texts)[:limit_characters])


def _read(utterance: Utterance) -> Iterator[tuple[Statement, str, str]]:
    """Yield what a message states: the form, the value and the text of the fact."""
    for sentence in _SENTENCE.findall(utterance.text):
        if sentence.endswith(("?", "？")):
            continue
        for part in _PART.split(sentence.rstrip(".!。！")):
            for statement in _STATEMENTS:
                if value := statement.match(part):
                    name = "用户" if statement.text.endswith("。") else "User"
                    yield (
                        statement,
                        value,
                        statement.text.format(
                            utterance.speaker or name, value, rest=part.partition(" ")[2]
                        ),
                    )
                    break


def _replaced(
    statement: Statement, subject: str, text: str, known: Sequence[KnownMemory]
) -> tuple[str, ...]:
    if not statement.replaces:
        return ()
    same = [k for k in known if (k.subject, k.field) == (subject, statement.field)]
    return tuple(memory.memory_key for memory in same if memory.text != text)


def _retractions(utterance: Utterance, known: Sequence[KnownMemory]) -> Iterator[Fact]:
    for sentence, field in _FORGET.items():
        keys = tuple(memory.memory_key for memory in known if memory.field == field)
        if sentence in utterance.text:
            yield Fact(sentence, USER, RETRACTION, field, (utterance.message_id,), replaces=keys)
