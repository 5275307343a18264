"""The held-out conversations: their format, and the precision and recall of the rules."""

import json
from pathlib import Path

from benchmarks.extraction import (
    FORMS,
    HELD_OUT,
    SECOND_UNSEEN,
    TRAPS,
    UNSEEN,
    held_out,
    measure,
    measure_relations,
)


def test_held_out_file_is_well_formed() -> None:
    cases = [json.loads(line) for line in HELD_OUT.read_text("utf-8").splitlines()]
    languages = [case["language"] for case in cases]
    assert len(cases) >= 40
    assert languages.count("zh") >= len(cases) // 2
    assert len({case["id"] for case in cases}) == len(cases)
    for case in cases:
        assert set(case) == {"id", "language", "utterances", "facts", "also"}
        texts = " ".join(item["text"] for item in case["utterances"])
        assert texts
        assert all(item["words"] for item in [*case["facts"], *case["also"]])


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


async def test_relation_scores_count_wrong_and_missing_relations(tmp_path: Path) -> None:
    def row(subject: str, relation: str, name: str, *, ends: bool = False) -> dict[str, object]:
        return {"subject": subject, "relation": relation, "object": name, "ends": ends}

    texts = ["I moved from Leeds to York.", "I like tea.", "My neighbour Lorna is a nurse."]
    expected = [
        row("user", "lives_in", "york"),
        row("user", "lives_in", "Leeds", ends=True),
        row("user", "knows", "Lorna"),
        row("user", "likes", "tea", ends=True),
    ]
    case = {"id": "x", "language": "en", "facts": [], "also": [], "relations": expected}
    case["utterances"] = [{"role": "user", "text": text} for text in texts]
    file = tmp_path / "cases.jsonl"
    file.write_text(json.dumps(case), "utf-8")
    score = (await measure_relations(file))["en"]
    assert (score.correct, score.expected) == (3, 4)
    assert "x: ('user', 'likes', 'tea', False)" in score.wrong
    assert score.missed == ["x: ('user', 'likes', 'tea', True)"]
