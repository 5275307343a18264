"""Mentions of members by name, id and nickname, in Chinese and English."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.chat import Member
from memrecall.chat.mentions import find_mentions, remove_mentions
from tests.cases import check_each, read_rows

GROUP = [
    Member(member_id="u1", name="Ann"),
    Member(member_id="u2", name="Anna Lee", nicknames=("Annie",)),
    Member(member_id="u3", name="小明", nicknames=("明明",)),
    Member(member_id="u4", name="小明明"),
    Member(member_id="bot_7", name="DeepSeek助手", nicknames=("小深",), ai=True),
]


def test_find_mentions() -> None:
    def check(case: tuple[str, str]) -> None:
        text, expected = case
        assert list(find_mentions(text, GROUP)) == expected.split()

    check_each(read_rows("mentions", "mentions"), check)


@given(st.text(max_size=60))
def test_mentions_are_always_members(text: str) -> None:
    assert set(find_mentions(text, GROUP)) <= {member.member_id for member in GROUP}


@given(
    st.sampled_from([(m.member_id, name) for m in GROUP for name in m.names]),
    st.text("abc 你好，。!\n", max_size=10),
)
def test_name_after_at_is_always_found(member: tuple[str, str], before: str) -> None:
    member_id, name = member
    text = f"{before} @{name} ok"
    assert member_id in find_mentions(text, GROUP)
    assert f"@{name}" not in remove_mentions(text, GROUP)


def test_remove_mentions() -> None:
    cases: list[tuple[str, str]] = [
        ("@小明 什么时候去？", "什么时候去？"),
        ("When is it, @Ann ?", "When is it, ?"),
        ("@Ann", "@Ann"),
        ("ann@ann.example", "ann@ann.example"),
        ("ok@小深 在吗", "ok 在吗"),
        ("`@Ann` is how", "`@Ann` is how"),
    ]

    def check(case: tuple[str, str]) -> None:
        text, expected = case
        assert remove_mentions(text, GROUP) == expected

    check_each(cases, check)


PIECES = ("\n", " ", "a.", "a", "` ", ", ", "@", "@ann ", "2026-11-15：“ ", "ann, ", "www.")


@pytest.mark.long
def test_find_mentions_takes_linear_time() -> None:
    def seconds(text: str) -> float:
        def measure() -> float:
            started = time.process_time()
            find_mentions(text, GROUP)
            remove_mentions(text, GROUP)
            return time.process_time() - started

        return min(measure() for _ in range(5))

    def check(piece: str) -> None:
        short, long = (seconds(piece * (size // len(piece))) for size in (25_000, 100_000))
        assert long < 10 * max(short, 0.001)  # quadratic work would take 16 times as long

    check_each(PIECES, check)
