"""Recall beside search on cases of independent authors: what is in front hides nothing."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from memrecall.agent import Recaller
from memrecall.evaluation.datasets import Question, import_corpus, read_corpus, read_questions
from memrecall.importers.jsonl import read_entry
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.settings import Settings

pytestmark = pytest.mark.texts

FOLDER = Path(__file__).parent.parent.parent.parent / "fixtures" / "authored"
MOST_EMPTY = 0.12  # of answerable questions


@dataclass(frozen=True)
class Answers:
    """Whether each result of a search, and each item of a recall, is evidence."""

    wanted: int
    found: list[bool]
    handed: list[bool]


async def ask(library: Library, question: Question) -> Answers:
    now = question.horizon
    assert now is not None
    scope = Scope(question.user_id)
    page = await library.search(scope, SearchRequest(question.query, now=now))
    lines = question.query.split("\n")
    roles = ["user" if (len(lines) - at) % 2 else "assistant" for at in range(len(lines))]
    messages = [{"role": role, "content": line} for role, line in zip(roles, lines, strict=True)]
    result = await Recaller(library, scope, clock=lambda: now).recall(messages)
    return Answers(
        len(question.evidence),
        [hit.key in question.evidence for hit in page.results],
        [memory.memory_key in question.evidence for memory in result.memories],
    )


def f1(wanted: int, right: list[bool]) -> float:
    return 2 * sum(right) / (wanted + len(right))


async def ask_all(author: str, folder: Path) -> list[Answers]:
    """Return the answers to an author's answerable questions."""
    questions = read_questions(FOLDER / author / "queries.jsonl").questions
    settings = Settings(db=str(folder / f"{author}.db"), embedder="local", snapshots=False)
    async with await Library.open(settings) as library:
        corpus = read_corpus(FOLDER / author / "corpus.jsonl", read_entry)
        await import_corpus(library, corpus, lambda lines: None)
        return [await ask(library, question) for question in questions if question.evidence]


async def test_recall_is_not_worse_than_search(tmp_path: Path) -> None:
    answers = [each for author in ("enH", "zhH") for each in await ask_all(author, tmp_path)]
    for first in (1, 3):
        found = sum(any(each.found[:first]) for each in answers)
        handed = sum(any(each.handed[:first]) for each in answers)
        # In five of two hundred, nothing is handed off because the best hit is too improbable, or a
        # complete request is searched alone and meant the lines before it.
        assert handed >= found - len(answers) / 40, f"of the first {first}"
    same = sum(f1(each.wanted, each.found[: len(each.handed)]) for each in answers)
    # A follow-up may be likelier with the lines before it, and yet wrong.
    assert sum(f1(each.wanted, each.handed) for each in answers) >= same - len(answers) / 200
    assert sum(not each.handed for each in answers) <= MOST_EMPTY * len(answers)
