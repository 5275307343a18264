"""The precision of the rules on conversations whose authors had not read them."""

import pytest

from .scores import ALL_FILES, held_out, measure, measure_relations

pytestmark = pytest.mark.texts


async def test_little_that_is_wrong_is_read() -> None:
    extracted = correct = 0
    wrong: list[str] = []
    for file in ALL_FILES:
        score = (await measure(held_out(file)))["all"]
        extracted, correct = extracted + score.extracted, correct + score.correct
        wrong += score.wrong
    assert correct >= 55
    assert correct / extracted >= 0.95, wrong


async def test_relations_are_precise() -> None:
    scores = [(await measure_relations(file))["all"] for file in ALL_FILES[2:]]
    extracted = sum(score.extracted for score in scores)
    assert extracted >= 20
    correct = sum(score.correct for score in scores)
    assert correct / extracted >= 0.9, [score.wrong for score in scores]
