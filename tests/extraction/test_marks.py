"""Marks of facts that their messages do not confirm: numbers, dates, sources and negations."""

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import get_args
from zoneinfo import ZoneInfo

from hypothesis import example, given
from hypothesis import strategies as st

from memrecall.extraction import Fact, Utterance
from memrecall.extraction.model import MAX_FACT
from memrecall.extraction.verify import find_doubts
from memrecall.text.language import language_of
from memrecall.types import Doubt, Role
from tests.cases import check_each, read_rows

from .transcripts import NOW, parse_turns

CONFIRMED: list[tuple[list[str], str]] = read_rows("facts", "confirmed")
DOUBTED: list[tuple[list[str], str, Doubt]] = read_rows("facts", "doubted")


def doubts(turns: list[str], text: str, *sources: int, negated: bool = False) -> tuple[Doubt, ...]:
    """Return the doubts about a fact of some turns, by default of the last one."""
    messages = parse_turns(*turns)
    ids = tuple(messages[number].message_id for number in sources or [-1])
    return find_doubts(Fact(text, source_ids=ids, negated=negated), messages, now=NOW)


def test_facts_that_follow_from_their_messages_are_not_marked() -> None:
    def check(row: tuple[list[str], str]) -> None:
        assert doubts(*row) == ()

    check_each(CONFIRMED, check)


def test_facts_that_their_messages_contradict_are_marked() -> None:
    def check(row: tuple[list[str], str, Doubt]) -> None:
        turns, text, doubt = row
        assert doubts(turns, text) == (doubt,)

    check_each(DOUBTED, check)


def test_tables_have_every_mark_in_both_languages() -> None:
    marks = {(doubt, language_of(text)) for _, text, doubt in DOUBTED}
    assert marks == {(doubt, name) for doubt in get_args(Doubt) for name in ("en", "zh")}


def test_several_marks_are_in_one_order() -> None:
    text = "User does not like the flat of 900 euros since 2019-07-01."
    assert doubts(["I like the flat of 800 euros."], text) == ("date", "number", "negation")


def test_a_negation_may_be_said_by_the_model_alone_in_a_field() -> None:
    assert doubts(["I like green tea."], "User likes green tea.", negated=True) == ("negation",)
    assert doubts(["Enough green tea, I'm done with it."], "No green tea.", negated=True) == ()


def test_numbers_before_an_answer_confirm_it() -> None:
    question = "assistant| Shall I book the flat for 940?"
    assert doubts([question, "Yes, that one."], "User books the flat for 940 euros.") == ()
    others = ["Hm.", "Let me think.", "Yes."]
    assert doubts([question, *others], "User books it for 940 euros.") == ("number",)


def test_sources_are_read_together() -> None:
    turns = ["The flat is 800.", "Hm.", "Nice.", "Fine.", "And heating 120."]
    assert doubts(turns, "User pays 920 euros.", 0, 4) == ()
    assert doubts(turns, "User pays 920 euros.", 4) == ("number",)


def test_a_source_that_was_not_shown_is_none() -> None:
    fact = Fact("User likes tea.", source_ids=("elsewhere",))
    assert find_doubts(fact, parse_turns("I like tea."), now=NOW) == ("source",)
    assert find_doubts(fact, [], now=NOW) == ("source",)


def test_relative_dates_are_counted_from_the_message_in_the_users_zone() -> None:
    said = Utterance(
        "m", None, Role.USER, "I start tomorrow.", datetime(2026, 1, 5, 20, tzinfo=UTC)
    )
    shanghai = ZoneInfo("Asia/Shanghai")  # where it is the 6th already
    for day, expected in (("2026-01-07", ()), ("2026-02-20", ("date",))):
        fact = Fact(f"User starts on {day}.", source_ids=("m",))
        assert find_doubts(fact, [said], now=NOW, zone=shanghai) == expected


PIECES = [
    *(
        "I have ",
        "two",
        " cats",
        " hundred and ",
        "3",
        "1,200",
        ".5",
        "k ",
        "万",
        "亿",
        "千三",
        "块二",
    ),
    *(
        "半",
        "两点半",
        "half past ",
        "a week from ",
        "monday",
        "下下周三",
        "三个月",
        "for six years",
    ),
    *("2026-05-01", "昨天", "not ", "不", "quit ", "没了", "，", ". ", "\n", "15:30", "one"),
]
_TEXT = st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
_TIMES = st.none() | st.datetimes(timezones=st.just(UTC))


@example("", [("三半月", None)], False, 0)
@example("", [("I start monday", datetime.min.replace(tzinfo=UTC))], False, -1)
@given(_TEXT, st.lists(st.tuples(_TEXT, _TIMES), max_size=4), st.booleans(), st.integers(-14, 14))
def test_no_text_raises(
    text: str, said: list[tuple[str, datetime | None]], negated: bool, hours: int
) -> None:
    messages = [
        Utterance(str(number), None, Role.USER, content, ts)
        for number, (content, ts) in enumerate(said)
    ]
    fact = Fact(text, source_ids=("0", "2"), negated=negated)
    zone = timezone(timedelta(hours=hours))
    found = find_doubts(fact, messages, now=NOW, zone=zone)
    assert {*found} <= {*get_args(Doubt)}
    assert found == find_doubts(fact, messages, now=NOW, zone=zone)


FACTOR, TRIES = 8, 3
MOST_GROWTH, NOISE_SECONDS = 20, 0.02  # quadratic work would be 64 times as much


def _seconds(content: str) -> float:
    message = Utterance("m", None, Role.USER, content, NOW)
    fact = Fact((content + " 2026-05-01 17 不")[:MAX_FACT], source_ids=("m",))
    start = time.thread_time()
    find_doubts(fact, [message], now=NOW)
    return time.thread_time() - start


def test_time_grows_with_the_text() -> None:
    """Runs that look like the beginning of a number once took seconds, or raised."""

    def check(piece: str) -> None:
        text = (piece * 4_000)[:4_000]
        for _ in range(TRIES):
            seconds = _seconds(text)
            if seconds < max(NOISE_SECONDS, MOST_GROWTH * _seconds(text[: len(text) // FACTOR])):
                return
        raise AssertionError(f"{seconds:.2f} seconds")

    _seconds("我 live in 北京 since 昨天, 2 不")  # loads tables and dictionaries
    check_each([*PIECES, "a", "1", "一", "亿万", "twohours", "3k"], check)


def test_long_runs_of_numerals_are_no_numbers() -> None:
    for run in ("万" * 3_000, "亿万" * 1_500, "9" * 4_000, "千" * 3_000 + "三"):
        assert doubts([f"我有三只猫 {run}"], f"用户有3只猫。{run[:400]}") == ()
