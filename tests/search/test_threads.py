"""Threads: a line inherits the words of the earlier lines of its session."""

from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.search.index import Mask
from memrecall.search.index.columns import Columns
from memrecall.search.ranking.features import ThreadScores, thread_scores
from memrecall.search.ranking.lexical import bm25, query_terms
from memrecall.store import RowChanges
from memrecall.types import NewMessage, Role

from ..libraries import open_library
from .index_rows import START, make_columns, memory, message

REACH = 16
DECAY = 0.9


def lines(*texts: str) -> list[SimpleNamespace]:
    return [message(at, content=text) for at, text in enumerate(texts)]


def score(
    columns: Columns, query: str = "tea", counted: Any = None, version: int | None = None
) -> ThreadScores:
    at = columns.version if version is None else version
    alive = columns.alive(at)
    mask: Mask = alive if counted is None else np.array(counted, dtype=np.bool_)
    lexical = bm25(columns, query_terms(query), alive)
    return thread_scores(columns, lexical.weights, lexical.spans, mask, at)


def inherited(columns: Columns, query: str = "tea", **options: Any) -> list[float]:
    """Return what each row inherits, as a share of what a row with the word has."""
    scores = score(columns, query, **options)
    shares: list[float] = (scores.inherited / scores.own.max()).tolist()
    return shares


# The session


def test_inherited_words_decay_and_reach_sixteen_lines() -> None:
    columns = make_columns(*lines("tea", *["quiet"] * 20))
    expected = [0, *(DECAY**distance for distance in range(1, REACH + 1)), 0, 0, 0, 0]
    assert inherited(columns) == pytest.approx(expected)


def test_each_word_is_inherited_on_its_own() -> None:
    columns = make_columns(*lines("tea", "coffee", "quiet"))
    tea, coffee = (score(columns, word).own.max() for word in ("tea", "coffee"))
    both = score(columns, "tea coffee")
    np.testing.assert_allclose(both.own, [tea, coffee, 0], rtol=1e-6)
    expected = [0, DECAY * tea, DECAY**2 * tea + DECAY * coffee]
    np.testing.assert_allclose(both.inherited, expected, rtol=1e-6)


def test_lines_are_in_the_order_of_their_times() -> None:
    late_arrival = message(2, content="tea", ts=START - timedelta(hours=1))
    columns = make_columns(*lines("quiet", "quiet"), late_arrival)
    assert inherited(columns) == pytest.approx([DECAY, DECAY**2, 0])


def test_lines_of_the_same_time_are_in_the_order_of_their_numbers() -> None:
    columns = make_columns(
        message(0, content="quiet", ts=START, sequence_no=7),
        message(1, content="tea", ts=START, sequence_no=6),
    )
    assert inherited(columns) == pytest.approx([DECAY, 0])


def test_memories_neither_inherit_nor_pass_words_on() -> None:
    note = memory(3, content="tea", session_id="s", ts=START - timedelta(hours=1))
    other = memory(4, content="quiet", key="k2", session_id="s", ts=START + timedelta(hours=5))
    columns = make_columns(*lines("quiet", "tea"), memories=[note, other])
    scores = score(columns)
    assert (scores.own > 0).tolist() == [False, True, True, False]
    assert not scores.inherited.any()


# Which rows count


def test_uncounted_rows_have_no_words_to_pass_on() -> None:
    columns = make_columns(*lines("tea", "quiet", "quiet"))
    scores = score(columns, counted=[False, True, True])
    assert not scores.own.any()
    assert not scores.inherited.any()
    assert not scores.coverage.any()
    assert scores.known == 0


def test_uncounted_row_does_not_restart_inheritance() -> None:
    columns = make_columns(*lines("tea", "tea", "quiet"))
    assert inherited(columns, counted=[True, False, True])[2] == pytest.approx(DECAY**2)


def test_threads_as_of_earlier_version() -> None:
    columns = make_columns(*lines("tea", "quiet", "tea"), message(3, content="quiet"))
    assert inherited(columns) == pytest.approx([0, DECAY, 0, DECAY])
    # The rows that came later have no words yet.
    assert inherited(columns, version=2)[:2] == pytest.approx([0, DECAY])
    assert score(columns, version=2).own.tolist()[2:] == [0, 0]
    assert inherited(columns) == pytest.approx([0, DECAY, 0, DECAY])


# Coverage


def test_coverage_weighs_words_by_their_rarity_in_the_language() -> None:
    columns = make_columns(*lines("oboe", "time", "oboe time", "quiet"))
    scores = score(columns, "oboe time")
    rare, common, both, none = scores.coverage.tolist()
    assert rare > 0.5 > common > none == 0
    assert rare + common == pytest.approx(both) == pytest.approx(1)
    assert scores.known == pytest.approx(1)


def test_known_share_is_that_of_all_rows_together() -> None:
    columns = make_columns(*lines("oboe", "lesson"))
    whole = score(columns, "oboe lesson")
    assert whole.known == pytest.approx(1)
    assert whole.coverage.max() < 1
    assert 0 < score(columns, "oboe zeppelin").known < 1
    assert score(columns, "zeppelin").known == 0


def test_inherited_words_are_not_covered() -> None:
    scores = score(make_columns(*lines("tea", "quiet")))
    assert scores.inherited[1] > 0
    assert scores.coverage.tolist() == [1, 0]


# An index that grew


WORDS = st.sampled_from(["tea", "coffee", "quiet", "tea coffee"])
MESSAGES = st.tuples(st.just("message"), st.sampled_from("xyz"), WORDS, st.integers(0, 9))
MEMORIES = st.tuples(st.just("memory"), st.sampled_from("kl"), WORDS, st.booleans())
HISTORIES: st.SearchStrategy[list[tuple[Any, ...]]] = st.lists(
    MESSAGES | MEMORIES, min_size=1, max_size=30
)


