"""What surrounds a row: dialogue, day, days around a date, speakers, length."""

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
NOBODY = -2.0


def message(at: int, **more: Any) -> SimpleNamespace:
    """The row of a change feed: a message an hour after the one before, by Ann unless told."""
    given = {
        "key": f"m{at}",
        "change_no": at + 1,
        "ts": START + timedelta(hours=at),
        "role": "user",
        "speaker": "Ann",
        "agent_id": "a",
        "session_id": "s",
        "sequence_no": at,
        "asks": False,
        "search_text": analyze(more.pop("content", "tea")).to_search_text(),
    }
    return SimpleNamespace(**(given | more))


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


def columns_of(*messages: Any, memories: Sequence[Any] = ()) -> Columns:
    columns = Columns("epoch")
    through = len(messages) + len(memories)
    columns.apply(RowChanges(through, list(messages), list(memories), []))
    return columns


def floats(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(values, dtype=np.float32)


def span(start: datetime | None, end: datetime | None) -> TimeSpan:
    return TimeSpan(start, end, "then", 0, "range")


# Dialogue


def test_dialogue_rows_have_a_neighbour_by_another_speaker() -> None:
    columns = columns_of(
        message(0, speaker="Ann"),
        message(1, speaker="Bob"),
        message(2, speaker="Bob"),
        message(3, speaker="Bob"),
        message(4, speaker="Ann", session_id="alone"),
        message(5, speaker="Bob", session_id="another"),
    )
    assert dialogue_rows(columns, columns.version).tolist() == [1, 1, 0, 0, 0, 0]


def test_unnamed_speakers_are_distinguished_by_role() -> None:
    columns = columns_of(message(0, speaker=None), message(1, speaker=None, role="assistant"))
    assert dialogue_rows(columns, columns.version).all()
    columns = columns_of(message(0, speaker=None), message(1, speaker=None))
    assert not dialogue_rows(columns, columns.version).any()


def test_memory_has_no_dialogue_and_no_neighbours() -> None:
    columns = columns_of(message(0), message(1, speaker="Bob"), memories=[memory(3)])
    assert dialogue_rows(columns, columns.version).tolist() == [1, 1, 0]
    assert neighbour_scores(columns, floats(0, 0, 5), columns.version).tolist() == [0, 0, 0]


def test_dialogue_rows_as_of_earlier_version() -> None:
    columns = columns_of(message(0), message(1), message(2, speaker="Bob"))
    assert dialogue_rows(columns, 2).tolist() == [False, False, False]
    assert dialogue_rows(columns, columns.version).tolist() == [False, True, True]
    assert neighbour_scores(columns, floats(1, 1, 1), 2).tolist() == [0, 0, 0]


def test_neighbour_score_covers_two_before_and_one_after() -> None:
    names = ["Ann", "Bob"] * 3
    columns = columns_of(*(message(at, speaker=names[at]) for at in range(5)))
    lifted = neighbour_scores(columns, floats(1, 10, 100, 1_000, 10_000), columns.version)
    expected = BEFORE * 10 + TWO_BEFORE * 1 + AFTER * 1_000
    assert lifted[2] == pytest.approx(expected)
    assert lifted[0] == pytest.approx(AFTER * 10)
    assert lifted[4] == pytest.approx(BEFORE * 1_000 + TWO_BEFORE * 100)


# The day

ROWS = st.lists(
    st.tuples(
        st.integers(0, 80),  # hours after the start
        st.floats(NOBODY, 8, width=32),
        st.booleans(),
    ),
    max_size=25,
)


def best_of_the_others(
    hours: Sequence[int], scores: Sequence[float], counted: Sequence[bool], offset: int
) -> list[float]:
    """Row by row: the best that a counted other row of the same day has."""
    days = [(to_micros(START) + hour * HOUR + offset) // (24 * HOUR) for hour in hours]
    return [
        max(
            (
                scores[other]
                for other in range(len(days))
                if other != row and days[other] == days[row] and counted[other]
            ),
            default=NOBODY,
        )
        for row in range(len(days))
    ]


@given(ROWS, st.integers(-12, 14))
def test_day_score_is_best_of_other_rows(rows: list[tuple[int, float, bool]], zone: int) -> None:
    hours, scores, counted = [list(part) for part in zip(*rows, strict=True)] or [[], [], []]
    columns = Columns("epoch")
    if rows:
        said = [message(at, ts=START + timedelta(hours=hour)) for at, hour in enumerate(hours)]
        columns = columns_of(*said)
    mask = np.array(counted, dtype=np.bool_)
    found = day_scores(columns, floats(*scores), mask, zone * HOUR)
    expected = best_of_the_others(hours, scores, counted, zone * HOUR)
    np.testing.assert_array_equal(found, floats(*expected))


def test_day_begins_at_offset_of_time_zone() -> None:
    late = START.replace(hour=15, minute=30)  # 23:30 in Shanghai
    columns = columns_of(message(0, ts=late), message(1, ts=late + timedelta(hours=1)))
    both = np.ones(2, dtype=np.bool_)
    assert day_scores(columns, floats(1, 2), both, 0).tolist() == [2, 1]
    assert day_scores(columns, floats(1, 2), both, 8 * HOUR).tolist() == [NOBODY, NOBODY]


# Times


def test_time_scores_cover_named_day_and_two_days_around() -> None:
    day = START.replace(hour=0)
    moments = [day + timedelta(hours=hours) for hours in (-49, -48, -1, 0, 23, 24, 71, 72)]
    columns = columns_of(*(message(at, ts=moment) for at, moment in enumerate(moments)))
    inside, around = time_scores(columns, [span(day, day + timedelta(days=1))])
    assert inside.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]
    assert around.tolist() == [0, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize(("days", "near"), [(1, True), (3, True), (4, False), (31, False)])
def test_long_spans_have_no_nearby_rows(days: int, near: bool) -> None:
    columns = columns_of(message(0), message(1, ts=START + timedelta(days=days, hours=1)))
    inside, around = time_scores(columns, [span(START, START + timedelta(days=days))])
    assert inside.tolist() == [1, 0]
    assert around.tolist() == [0, near]


def test_time_scores_of_open_and_multiple_spans() -> None:
    columns = columns_of(*(message(at, ts=START + timedelta(days=10 * at)) for at in range(3)))
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
    columns = columns_of(message(0), message(1, speaker="Bob"), message(2), message(3))
    everyone = np.ones(4, dtype=np.bool_)
    speaker, theirs = speaker_scores(columns, ["Bob"], everyone)
    assert theirs.tolist() == [0, 1, 0, 0]
    assert speaker.tolist() == [-0.25, 0.75, -0.25, -0.25]
    nobody, none = speaker_scores(columns, [], everyone)
    assert not nobody.any()
    assert not none.any()
    unknown, _ = speaker_scores(columns, ["Zoe"], everyone)
    assert not unknown.any()
    uncounted, _ = speaker_scores(columns, ["Bob"], ~everyone)
    assert uncounted.tolist() == [0, 1, 0, 0]


def test_length_score_is_standardized_over_counted_rows() -> None:
    columns = columns_of(*(message(at, content="tea " * (3**at)) for at in range(4)))
    counted = np.array([True, True, True, False])
    scores = length_scores(columns, counted)
    assert scores[counted].mean() == pytest.approx(0, abs=1e-6)
    assert scores[counted].std() == pytest.approx(1, abs=1e-5)
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

    async def look(case: tuple[str, str]) -> None:
        zone, first = case
        scope = Scope(f"somebody in {zone}")
        await library.add_messages(scope, batch)
        await library.store.owners.set_time_zone(scope.user_id, zone)
        page = await library.search(scope, request)
        assert page.results[0].key == first
        assert page.results[0].why.time > page.results[1].why.time > 0

    await check_each_async([("UTC", "late"), ("Asia/Shanghai", "early")], look)
