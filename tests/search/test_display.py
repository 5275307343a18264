"""Notebook views of search results: contents, both languages, escaping."""

from dataclasses import replace
from datetime import UTC, datetime

from memrecall.search import Hit, SearchPage
from memrecall.search.results import ScoreParts

from ..cases import check_each
from ..inert import EVIL, assert_harmless

SCORE_PARTS = ScoreParts(1.5, 0.25, 0.0, 0.0, 0.0, 0.0, -0.5, 1.0, 0.4)
HIT = Hit(
    key="m1", kind="message", score=0.91, ts=datetime(2026, 3, 2, 9, 5, tzinfo=UTC), role="user",
    speaker="Ann", content="The trout was excellent", session_id="s", memory_type="message",
    why=SCORE_PARTS,
    probability=0.5,
)  # fmt: skip


def test_page_html_has_table_and_remarks() -> None:
    page = SearchPage((HIT,), total_found=3, searched=1200, withheld=2, next_cursor="c")
    html = page._repr_html_()
    text = assert_harmless(html).text
    assert text == (
        "1 of 3 results · 1,200 searchedscorewhenwhowhat0.912026-03-02 09:05Ann"
        "The trout was excellent2 sensitive memories withheldthere are more"
    )
    assert ';color:#2f9e5c">0.91</td>' in html


def test_chinese_page_html_has_chinese_labels() -> None:
    page = SearchPage((replace(HIT, content="鳟鱼很好吃", speaker="林晓"),), total_found=1)
    text = assert_harmless(page._repr_html_()).text
    assert text == "1 条结果得分时间谁内容0.912026-03-02 09:05林晓鳟鱼很好吃"


def test_empty_page_html_explains() -> None:
    text = assert_harmless(SearchPage(explanation="no match: try other words")._repr_html_()).text
    assert text == "nothing was foundno match: try other words"


def test_hit_html_lists_score_parts() -> None:
    hit = replace(HIT, summary="About trout", keywords=("trout", "lake"), valid_to=HIT.ts)
    text = assert_harmless(hit._repr_html_()).text
    assert text.startswith("Ann · 2026-03-02 09:05 · m1 · 0.91About troutThe trout was excellent")
    assert "trout · lake" in text
    assert "replaced on 2026-03-02" in text
    parts = "chance of being relevant 0.50 · words +1.50 · meaning +0.25 · nature -0.50"
    assert f"why it was found{parts} · coverage +1.00 · cosine +0.40" in text


def test_user_text_is_escaped() -> None:
    def check(field: str) -> None:
        fields = {"role": None, "speaker": None, field: EVIL}
        hit = replace(HIT, **fields, keywords=(EVIL,))  # type: ignore[arg-type]
        page = SearchPage((hit,), total_found=1, explanation=EVIL)
        for html in (hit._repr_html_(), page._repr_html_()):
            assert EVIL in assert_harmless(html).text

    check_each(["key", "role", "speaker", "content", "memory_type", "summary"], check)


def test_long_content_is_truncated() -> None:
    hit = replace(HIT, content="x" * 100_000)
    assert "100,000 characters in all" in hit._repr_html_()
    assert len(hit._repr_html_()) < 5_000
    assert len(SearchPage((hit,) * 10, total_found=10)._repr_html_()) < 10_000
