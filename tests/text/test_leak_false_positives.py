"""Ordinary prose, code, markup, LaTeX and JSON are unchanged and not reported."""

from memrecall.text import LeakFilter, filter_leaks
from tests.cases import check_each
from tests.text.leak_samples import REAL_SAMPLES, SAMPLES, TEMPLATE_SAMPLES

TOOLS = (
    *("recall_memory", "get_other_members_messages", "is_mentioned", "search_memory"),
    *(
        "search_memories",
        "get_memory_detail",
        "expand_context_window",
        "expand_keywords",
        "handoff",
    ),
)


def shorten(sample: str) -> str:
    return repr(sample[:80])


def test_samples_cover_enough_prose() -> None:
    assert len(SAMPLES) == len(set(SAMPLES))
    assert len(TEMPLATE_SAMPLES) >= 500
    assert len(REAL_SAMPLES) >= 2_000
    assert sum(any("\u4e00" <= char <= "\u9fff" for char in sample) for sample in SAMPLES) >= 300


def test_prose_is_unchanged() -> None:
    def check(sample: str) -> None:
        assert filter_leaks(sample, TOOLS) == (sample, [])

    check_each(SAMPLES, check, shorten)


def test_prose_is_unchanged_in_chunks() -> None:
    def check(sample: str) -> None:
        leaks = LeakFilter(TOOLS)
        pieces = [leaks.feed(sample[at : at + 3]) for at in range(0, len(sample), 3)]
        assert ("".join(pieces) + leaks.close(), leaks.leaks) == (sample, [])

    check_each(SAMPLES, check, shorten)


def test_prose_is_unchanged_when_reasoning_is_stripped() -> None:
    def check(sample: str) -> None:
        assert filter_leaks(sample, TOOLS, reasoning="strip") == (sample, [])

    check_each(SAMPLES, check, shorten)
