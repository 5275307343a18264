"""Dialogues with the offline rules: follow-ups, repeated questions and what is said on the way."""

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
from tests.cases import check_each_async

from .chat_helpers import NOW, make_options

pytestmark = pytest.mark.texts

FILE = Path(__file__).parent.parent.parent / "fixtures" / "chat" / "dialogues.jsonl"
UNKNOWN = {"en": "I do not know", "zh": "我不知道"}
NOTED = {"en": "All right.", "zh": "好的。"}


@dataclass(frozen=True)
class Dialogue:
    """What a user said before, the turns of a chat and what each answer has to contain."""

    name: str
    language: str
    before: list[str]
    turns: list[dict[str, Any]]


def load_dialogues() -> list[Dialogue]:
    return [Dialogue(**json.loads(line)) for line in FILE.read_text("utf-8").splitlines()]


async def play(library: Library, dialogue: Dialogue) -> list[str]:
    """Return the problems of the answers; a user of its own keeps dialogues apart."""
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
    problems: list[str] = []
    questions: list[str] = []
    for turn in dialogue.turns:
        answer = (await chat.answer(turn["user"])).text
        if not is_right(answer, turn, dialogue.language) or any(q in answer for q in questions):
            problems.append(f"{turn['user']} -> {answer}")
        questions += [] if turn.get("noted") else [f"“{turn['user']}”"]
    return problems


def is_right(answer: str, turn: dict[str, Any], language: str) -> bool:
    if turn.get("unknown"):
        return answer.startswith(UNKNOWN[language])
    if turn.get("noted"):
        return answer == NOTED[language]
    has = all(words in answer for words in turn["has"])
    return has and not any(words in answer for words in turn.get("lacks", ()))


async def test_rules_follow_dialogues(tmp_path: Path) -> None:
    """Which questions follow others is judged by words, on any database."""
    settings = Settings(db=str(tmp_path / "a.db"), embedder="local", snapshots=False)
    async with await Library.open(settings) as library:

        async def check(dialogue: Dialogue) -> None:
            problems = await play(library, dialogue)
            assert not problems, "\n        ".join(problems)

        await check_each_async(load_dialogues(), check, lambda dialogue: dialogue.name)
