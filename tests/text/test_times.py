"""Time expressions: their meaning on a given day, and words that are not times."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from memrecall.text.times import TimeSpan, find_times
from tests.cases import check_each, read_lines, read_rows
from tests.counting import count_calls

WEDNESDAY = datetime(2026, 3, 18, 10, 30, tzinfo=UTC)
SHANGHAI = ZoneInfo("Asia/Shanghai")
NEW_YORK = ZoneInfo("America/New_York")
NEWFOUNDLAND = timezone(timedelta(hours=-3, minutes=-30))
EVENING = datetime(2026, 3, 18, 17, tzinfo=UTC)
# Half an hour after the start of daylight saving time in New York.
CHANGE = datetime(2026, 3, 8, 7, 30, tzinfo=UTC)


def format_bound(moment: datetime | None) -> str:
    """Return a bound in its shortest form: 2026-03-18, 2026-03-18T10:30 or empty."""
    if moment is None:
        return ""
    assert moment.utcoffset() == timedelta(0)
    return moment.isoformat()[:16].removesuffix("T00:00")


def bounds(span: TimeSpan) -> str:
    return f"{format_bound(span.start)}/{format_bound(span.end)}"


def parse_bounds(text: str, now: datetime = WEDNESDAY, zone: tzinfo = UTC) -> str:
    """Return the bounds of a text that is one time expression."""
    (span,) = find_times(text, now, zone)
    assert (span.text, span.position) == (text, 0)
    return bounds(span)


def phrases(lines: list[str]) -> list[str]:
    return [phrase.strip() for line in lines for phrase in line.split("|")]


MEANINGS = [
    (text, meaning)
    for meaning, *texts in (phrases([line]) for line in read_lines("times", "times"))
    for text in (*texts, *(["last  New\nYear's Eve"] if "New Year's Eve" in texts else []))
]


def test_chinese_and_english_expressions() -> None:
    def check(case: tuple[str, str]) -> None:
        text, expected = case
        assert parse_bounds(text) == expected

    check_each(MEANINGS, check)


def test_relative_times_depend_on_the_current_day() -> None:
    def check(case: tuple[str, str, str]) -> None:
        now, text, expected = case
        assert parse_bounds(text, datetime.fromisoformat(now)) == expected

    check_each(read_rows("times", "relative"), check)


def test_statements_use_the_nearest_occurrence() -> None:
    def check(case: tuple[str, str, str, str]) -> None:
        now, text, past, nearest = case
        for prefer_past, expected in ((True, past), (False, nearest)):
            (span,) = find_times(text, datetime.fromisoformat(now), past=prefer_past)
            assert span.start is not None
            assert str(span.start.date()) == expected

    check_each(read_rows("times", "statements"), check)


GRAINS = {
    "minute": "十分钟前 | yesterday at 10:15",
    "hour": "两小时前 | 昨天下午",
    "day": "周三 | Christmas",
    "week": "两周前 | last week",
    "month": "in May | 年底",
    "season": "last summer",
    "year": "去年",
    "range": "最近三天 | 刚才 | 周末 | 五月中旬 | 2024年第三季度 | since 2021 | 三月到五月",
}


def test_grain() -> None:
    def check(case: tuple[str, str]) -> None:
        grain, text = case
        assert [span.grain for span in find_times(text, WEDNESDAY)] == [grain]

    check_each([(grain, text) for grain, row in GRAINS.items() for text in phrases([row])], check)


def test_words_that_are_not_times() -> None:
    def check(text: str) -> None:
        assert find_times(text, WEDNESDAY) == []

    check_each(phrases(read_lines("times", "none")), check)


def test_times_within_sentences() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        text, words = case
        assert [span.text for span in find_times(text, WEDNESDAY)] == words

    check_each(read_rows("times", "sentences"), check)


def test_full_width_and_traditional_characters() -> None:
    def check(case: tuple[str, str]) -> None:
        text, plain = case
        assert parse_bounds(text) == parse_bounds(plain)

    check_each(read_rows("times", "spellings"), check)


def test_positions_refer_to_the_input() -> None:
    text = "İstanbul，上週三　Ｌａｓｔ Ｗｅｅｋ"
    assert [(span.position, span.text) for span in find_times(text, WEDNESDAY)] == [
        (9, "上週三"),
        (13, "Ｌａｓｔ Ｗｅｅｋ"),
    ]


IN_ZONES: list[tuple[tzinfo, datetime, str, str]] = [
    (SHANGHAI, WEDNESDAY, "今天", "2026-03-17T16:00/2026-03-18T16:00"),
    (SHANGHAI, WEDNESDAY, "昨天下午三点", "2026-03-17T07:00/2026-03-17T08:00"),
    # It is Thursday in Shanghai while it is still Wednesday in Greenwich.
    (SHANGHAI, EVENING, "今天", "2026-03-18T16:00/2026-03-19T16:00"),
    (SHANGHAI, EVENING, "星期四", "2026-03-18T16:00/2026-03-19T16:00"),
    (SHANGHAI, WEDNESDAY, "最近三天", "2026-03-15T10:30/2026-03-18T10:30"),
    (SHANGHAI, WEDNESDAY, "2025-01-15 10:30", "2025-01-15T02:30/2025-01-15T02:31"),
    (SHANGHAI, WEDNESDAY, "2025-01-15T10:30Z", "2025-01-15T10:30/2025-01-15T10:31"),
    # The clocks go back: half past one occurs twice, and the second is meant.
    (NEW_YORK, WEDNESDAY, "2025-11-02T06:30Z", "2025-11-02T06:30/2025-11-02T06:31"),
    # Summer time began in New York on 8 March 2026: that day has 23 hours.
    (NEW_YORK, WEDNESDAY, "March 8", "2026-03-08T05:00/2026-03-09T04:00"),
    (NEW_YORK, WEDNESDAY, "March 9", "2026-03-09T04:00/2026-03-10T04:00"),
    (NEW_YORK, CHANGE, "an hour ago", "2026-03-08T06:00/2026-03-08T07:00"),
    (NEWFOUNDLAND, WEDNESDAY, "today", "2026-03-18T03:30/2026-03-19T03:30"),
]


def test_days_follow_the_time_zone() -> None:
    def check(case: tuple[tzinfo, datetime, str, str]) -> None:
        zone, now, text, expected = case
        assert parse_bounds(text, now, zone) == expected

    check_each(IN_ZONES, check)


def test_day_skipped_by_a_country_is_not_a_time() -> None:
    assert find_times("2011-12-30", WEDNESDAY, ZoneInfo("Pacific/Apia")) == []


def test_now_without_a_zone_is_utc() -> None:
    assert find_times("昨天", WEDNESDAY.replace(tzinfo=None), SHANGHAI) == find_times(
        "昨天", WEDNESDAY, SHANGHAI
    )


# Fragments that form and break expressions, and years at the ends of the calendar.
FRAGMENTS = """
    每 | 每周 | 的 | 到 | 和 | 之间 | 从 | 前 | 后 | 2月 | 30日 | 12点
    between | and | to | at | ( | ) | -
    9999年 | 1年 | 9999年前 | 千年后 | 2199年 | 9999-12-31
    in 1999 | 5000 years from now | may | 2022
