"""Times as people read them."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from memrecall.types import cut_to_minute, format_minute


def test_a_minute_is_shown_in_a_zone() -> None:
    moment = datetime(2026, 1, 26, 23, 47, 59, 999_999, tzinfo=UTC)
    assert format_minute(moment) == "2026-01-26 23:47"
    assert format_minute(moment, ZoneInfo("Asia/Shanghai")) == "2026-01-27 07:47"
    assert format_minute(datetime(476, 9, 4, tzinfo=UTC)) == "0476-09-04 00:00"


def test_a_text_keeps_its_zone() -> None:
    assert cut_to_minute("2026-01-27T07:47:59+08:00") == "2026-01-27 07:47"
    assert cut_to_minute("") == ""
