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
from memrecall.search.index.columns import Columns
from memrecall.search.index.rows import to_micros
from memrecall.search.ranking.features import (
    AFTER,
    BEFORE,
    TWO_BEFORE,
    day_scores,
    dialogue_rows,
    length_scores,
    neighbour_scores,
    speaker_scores,
    time_scores,
)
from memrecall.store import RowChanges
from memrecall.text import analyze
from memrecall.text.times import TimeSpan
from memrecall.types import NewMessage, Role

from ..cases import check_each_async

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
HOUR = 3_600_000_000
NO_SCORE = -2.0


def message(at: int, **changes: Any) -> SimpleNamespace:
    """Return a change feed row: an hourly message, by Ann unless `changes` says otherwise."""
    fields = {
        "key": f"m{at}",
        "change_no": at + 1,
        "ts": START + timedelta(hours=at),
        "role": "user",
        "speaker": "Ann",
        "agent_id": "a",
        "session_id": "s",
        "sequence_no": at,
        "asks": False,
        "search_text": analyze(changes.pop("content", "tea")).to_search_text(),
    }
    return SimpleNamespace(**(fields | changes))


def memory(change_no: int) -> SimpleNamespace:
    return SimpleNamespace(
        key="k1",
        change_no=change_no,
        ts=START,
        agent_id="a",
        session_id=None,
        memory_type="fact",
        deleted_at=None,
        sensitive=False,
        valid_from=None,
        valid_to=None,
        search_text=analyze("tea").to_search_text(),
    )


def make_columns(*messages: Any, memories: Sequence[Any] = ()) -> Columns:
    columns = Columns("epoch")
    version = len(messages) + len(memories)
    columns.apply(RowChanges(version, list(messages), list(memories), []))
    return columns


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


def test_memory_has_no_dialogue_and_no_neighbours() -> None:
    columns = make_columns(message(0), message(1, speaker="Bob"), memories=[memory(3)])
    assert dialogue_rows(columns, columns.version).tolist() == [1, 1, 0]
    assert neighbour_scores(columns, floats(0, 0, 5), columns.version).tolist() == [0, 0, 0]


def test_dialogue_rows_as_of_earlier_version() -> None:
    columns = make_columns(message(0), message(1), message(2, speaker="Bob"))
    assert dialogue_rows(columns, 2).tolist() == [False, False, False]
    assert dialogue_rows(columns, columns.version).tolist() == [False, True, True]
    assert neighbour_scores(columns, floats(1, 1, 1), 2).tolist() == [0, 0, 0]


def test_neighbour_score_covers_two_before_and_one_after() -> None:
    names = ["Ann", "Bob"] * 3
    columns = make_columns(*(message(at, speaker=names[at]) for at in range(5)))
    neighbours = neighbour_scores(columns, floats(1, 10, 100, 1_000, 10_000), columns.version)
    expected = BEFORE * 10 + TWO_BEFORE * 1 + AFTER * 1_000
    assert neighbours[2] == pytest.approx(expected)
    assert neighbours[0] == pytest.approx(AFTER * 10)
    assert neighbours[4] == pytest.approx(BEFORE * 1_000 + TWO_BEFORE * 100)


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


def test_day_begins_at_offset_of_time_zone() -> None:
    evening = START.replace(hour=15, minute=30)  # 23:30 in Shanghai
    columns = make_columns(message(0, ts=evening), message(1, ts=evening + timedelta(hours=1)))
    all_rows = np.ones(2, dtype=np.bool_)
    assert day_scores(columns, floats(1, 2), all_rows, 0).tolist() == [2, 1]
    assert day_scores(columns, floats(1, 2), all_rows, 8 * HOUR).tolist() == [NO_SCORE, NO_SCORE]


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


def test_speaker_score_is_reduced_by_share_of_rows() -> None:
    columns = make_columns(message(0), message(1, speaker="Bob"), message(2), message(3))
    all_rows = np.ones(4, dtype=np.bool_)
    speaker, by_speaker = speaker_scores(columns, ["Bob"], all_rows)
    assert by_speaker.tolist() == [0, 1, 0, 0]
    assert speaker.tolist() == [-0.25, 0.75, -0.25, -0.25]
    without_names, none = speaker_scores(columns, [], all_rows)
    assert not without_names.any()
    assert not none.any()
    unknown, _ = speaker_scores(columns, ["Zoe"], all_rows)
    assert not unknown.any()
    without_rows, _ = speaker_scores(columns, ["Bob"], ~all_rows)
    assert without_rows.tolist() == [0, 1, 0, 0]


def test_length_score_is_standardized_over_counted_rows() -> None:
    columns = make_columns(*(message(at, content="tea " * (3**at)) for at in range(4)))
    included = np.array([True, True, True, False])
    scores = length_scores(columns, included)
    assert scores[included].mean() == pytest.approx(0, abs=1e-6)
    assert scores[included].std() == pytest.approx(1, abs=1e-5)
    assert (np.diff(scores) > 0).all()
    assert not length_scores(columns, ~np.ones(4, dtype=np.bool_)).any()


# The whole search


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
