"""The held-out conversations: well-formed, and found in them what was found before."""

import json

from benchmarks.extraction import HELD_OUT, held_out, measure


def test_the_file_is_well_formed() -> None:
    cases = [json.loads(line) for line in HELD_OUT.read_text("utf-8").splitlines()]
    languages = [case["language"] for case in cases]
    assert len(cases) >= 40
    assert languages.count("zh") >= len(cases) // 2
    assert len({case["id"] for case in cases}) == len(cases)
    for case in cases:
        assert set(case) == {"id", "language", "utterances", "facts", "also"}
        said = " ".join(one["text"] for one in case["utterances"])
        assert said
        assert all(one["words"] for one in [*case["facts"], *case["also"]])


async def test_precision_and_recall_do_not_fall() -> None:
    score = (await measure(held_out()))["all"]
    assert score.right / score.found >= 0.85
    assert score.hit / score.wanted >= 0.55
