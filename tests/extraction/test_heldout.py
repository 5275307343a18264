"""The held-out conversations: their format, and the precision and recall of the rules."""

import json

from benchmarks.extraction import HELD_OUT, held_out, measure


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
