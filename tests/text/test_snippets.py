"""Snippets: highlights, choice of passages, and where they are cut."""

import re
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memrecall.errors import InvalidArgument
from memrecall.text.snippets import Highlighter, mark_passages, snippets, truncate_at_word
from memrecall.text.tokens import SCAN, WORD, analyze, normalize_with_offsets, stem
from memrecall.text_length import ELLIPSIS
from tests.cases import check_each, read_rows
from tests.counting import count_calls

CHINESE = "我们昨天在北京大学讨论了數據庫的設計，会议开得很顺利。"
ENGLISH = "The quick brown fox jumps over the lazy dog near port 8080. "
LATIN_WORD = re.compile(r"[^\W_\u3040-\u9fff]")


def highlight(content: str, *words: str) -> str:
    """Return the only passage, which is the whole content."""
    (passage,) = snippets(content, words, length=500, before="[", after="]")
    return passage


def test_highlights_matches() -> None:
    def check(case: tuple[str, list[str], str]) -> None:
        content, words, expected = case
        assert highlight(content, *words) == expected

    check_each(read_rows("snippets", "marks"), check)


def test_highlights_long_questions() -> None:
    question = " ".join(f"word{number}" for number in range(60))
    assert highlight("see word7 and word59, not word60", question) == (
        "see [word7] and [word59], not word60"
    )
    assert highlight("我们在北京讨论", "北京" + "很好" * 20) == "我们在[北京]讨论"


def test_passage_includes_context_of_its_match() -> None:
    content = ENGLISH * 10 + "A whale sings. " + ENGLISH * 10
    (passage,) = snippets(content, ["whale"], length=60)
    assert passage == "…lazy dog near port 8080. A <em>whale</em> sings. The quick brown fox…"


def test_chinese_passages_end_at_punctuation_or_word_borders() -> None:
    content = CHINESE * 5 + "图书馆里有一本关于机器学习的新书" + CHINESE * 5
    (passage,) = snippets(content, ["机器学习"], length=30)
    assert passage == "…图书馆里有一本关于<em>机器学习</em>的新书我们昨天在北京大学…"


def test_passage_with_most_distinct_terms_ranks_first() -> None:
    gap = ENGLISH * 5
    content = f"whale {gap} whale whale {gap} whale shark {gap} shark"
    passages = snippets(content, ["whale", "shark"], length=40)
    assert [re.findall("<em>(.*?)</em>", passage) for passage in passages] == [
        ["whale", "shark"],
        ["whale"],
        ["whale", "whale"],
    ]


def test_passages_do_not_overlap() -> None:
    content = " ".join(f"word{number} whale" for number in range(100))
    passages = snippets(content, ["whale"], length=50, limit=10)
    numbers = re.findall(r"word\d+", "".join(passages))
    assert len(passages) == 10
    assert len(numbers) == len(set(numbers))


def test_match_longer_than_the_passage_is_cut() -> None:
    word = "x" * 120_000
    assert snippets(f"a {word} b", [word], length=20) == [f"…<em>{word[:20]}</em>…"]
    assert snippets(f"a {word} b", ["xxxx*"], length=20) == [f"…<em>{word[:20]}</em>…"]
    family = "👨\u200d👩\u200d👧"
    assert snippets(family * 9, [family * 9], length=7) == [f"<em>{family}</em>…"]


def test_offsets_say_where_the_marked_words_are() -> None:
    content = "🇩🇪 <em>fake</em> ｈｏｔpot and hot\u200bpots, 火\u2060鍋 too"
    found = mark_passages(content, Highlighter(["hotpot", "火锅"]))
    assert [content[start:end] for start, end in found.offsets] == [
        *("ｈｏｔpot", "hot\u200bpots", "火\u2060鍋")
    ]
    (passage,) = found.snippets
    assert passage.count("<em>") == 1 + len(found.offsets)


def test_offsets_are_those_of_the_passages() -> None:
    content = "tea " + "x " * 500 + "green tea " + "y " * 500 + "tea"
    found = mark_passages(content, Highlighter(["green tea"]), limit=1)
    assert [content[start:end] for start, end in found.offsets] == ["green tea"]
    assert mark_passages(content, Highlighter(["coffee"])).offsets == ()


def test_snippet_without_match_is_the_start() -> None:
    assert snippets(ENGLISH * 3, ["whale"], length=20) == ["The quick brown fox…"]
    assert snippets("short", ["whale"]) == ["short"]
    assert snippets(" \n", ["whale"]) == []


def test_texts_are_truncated_between_words() -> None:
    def check(case: tuple[str, int, str]) -> None:
        content, length, expected = case
        assert truncate_at_word(content, length) == expected

    check_each(read_rows("snippets", "previews"), check)


@pytest.mark.parametrize(("length", "limit"), [(0, 3), (-1, 3), (120, 0)])
def test_sizes_below_one_are_rejected(length: int, limit: int) -> None:
    with pytest.raises(InvalidArgument, match="1 or more"):
        snippets("text", ["text"], length=length, limit=limit)


