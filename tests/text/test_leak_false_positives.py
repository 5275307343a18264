"""Ordinary prose, code, markup, LaTeX and JSON are unchanged and not reported."""

import json

import pytest

from memrecall.text import LeakFilter, filter_leaks
from tests.cases import check_each
from tests.text.leak_cases import FOLDER
from tests.text.leak_samples import REAL_SAMPLES, SAMPLES, TEMPLATE_SAMPLES

pytestmark = pytest.mark.texts

TOOLS = (
    *("recall_memory", "get_other_members_messages", "is_mentioned", "search_memory"),
    *("search_memories", "get_memory_detail", "expand_context_window", "expand_keywords"),
    "handoff",
)


PROSE = [
    json.loads(line)["text"] for line in (FOLDER / "prose.jsonl").read_text("utf-8").splitlines()
]
"""Texts about tokens, tools and tags, whose author did not know the filter."""


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


def test_prose_about_tokens_and_tools_is_unchanged_in_lenient_mode() -> None:
    def check(text: str) -> None:
        for names in (TOOLS, (*TOOLS, "search", "get_weather")):
            assert filter_leaks(text, names) == (text, [])
            assert filter_leaks(text, names, reasoning="auto") == (text, [])

    assert len(PROSE) >= 150
    check_each(PROSE, check, shorten)


def test_code_without_registered_tools_is_unchanged_in_strict_mode() -> None:
    def check(sample: str) -> None:
        assert filter_leaks(sample, ["no_such_tool"], mode="strict") == (sample, [])

    check_each([text for text in PROSE if "`" in text and "DSML" not in text], check, shorten)


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
