"""Times as people read them."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from memrecall.cli.options import read_time
from memrecall.errors import InvalidArgument
from memrecall.memory.mem0 import parse_expiration, parse_moment
from memrecall.search import SearchRequest
from memrecall.store import MessageFilter
from memrecall.types import (
    NewMemory,
    NewMessage,
    Role,
    cut_to_minute,
    format_minute,
    parse_stored_time,
    parse_time,
    to_zone,
)
from tests.cases import check_each

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def test_a_minute_is_shown_in_a_zone() -> None:
    moment = datetime(2026, 1, 26, 23, 47, 59, 999_999, tzinfo=UTC)
    assert format_minute(moment) == "2026-01-26 23:47"
    assert format_minute(moment, ZoneInfo("Asia/Shanghai")) == "2026-01-27 07:47"
    assert format_minute(datetime(476, 9, 4, tzinfo=UTC)) == "0476-09-04 00:00"


def test_a_text_keeps_its_zone() -> None:
    assert cut_to_minute("2026-01-27T07:47:59+08:00") == "2026-01-27 07:47"
    assert cut_to_minute("") == ""


def test_first_and_last_year_are_refused_on_input() -> None:
    takes: list[Callable[[datetime], object]] = [
        parse_time,
        lambda moment: parse_time(moment.isoformat()),
        lambda moment: read_time("--since", moment.isoformat()),
        lambda moment: NewMessage(content="x", role=Role.USER, ts=moment),
        lambda moment: NewMemory(content="x", valid_from=moment),
        lambda moment: MessageFilter(since=moment),
        lambda moment: MessageFilter(until=moment),
        partial(SearchRequest, "x", "hybrid", "plain", 10, 0.0),
        lambda moment: SearchRequest("x", now=moment),
        lambda moment: SearchRequest("x", valid_at=moment),
        lambda moment: parse_moment(moment, "as_of"),
        lambda moment: parse_moment(moment.date(), "as_of"),
        lambda moment: parse_moment(moment.timestamp(), "as_of"),
        lambda moment: parse_expiration(moment.date()),
    ]

    def check(take: Callable[[datetime], object]) -> None:
        for moment in (FIRST, LAST.replace(microsecond=0)):
            with pytest.raises((InvalidArgument, ValueError), match="years 2 to 9998"):
                take(moment)
        take(FIRST.replace(year=2))
        take(LAST.replace(year=9998, microsecond=0))

    check_each(takes, check)


def test_stored_times_of_every_year_are_read_and_shown() -> None:
    assert parse_stored_time(FIRST.isoformat()) == FIRST
    assert parse_stored_time(LAST.isoformat()) == LAST
    assert format_minute(LAST, ZoneInfo("Asia/Shanghai")) == "9999-12-31 23:59"
    assert to_zone(FIRST, ZoneInfo("America/Lima")) == FIRST
    assert parse_expiration(date(2026, 1, 1)) == datetime(2026, 1, 2, tzinfo=UTC)
