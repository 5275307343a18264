"""Dialogues without a model: follow-ups, repeated questions and what is said on the way."""

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memrecall.chat import SingleChat
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.types import NewMessage, Role

from .chat_helpers import NOW, make_options

pytestmark = pytest.mark.texts

FILE = Path(__file__).parent.parent.parent / "fixtures" / "chat" / "dialogues.jsonl"
NOTHING = {"en": "I found nothing about this", "zh": "在以前的对话里没有找到相关内容。"}
MOST_WRONG = 0.05  # of answers that quote: what is absent is not always told from what is near
MOST_SILENT = 0.2  # of all: many follow-ups find what they ask for with a low probability


@dataclass(frozen=True)
class Dialogue:
    """What a user said before, the turns of a chat and what each answer has to contain."""

    name: str
    language: str
    before: list[str]
    turns: list[dict[str, Any]]


def load_dialogues() -> list[Dialogue]:
    return [Dialogue(**json.loads(line)) for line in FILE.read_text("utf-8").splitlines()]


@dataclass(frozen=True)
class Answered:
    """An answer, whether it is right, and whether it quotes an earlier question."""

    text: str
    is_right: bool
    quotes_question: bool


async def play(library: Library, dialogue: Dialogue) -> list[Answered]:
    """Return the answers to the turns; a user of its own keeps dialogues apart."""
    user = f"dialogue {dialogue.name}"
    messages = [
        NewMessage(role=Role.USER, content=text, ts=NOW - timedelta(days=20 - number))
        for number, text in enumerate(dialogue.before)
    ]
    await library.add_messages(Scope(user, session_id="before"), messages)
    await library.vectors.settle()
    chat = SingleChat(
        library, Scope(user, session_id="now"), options=make_options(keep_traces_days=0)
    )
    answers: list[Answered] = []
    questions: list[str] = []
    for turn in dialogue.turns:
        text = (await chat.answer(turn["user"])).text
        is_quoted = any(question in text for question in questions)
        answers.append(
            Answered(
                f"{turn['user']} -> {text}", is_right(text, turn, dialogue.language), is_quoted
            )
        )
        questions += [] if turn.get("noted") else [f"“{turn['user']}”"]
    return answers


def is_right(answer: str, turn: dict[str, Any], language: str) -> bool:
    if turn.get("unknown") or turn.get("noted"):
        return answer.startswith(NOTHING[language])
    has = all(words in answer for words in turn["has"])
    return has and not any(words in answer for words in turn.get("lacks", ()))


async def test_answers_follow_dialogues(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "a.db"), embedder="local", snapshots=False)
    async with await Library.open(settings) as library:
        answers = [each for dialogue in load_dialogues() for each in await play(library, dialogue)]
    assert [each.text for each in answers if each.quotes_question] == []
    wrong = [each.text for each in answers if not each.is_right]
    silent = [text for text in wrong if any(words in text for words in NOTHING.values())]
    assert len(silent) <= MOST_SILENT * len(answers), "\n".join(silent)
    assert len(wrong) - len(silent) <= MOST_WRONG * len(answers), "\n".join(wrong)