def make_rows(history: Sequence[tuple[Any, ...]]) -> list[tuple[str, SimpleNamespace]]:
    """Return the rows of a history's changes, each with its kind."""
    rows: list[tuple[str, SimpleNamespace]] = []
    for at, (kind, name, text, detail) in enumerate(history):
        if kind == "message":
            moment = START + timedelta(minutes=detail)
            row = message(at, content=text, session_id=name, ts=moment)
        else:
            deleted_at = START if detail else None
            row = memory(at + 1, key=name, content=text, deleted_at=deleted_at)
        rows.append((kind, row))
    return rows


def grow(rows: Sequence[tuple[str, SimpleNamespace]]) -> Columns:
    """Return an index that has taken up one change after the other."""
    columns = Columns("epoch")
    for number, (kind, row) in enumerate(rows, 1):
        is_message = kind == "message"
        changes = RowChanges(number, [row] if is_message else [], [] if is_message else [row])
        columns.apply(changes)
        columns.merge_small_segments()
        if number % 3 == 0:
            score(columns, "tea coffee")  # what a search caches must not outlive the next change
    return columns


def build(rows: Sequence[tuple[str, SimpleNamespace]]) -> Columns:
    """Return an index of the last form of every row, as the store returns them."""
    columns = Columns("epoch")
    messages = [row for kind, row in rows if kind == "message"]
    memories = {row.key: row for kind, row in rows if kind == "memory"}
    columns.apply(RowChanges(len(rows), messages, list(memories.values())))
    return columns


def scores_by_key(columns: Columns) -> dict[str, tuple[float, float, float]]:
    scores = score(columns, "tea coffee")
    return {
        columns.table.keys[row]: (
            float(scores.own[row]),
            float(scores.inherited[row]),
            float(scores.coverage[row]),
        )
        for row in np.flatnonzero(columns.alive(columns.version))
    }


@given(HISTORIES)
def test_grown_index_has_the_threads_of_a_new_one(history: list[tuple[Any, ...]]) -> None:
    rows = make_rows(history)
    grown, new = grow(rows), build(rows)
    assert scores_by_key(grown) == scores_by_key(new)
    assert score(grown, "tea coffee").known == score(new, "tea coffee").known


def expected_inheritance(texts: Sequence[str], sessions: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the inherited shares of "tea", line by line."""
    shares = np.zeros(len(texts))
    last: dict[str, list[int]] = {}
    for at, (text, session) in enumerate(zip(texts, sessions, strict=True)):
        said = last.setdefault(session, [])
        said.append(at)
        with_word = [place for place, line in enumerate(said) if texts[line] == "tea"]
        if text != "tea" and with_word and (distance := len(said) - 1 - with_word[-1]) <= REACH:
            shares[at] = DECAY**distance
    return shares


@given(
    st.lists(st.tuples(st.sampled_from(["tea", "quiet", "dull", "grey"]), st.sampled_from("xy")))
)
def test_inheritance_equals_a_line_by_line_reading(history: list[tuple[str, str]]) -> None:
    rows = [message(at, content=text, session_id=s) for at, (text, s) in enumerate(history)]
    scores = score(make_columns(*rows))
    unit = float(scores.own.max(initial=0)) or 1.0
    expected = expected_inheritance(*([pair[at] for pair in history] for at in (0, 1)))
    np.testing.assert_allclose(scores.inherited / unit, expected, rtol=1e-5)


# The whole search


CHINESE = [
    ("user", "公司楼下新开的那家湘菜馆味道很好"),
    ("assistant", "听起来不错，离得近吗？"),
    ("user", "走路五分钟，人均六十"),
    ("user", "电话是 6688 1234，要提前订位"),
]
CHINESE_OTHER = [
    ("user", "洗衣机又坏了"),
    ("assistant", "要找人修吗？"),
    ("user", "修理铺电话是 5511 9087，明天才上班"),
]
ENGLISH = [
    ("user", "We found a lovely pottery studio near the harbour"),
    ("assistant", "Nice, is it open on weekends?"),
    ("user", "Saturdays only, and it fills up quickly"),
    ("user", "the phone is 555 0147, ask for Marta"),
]
ENGLISH_OTHER = [
    ("user", "The washing machine broke again"),
    ("assistant", "Shall I look for someone?"),
    ("user", "the phone is 555 0923, they open at nine"),
]


USER = Scope("user")


def conversation(exchange: Sequence[tuple[str, str]], hour: int) -> list[NewMessage]:
    return [
        NewMessage(role=Role(role), content=text, ts=START + timedelta(hours=hour, minutes=at))
        for at, (role, text) in enumerate(exchange)
    ]


@pytest.mark.parametrize(
    ("query", "named", "other"),
    [
        ("湘菜馆的电话是多少？", CHINESE, CHINESE_OTHER),
        ("What is the phone of the pottery studio?", ENGLISH, ENGLISH_OTHER),
    ],
    ids=["chinese", "english"],
)
async def test_subject_named_three_lines_before_lifts_a_line(
    query: str, named: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    # On the same day, so that the day lifts neither line above the other.
    async with open_library(snapshots=False) as library:
        await library.add_messages(USER.with_session("named"), conversation(named, 0))
        await library.add_messages(USER.with_session("other"), conversation(other, 1))
        await library.vectors.settle()
        page = await library.search(USER, SearchRequest(query))
    by_content = {hit.content: hit for hit in page.results}
    answer, rival = by_content[named[-1][1]], by_content[other[-1][1]]
    assert answer.score > rival.score
    assert answer.why.thread > rival.why.thread
    assert page.results.index(answer) < 2  # at most the line that names the subject is above it
