"""Chat-like text of any length, deterministic for a seed.

Real conversations are cut into turns and repeated with other numbers, names and orders of
sentences: no two copies are equal, and the vocabulary grows as in real text.
"""

import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from memrecall.types import NewMessage, Role

LONGEST_TURN = 200
SHORT_TURN = 40
_TURNS_A_SESSION = 20
_START = datetime(2021, 1, 1, 8, tzinfo=UTC)
_SENTENCE = re.compile(r"[^。！？!?.\n]*(?:[。！？!?\n]+|\.(?=\s|$)|\.|$)")
_PLACEHOLDER = re.compile(r"\d+|\b[A-Z][a-z]{2,}\b")
_ONSETS = (*"bdfgklmnrstvz", "ch", "sh", "br")
_RHYMES = (*"aeiou", "an", "en", "ia", "or")
_SURNAMES = "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗"
_GIVEN = "伟芳娜敏静丽强磊军洋勇艳杰娟涛明超秀霞平刚桂英华玉兰红梅建国文辉力雪婷宇浩晨轩梓涵"

# A sentence as pieces: the odd ones are numbers and names, which a copy changes.
Sentence = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One person's message."""

    session: str
    speaker: str
    text: str
    ts: datetime

    def to_message(self, number: int) -> NewMessage:
        """Return the turn as a new message with that number as its id."""
        role = Role.USER if number % 2 else Role.ASSISTANT
        return NewMessage(
            content=self.text, role=role, message_id=f"m{number}", ts=self.ts, speaker=self.speaker
        )


class Corpus:
    """An endless conversation made of real ones, with questions about them."""

    def __init__(self, texts: Iterable[str], questions: Iterable[str], origin: str) -> None:
        self.origin = origin
        self._turns = [turn for text in texts for turn in _cut_into_turns(text)]
        random.Random(7).shuffle(self._turns)
        self._questions = sorted(set(questions))
        random.Random(7).shuffle(self._questions)

    def texts(self, count: int, seed: int = 1) -> Iterator[str]:
        """Return `count` texts: the real ones first, then changed copies."""
        number = 0
        chance = random.Random(seed)
        while number < count:
            for turn in islice(self._turns, count - number):
                yield _join(turn) if number < len(self._turns) else self._retell(turn, chance)
                number += 1

    def turns(self, count: int, seed: int = 1) -> Iterator[Turn]:
        """Return `count` turns, in sessions of twenty with one of a few speakers each."""
        chance = random.Random(seed)
        for number, text in enumerate(self.texts(count, seed)):
            if number % _TURNS_A_SESSION == 0:
                speakers = [_latin_name(chance), _han_name(chance)]
            session = f"s{number // _TURNS_A_SESSION}"
            time = _START + timedelta(minutes=7 * number)
            yield Turn(session, speakers[number % 2], text, time)

    def short_texts(self, count: int) -> list[str]:
        """Return chat messages of about forty characters."""
        enough = (text for text in self.texts(20 * count + 1_000, seed=3) if len(text) > SHORT_TURN)
        return [text[:SHORT_TURN] for text in islice(enough, count)]

    def questions(self, count: int) -> list[str]:
        """Return up to `count` distinct questions."""
        return self._questions[:count]

    def _retell(self, turn: list[Sentence], chance: random.Random) -> str:
        """Return a changed copy of a turn."""
        sentences = [_change(sentence, chance).strip() for sentence in turn]
        if len(sentences) == 1 or chance.random() < 0.3:
            sentences.append(_join(chance.choice(self._turns)[:1]))
            sentences = sentences[-max(2, len(turn)) :]
        chance.shuffle(sentences)
        return " ".join(sentences)[: 2 * LONGEST_TURN]


def load_corpus(data: Path, repository: Path) -> Corpus:
    """Load the labelled conversations if available, else the demo's, else invented ones."""
    texts: list[str] = []
    questions: list[str] = []
    for file in sorted(data.glob("*/corpus.jsonl")):
        texts += _read(file, "content")
        questions += _read(file.with_name("queries.jsonl"), "query")
    if texts:
        return Corpus(texts, questions, str(data))
    demo = repository / "fixtures" / "demo" / "chat.jsonl"
    if demo.exists():
        texts = _read(demo, "content")
        return Corpus(texts, _ask_about(texts), str(demo))
    from benchmarks.invented import invent_texts

    texts = invent_texts(20_000)
    return Corpus(texts, _ask_about(texts), "made up")


def _read(file: Path, field: str) -> list[str]:
    if not file.exists():
        return []
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line)[field] for line in lines if line.strip()]


def _ask_about(texts: list[str]) -> list[str]:
    """Return questions for texts without labels, made from the middle of a text."""
    sample = random.Random(5).sample(texts, min(len(texts), 400))
    return [text[len(text) // 3 : len(text) // 3 + 40].strip() or text[:40] for text in sample]


def _cut_into_turns(text: str) -> Iterator[list[Sentence]]:
    turn: list[Sentence] = []
    length = 0
    for sentence in _SENTENCE.findall(text):
        for start in range(0, len(sentence), LONGEST_TURN):
            piece = sentence[start : start + LONGEST_TURN]
            if turn and length + len(piece) > LONGEST_TURN:
                yield turn
                turn, length = [], 0
            if piece.strip():
                turn.append(_take_apart(piece))
                length += len(piece)
    if turn:
        yield turn


def _take_apart(sentence: str) -> Sentence:
    pieces: list[str] = []
    end = 0
    for match in _PLACEHOLDER.finditer(sentence):
        pieces += [sentence[end : match.start()], match.group()]
        end = match.end()
    return (*pieces, sentence[end:])


def _join(turn: list[Sentence]) -> str:
    return "".join(piece for sentence in turn for piece in sentence).strip()


def _change(sentence: Sentence, chance: random.Random) -> str:
    pieces = list(sentence)
    for at in range(1, len(pieces), 2):
        if pieces[at].isdecimal():
            pieces[at] = _other_number(pieces[at], chance)
        elif chance.random() < 0.3:
            pieces[at] = _latin_name(chance)
    if len(pieces) == 1 and not pieces[0].isascii() and chance.random() < 0.2:
        pieces.insert(0, _han_name(chance))
    return "".join(pieces)


def _other_number(digits: str, chance: random.Random) -> str:
    if len(digits) == 4 and digits.startswith("20"):
        return str(2020 + chance.randrange(7))
    if len(digits) <= 2:  # an hour, a day or a month stays valid
        return str(1 + chance.randrange(12 if int(digits) <= 12 else 31))
    return str(chance.randrange(10 ** (len(digits) - 1), 10 ** len(digits)))


def _latin_name(chance: random.Random) -> str:
    syllables = 1 + chance.randrange(3)
    parts = (chance.choice(_ONSETS) + chance.choice(_RHYMES) for _ in range(syllables + 1))
    return "".join(parts).capitalize()


def _han_name(chance: random.Random) -> str:
    return chance.choice(_SURNAMES) + "".join(chance.choices(_GIVEN, k=1 + chance.randrange(2)))
