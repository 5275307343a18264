"""A threshold keeps the answer for a user with three memories and with thousands."""

import json
from itertools import cycle, islice
from pathlib import Path

import pytest

from memrecall.memory import AsyncMemory
from memrecall.settings import Settings

from ..cases import check_each_async

pytestmark = pytest.mark.texts

CORPUS = Path(__file__).parents[2] / "fixtures" / "eval" / "corpus.jsonl"
FACTS = [
    "I keep my bicycle in the cellar behind the green door.",
    "My sister Clara plays the cello in Lyon.",
    "我对花生过敏，尤其不能吃花生酱。",
]
QUESTIONS = {
    "Where is my bicycle?": FACTS[0],
    "Which instrument does my sister play?": FACTS[1],
    "我对什么过敏？": FACTS[2],
}
UNRELATED = [
    *("What is the boiling point of mercury?", "Who won the chess olympiad in Baku?"),
    *("Explain how a turbocharger works", "What did the dentist say about my crown?"),
    *("哪座火山在冰岛最近喷发了？", "怎样给量子计算机编程？", "推荐一本关于拜占庭历史的书"),
]


@pytest.mark.parametrize("others", [0, 400, pytest.param(2_000, marks=pytest.mark.long)])
async def test_a_half_keeps_answers_and_marks_what_is_below(tmp_path: Path, others: int) -> None:
    lines = CORPUS.read_text("utf-8").splitlines()
    texts = [json.loads(line)["content"] for line in lines]
    settings = Settings(db=str(tmp_path / "m.db"), embedder="local", snapshots=False)
    async with AsyncMemory(settings=settings, user_id="ann") as memory:
        await memory.add([*islice(cycle(texts), others), *FACTS], infer=False)
        await (await memory._open()).library.vectors.settle()

        async def check(question: str) -> None:
            page = await memory.search(question, limit=10, threshold=0.5)
            for item in page["results"]:
                assert (item["score"] < 0.5) == item.get("below_threshold", False)
            is_below = [item.get("below_threshold", False) for item in page["results"]]
            assert is_below == sorted(is_below)
            assert is_below.count(False) == min(page["total_found"], 10)
            assert ("below the threshold" in page["message"]) == (page["below_threshold"] > 0)
            if question in QUESTIONS:  # the score does not tell whether there is an answer
                assert page["results"][0]["memory"] == QUESTIONS[question]
                assert not is_below[0]

        await check_each_async([*QUESTIONS, *UNRELATED], check)
