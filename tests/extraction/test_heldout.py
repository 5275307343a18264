"""The precision and recall of the rules on held-out conversations."""

import pytest

from .scores import FORMS, SECOND_UNSEEN, TRAPS, UNSEEN, held_out, measure, measure_relations

pytestmark = pytest.mark.texts


async def test_precision_and_recall_do_not_fall() -> None:
    score = (await measure(held_out()))["all"]
    assert score.correct / score.extracted >= 0.85
    assert score.correct / score.expected >= 0.55


async def test_conversations_of_another_author_are_read_in_both_languages() -> None:
    scores = await measure(held_out(UNSEEN))
    for language, recall in (("en", 0.85), ("zh", 0.85)):
        score = scores[language]
        assert score.correct / score.extracted >= 0.9, score.wrong
        assert score.correct / score.expected >= recall, score.missed


async def test_single_sentences_by_kind_of_error() -> None:
    scores = await measure(held_out(FORMS))
    for language in ("en", "zh"):
        score = scores[language]
        assert score.correct / score.extracted >= 0.9, score.wrong
        assert score.correct / score.expected >= 0.6, score.missed


async def test_little_that_is_wrong_is_read_from_casual_chat() -> None:
    for file, recall in ((TRAPS, 0.5), (SECOND_UNSEEN, 0.2)):
        scores = await measure(held_out(file))
        for language in ("en", "zh"):
            score = scores[language]
            assert score.correct / score.extracted >= 0.9, (file.name, score.wrong)
            assert score.correct / score.expected >= recall, (file.name, score.missed)
        related = (await measure_relations(file))["all"]
        assert related.correct / related.extracted >= 0.9, related.wrong


async def test_relations_of_another_author_are_precise() -> None:
    scores = await measure_relations()
    for language in ("en", "zh"):
        score = scores[language]
        assert score.correct / score.extracted >= 0.9, score.wrong
        assert score.correct >= 30
