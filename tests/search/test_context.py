"""Ranking features of a row: dialogue, day, dates, speakers and length."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.search.index.columns import Columns, to_micros
from memrecall.search.ranking.features import (
    day_scores,
    dialogue_rows,
    length_scores,
    named_rows,
    reply_scores,
    time_scores,
)
from memrecall.store import RowChanges
from memrecall.text.times import TimeSpan
from memrecall.types import NewMessage, Role

from ..cases import check_each_async
from .index_rows import START, make_columns, memory, message

HOUR = 3_600_000_000
NO_SCORE = -2.0


def floats(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(values, dtype=np.float32)


def span(start: datetime | None, end: datetime | None) -> TimeSpan:
    return TimeSpan(start, end, "then", 0, "range")


# Dialogue


def test_dialogue_rows_have_a_neighbour_by_another_speaker() -> None:
    columns = make_columns(
        message(0, speaker="Ann"),
        message(1, speaker="Bob"),
        message(2, speaker="Bob"),
        message(3, speaker="Bob"),
        message(4, speaker="Ann", session_id="alone"),
        message(5, speaker="Bob", session_id="another"),
    )
    assert dialogue_rows(columns, columns.version).tolist() == [1, 1, 0, 0, 0, 0]


def test_unnamed_speakers_are_distinguished_by_role() -> None:
    columns = make_columns(message(0, speaker=None), message(1, speaker=None, role="assistant"))
    assert dialogue_rows(columns, columns.version).all()
    columns = make_columns(message(0, speaker=None), message(1, speaker=None))
    assert not dialogue_rows(columns, columns.version).any()


def test_memory_has_no_dialogue_and_is_no_reply() -> None:
    asks = message(1, speaker="Bob", asks=True)
    columns = make_columns(message(0), asks, memories=[memory(3, session_id="s")])
    assert dialogue_rows(columns, columns.version).tolist() == [1, 1, 0]
    assert reply_scores(columns, floats(0, 5, 5), columns.version).tolist() == [0, 0, 0]


def test_dialogue_rows_as_of_earlier_version() -> None:
    columns = make_columns(message(0), message(1), message(2, speaker="Bob"))
    assert dialogue_rows(columns, 2).tolist() == [False, False, False]
    assert dialogue_rows(columns, columns.version).tolist() == [False, True, True]


def test_reply_has_the_score_of_the_question_before_it() -> None:
    columns = make_columns(
        message(0, speaker="Ann", asks=True),
        message(1, speaker="Bob"),
        message(2, speaker="Ann"),
        message(3, speaker="Bob", asks=True),
        message(4, speaker="Ann", session_id="another"),
    )
    # Neither a line after a statement nor one of another session is a reply.
    scores = floats(1, 10, 100, 1_000, 10_000)
    assert reply_scores(columns, scores, columns.version).tolist() == [0, 1, 0, 0, 0]
    own = make_columns(message(0, asks=True), message(1))
    assert not reply_scores(own, floats(5, 5), own.version).any(), "a line after one's own question"


def test_reply_scores_as_of_earlier_version() -> None:
    late = message(2, speaker="Bob", ts=START + timedelta(minutes=30))
    columns = make_columns(message(0, asks=True), message(1, speaker="Bob"), late)
    assert reply_scores(columns, floats(7, 0, 0), columns.version).tolist() == [0, 0, 7]
    assert reply_scores(columns, floats(7, 0, 0), 2).tolist() == [0, 7, 0]


# The day

ROWS = st.lists(
    st.tuples(
        st.integers(0, 80),  # hours after the start
        st.floats(NO_SCORE, 8, width=32),
        st.booleans(),
    ),
    max_size=25,
)


def best_other_scores(
    hours: Sequence[int], scores: Sequence[float], included: Sequence[bool], offset: int
) -> list[float]:
    """Return, for each row, the best score of another included row of the same day."""
    days = [(to_micros(START) + hour * HOUR + offset) // (24 * HOUR) for hour in hours]
    return [
        max(
            (
                scores[other]
                for other in range(len(days))
                if other != row and days[other] == days[row] and included[other]
            ),
            default=NO_SCORE,
        )
        for row in range(len(days))
    ]


@given(ROWS, st.integers(-12, 14))
def test_day_score_is_best_of_other_rows(rows: list[tuple[int, float, bool]], zone: int) -> None:
    hours, scores, included = [list(part) for part in zip(*rows, strict=True)] or [[], [], []]
    columns = Columns("epoch")
    if rows:
        messages = [message(at, ts=START + timedelta(hours=hour)) for at, hour in enumerate(hours)]
        columns = make_columns(*messages)
    mask = np.array(included, dtype=np.bool_)
    day_best = day_scores(columns, floats(*scores), mask, zone * HOUR)
    expected = best_other_scores(hours, scores, included, zone * HOUR)
    np.testing.assert_array_equal(day_best, floats(*expected))


# Times


def test_time_scores_cover_named_day_and_two_days_around() -> None:
    day = START.replace(hour=0)
    moments = [day + timedelta(hours=hours) for hours in (-49, -48, -1, 0, 23, 24, 71, 72)]
    columns = make_columns(*(message(at, ts=moment) for at, moment in enumerate(moments)))
    inside, around = time_scores(columns, [span(day, day + timedelta(days=1))])
    assert inside.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]
    assert around.tolist() == [0, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize(("days", "has_nearby"), [(1, True), (3, True), (4, False), (31, False)])
def test_long_spans_have_no_nearby_rows(days: int, has_nearby: bool) -> None:
    columns = make_columns(message(0), message(1, ts=START + timedelta(days=days, hours=1)))
    inside, around = time_scores(columns, [span(START, START + timedelta(days=days))])
    assert inside.tolist() == [1, 0]
    assert around.tolist() == [0, has_nearby]


def test_time_scores_of_open_and_multiple_spans() -> None:
    columns = make_columns(*(message(at, ts=START + timedelta(days=10 * at)) for at in range(3)))
    middle = START + timedelta(days=10)
    assert time_scores(columns, [])[0].tolist() == [0, 0, 0]
    assert time_scores(columns, [span(None, middle)])[0].tolist() == [1, 0, 0]
    assert time_scores(columns, [span(middle, None)])[0].tolist() == [0, 1, 1]
    one_day = timedelta(days=1)
    two = [span(START, START + one_day), span(middle - one_day, middle)]
    inside, around = time_scores(columns, two)
    assert inside.tolist() == [1, 0, 0]
    assert around.tolist() == [0, 1, 0]


# Speakers and length


def test_named_rows_are_by_the_speakers_and_have_a_share_of_counted_rows() -> None:
    columns = make_columns(message(0), message(1, speaker="Bob"), message(2), message(3))
    cases: list[tuple[list[str], list[int], list[int], float]] = [
        (["Bob"], [1, 1, 1, 1], [0, 1, 0, 0], 0.25),
        (["Ann", "Bob"], [1, 1, 1, 1], [1, 1, 1, 1], 1.0),
        (["Bob"], [1, 1, 0, 0], [0, 1, 0, 0], 0.5),
        (["Bob"], [0, 0, 0, 0], [0, 1, 0, 0], 0.0),
        ([], [1, 1, 1, 1], [0, 0, 0, 0], 0.0),
        (["Zoe"], [1, 1, 1, 1], [0, 0, 0, 0], 0.0),
    ]
    for speakers, counted, named, expected in cases:
        is_named, share = named_rows(columns, speakers, np.array(counted, dtype=np.bool_))
        assert (is_named.tolist(), share) == (named, expected)


def test_length_score_is_standardized_over_counted_rows() -> None:
    columns = make_columns(*(message(at, content="tea " * (3**at)) for at in range(4)))
    included = np.array([True, True, True, False])
    scores = length_scores(columns, included)
    assert scores[included].mean() == pytest.approx(0, abs=1e-6)
    # Three rows say little about usual lengths: 3 / (3 + 8) of a standard deviation.
    assert scores[included].std() == pytest.approx(3 / 11, abs=1e-5)
    assert (np.diff(scores) > 0).all()
    assert not length_scores(columns, ~np.ones(4, dtype=np.bool_)).any()


# The whole search


async def test_shared_words_count_less_in_a_remark_than_in_a_question(
    sqlite_library: Library,
) -> None:
    scope = Scope("ann")
    texts = ["The bakery opens early", "Rain all day", "The bus was late again", "A new lamp"]
    batch = [NewMessage(role=Role.USER, content=text) for text in texts]
    await sqlite_library.add_messages(scope, batch)
    words = "my cousin passed that bakery yesterday while walking home with heavy suitcases"

    async def lexical_part(query: str) -> float:
        page = await sqlite_library.search(scope, SearchRequest(query))
        return next(hit.why.lexical for hit in page.results if "bakery" in hit.content)

    assert await lexical_part(words) == 0
    assert await lexical_part(f"{words}?") > 0
    assert await lexical_part("bakery") > 0


async def test_named_day_uses_time_zone_of_user(library: Library) -> None:
    moments = {"early": "2026-03-01T17:00:00+00:00", "late": "2026-03-02T17:00:00+00:00"}
    batch = [
        NewMessage(message_id=key, role=Role.USER, content="tea", ts=datetime.fromisoformat(ts))
        for key, ts in moments.items()
    ]
    request = SearchRequest("tea on 2 March 2026", now=datetime(2026, 4, 1, tzinfo=UTC))

    async def check(case: tuple[str, str]) -> None:
        zone, first = case
        scope = Scope(f"somebody in {zone}")
        await library.add_messages(scope, batch)
        await library.store.owners.set_time_zone(scope.user_id, zone)
        page = await library.search(scope, request)
        assert page.results[0].key == first
        assert page.results[0].why.time > page.results[1].why.time > 0

    await check_each_async([("UTC", "late"), ("Asia/Shanghai", "early")], check)


def test_hidden_and_erased_lines_are_nobodys_neighbours() -> None:
    columns = make_columns(*(message(at) for at in range(4)))
    hidden = message(1, change_no=5, deleted_at=START)
    erased = SimpleNamespace(kind="message", key="m2", change_no=6)
    columns.apply(RowChanges(6, [hidden], tombstones=[erased]))
    before, after = columns.neighbours(6)
    assert (after[0], before[3]) == (3, 0)
    assert columns.alive(6).tolist() == [True, False, False, True, False]
    assert columns.neighbours(4)[1].tolist()[:4] == [1, 2, 3, -1], "as of an earlier version"
    assert columns.row_of("message", "m2") is None
    assert columns.has_erased
    again = message(2, change_no=7)
    columns.apply(RowChanges(8, [again], tombstones=[erased]))
    assert columns.alive(8)[columns.row_of("message", "m2")], "stored again, as by an import"