""".strip().splitlines()
WORDS = st.sampled_from([*(text for text, _ in MEANINGS), *phrases(FRAGMENTS), " "])
TEXTS = st.one_of(st.text(), st.lists(st.one_of(WORDS, st.text(max_size=3))).map("".join))
ZONES = st.one_of(st.sampled_from([UTC, SHANGHAI, NEW_YORK]), st.timezones())
NOWS = st.datetimes(timezones=st.one_of(st.none(), ZONES), allow_imaginary=True)


@given(text=TEXTS, now=NOWS, zone=ZONES)
def test_spans_of_any_text_at_any_time(text: str, now: datetime, zone: tzinfo) -> None:
    last = 0
    for span in find_times(text, now, zone):
        assert span.text == text[span.position : span.position + len(span.text)] != ""
        assert span.position >= last
        last = span.position + len(span.text)
        assert span.start or span.end
        assert span.start is None or span.end is None or span.start < span.end
        assert all(bound is None or bound.tzinfo is UTC for bound in (span.start, span.end))


@given(text=TEXTS, before=st.sampled_from(["", "好的。", "Well, ", "，，"]))
def test_surrounding_text_does_not_change_times(text: str, before: str) -> None:
    expected = find_times("\n" + text, WEDNESDAY)
    shifted = find_times(before + "\n" + text, WEDNESDAY)
    assert [(span.position + len(before), bounds(span)) for span in expected] == [
        (span.position, bounds(span)) for span in shifted
    ]


TIMELESS = [
    *("我对花生过敏，吃了之后脸会肿。", "I like the dark mode of it. ", "1.2.3 ", "in ", "上"),
    *("三", "1", " "),
]


def repeat(part: str, size: int) -> str:
    return (part * size)[:size]


def test_long_texts_without_times_take_few_calls() -> None:
    def check(part: str) -> None:
        text = repeat(part, 100_000)  # a quadratic parser would not finish
        spans: list[TimeSpan] = []
        assert count_calls(lambda: spans.extend(find_times(text, WEDNESDAY))) < 50
        assert spans == []

    find_times("", WEDNESDAY)  # compiles the patterns
    check_each(TIMELESS, check)


def test_long_texts_full_of_times_take_linear_work() -> None:
    def check(part: str) -> None:
        short_text, long_text = part * 20, part * 80
        assert len(find_times(long_text, WEDNESDAY)) == 80
        calls = count_calls(lambda: find_times(short_text, WEDNESDAY))
        assert count_calls(lambda: find_times(long_text, WEDNESDAY)) < 4.4 * calls

    check_each(
        ["昨天，", "上周三下午三点。", "three days ago. ", "in May. ", "2025-01-15; "], check
    )