_PIECES = st.sampled_from(
    [
        *("北京", "大学", "數據庫", "讨论", "whale", "Sharks", "getUserName", "db_config", "3.14"),
        *(
            "，",
            "。",
            " ",
            " ",
            "\n",
            "_",
            ". ",
            "(",
            "）",
            "①",
            "½",
            "cafe\u0301",
            "👍🏽",
            "🇨🇳",
            "x" * 30,
        ),
    ]
)
CONTENTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters=f"\1\2{ELLIPSIS}")),
    st.lists(_PIECES, max_size=60).map("".join),
)
WORDS = st.lists(
    st.sampled_from(
        ["北京大学", "京", "数据库", "whale shark", "user", "conf*", "14", "1", "cafe"]
    ),
    max_size=4,
)


@settings(deadline=None)
@given(CONTENTS, WORDS, st.integers(1, 80), st.integers(1, 4))
def test_passages_are_the_original_text(
    content: str, words: list[str], length: int, limit: int
) -> None:
    passages = snippets(content, words, length=length, limit=limit, before="\1", after="\2")
    assert len(passages) <= limit
    assert bool(passages) == bool(content.strip())
    for passage in passages:
        assert re.sub(f"[\1\2{ELLIPSIS}]", "", passage) in content
        assert re.fullmatch("[^\1\2]*(?:\1[^\1\2]+\2[^\1\2]*)*", passage)
        assert "\2\1" not in passage


_FRAGMENTS = st.sampled_from(
    ["whale", "whales", "big", "'", "'s", "é", "京", "北", "，", " ", "_", "-", "+", "ｗｈａｌｅ"]
)


def locate(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the atoms of a text with their positions, read character by character."""
    plain, offsets = normalize_with_offsets(text)
    starts = [*(offsets or range(len(plain))), len(text)]
    for match in SCAN.finditer(plain):
        pattern = {"cjk": ".", "lang": ".+", "chunk": WORD}.get(str(match.lastgroup))
        for word in re.finditer(pattern, match.group()) if pattern else ():
            start, end = (match.start() + at for at in word.span())
            term = stem(word.group()) if pattern is WORD else word.group().casefold()
            yield term, starts[start], max(starts[end], starts[start] + 1)


@settings(deadline=None)
@given(st.lists(_FRAGMENTS, max_size=30).map("".join), st.sampled_from(["whale", "京"]))
def test_highlights_agree_with_analysis(content: str, word: str) -> None:
    (term,) = analyze(word).atoms
    expected = content
    for found, start, end in reversed(list(locate(content))):
        if found == term:
            expected = f"{expected[:start]}[{content[start:end]}]{expected[end:]}"
    passages = snippets(content, [word], length=500, before="[", after="]")
    assert passages == ([expected.strip().replace("][", "")] if content.strip() else [])


@settings(deadline=None)
@given(st.lists(_PIECES, max_size=60).map("".join), WORDS, st.integers(40, 80))
def test_passages_end_between_words_and_characters(
    content: str, words: list[str], length: int
) -> None:
    assume("½" not in content)  # a match can end inside a compatibility character
    assume(not re.search(r"[^\s\u3000-\u9fff\uff00-\uffef]{40}", content))
    for passage in snippets(content, words, length=length, before="", after=""):
        text = passage.strip(ELLIPSIS)
        # The text may occur several times: one occurrence must have clean ends.
        starts = [match.start() for match in re.finditer(f"(?={re.escape(text)})", content)]
        assert any(
            _is_clean(content, start) and _is_clean(content, start + len(text)) for start in starts
        )


def _is_clean(content: str, at: int) -> bool:
    if at in (0, len(content)):
        return True
    inside_word = LATIN_WORD.match(content[at - 1]) and LATIN_WORD.match(content[at])
    return not inside_word and not unicodedata.combining(content[at])


FILLED: list[tuple[str, list[str]]] = [
    (CHINESE, ["蓝鲸"]),
    (ENGLISH, ["whale"]),
    (CHINESE + ENGLISH, ["蓝鲸", "whale"]),
]


def fill(filler: str, size: int) -> str:
    return (filler * (size // len(filler) + 1))[:size] + " 蓝鲸 whale"


def test_match_at_the_end_of_a_megabyte_takes_no_more_calls() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        filler, words = case
        short_text, long_text = fill(filler, 1_000), fill(filler, 1_000_000)
        passages = snippets(short_text, words)  # the first call also loads the tables
        short_calls = count_calls(lambda: snippets(short_text, words))
        long_calls = count_calls(lambda: passages.extend(snippets(long_text, words)))
        assert long_calls < 2 * short_calls
        assert len(passages) == 2
        assert all("<em>" in passage for passage in passages)

    check_each(FILLED, check)


def test_highlighting_words_compiles_no_pattern_for_each_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("compiling a pattern takes longer than marking a page of results")

    monkeypatch.setattr(re, "compile", refuse)
    words = ["configura*", "naïve", "user", "dying", "C++"]
    text = "The naive getUserName died; Configurations in c++ don't."
    marked = [text[start:end] for start, end, _ in Highlighter(words).find(text)]
    assert marked == ["naive", "getUserName", "died", "Configurations", "c++"]
