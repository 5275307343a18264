"""Mentions of members by name, id and nickname, in Chinese and English."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.chat import Member
from memrecall.chat.mentions import find_mentions, remove_mentions
from tests.cases import check_each

GROUP = [
    Member(member_id="u1", name="Ann"),
    Member(member_id="u2", name="Anna Lee", nicknames=("Annie",)),
    Member(member_id="u3", name="小明", nicknames=("明明",)),
    Member(member_id="u4", name="小明明"),
    Member(member_id="bot_7", name="DeepSeek助手", nicknames=("小深",), ai=True),
]


def test_find_mentions() -> None:
    cases: list[tuple[str, list[str]]] = [
        ("@Ann hello", ["u1"]),
        ("@ann, hello", ["u1"]),
        ("hello @ANN.", ["u1"]),
        ("@Anna Lee and @u3", ["u2", "u3"]),
        ("@anna   lee?", ["u2"]),
        ("@Annabel", []),
        ("@Anna", []),  # not her whole name, and not Ann either
        ("@Ann的方案", ["u1"]),
        ("@小明你好", ["u3"]),
        ("@小明明你好", ["u4"]),
        ("@明明", ["u3"]),
        ("＠小深 在吗", ["bot_7"]),
        ("问一下@deepseek助手", ["bot_7"]),
        ("@ＤｅｅｐＳｅｅｋ助手", ["bot_7"]),
        ("@BOT_7 please", ["bot_7"]),
        ("@bot_77 please", []),
        ("@ Annie", ["u2"]),
        ("@小明 @Ann 看看", ["u1", "u3"]),
        ("@所有人 开会", ["u1", "u2", "u3", "u4", "bot_7"]),
        ("@all meeting", ["u1", "u2", "u3", "u4", "bot_7"]),
        ("小深，你怎么看？", ["bot_7"]),
        ("Ann, what do you think?", ["u1"]),
        ("annie: see above", ["u2"]),
        ("What do you think, Ann?", ["u1"]),
        ("你怎么看，小明？", ["u3"]),
        ("好的。小深，你呢", ["bot_7"]),
        ("mail ann@ann.example or x@u3", []),
        ("Ann said so yesterday", []),
        ("小明昨天说的", []),
        ("we met Ann and Annie", []),
        ("@u1@u3", ["u1", "u3"]),
        ("ok@小深", ["bot_7"]),
        ("@\u200bAnn", ["u1"]),
        ("@ann-marie", []),
        ("@ann.lee", []),
        ("@Ann’s idea", ["u1"]),
        ("look, @Ann.", ["u1"]),
        ("https://x.com/@ann", []),
        ("see x.com/@ann or www.x.com/@ann", []),
        ("@Ann/@小明 look", ["u1", "u3"]),
        ("`@ann` is how", []),
        ("```\n@ann\n```\n@小明", ["u3"]),
        ("Ann，2026-11-15：“好的。”", []),
        ("Ann, 2026-11-15: “@小明 Annie, come”\n小明，2026-11-16：“x”", []),
        ("2026-11-15 你说过：“小深，你来”", []),
        ("I met Tom, Ann.", []),
        ("I met 小明, Ann.", []),
        ("Thanks, Ann.", ["u1"]),
        ("Was it Tom, Ann?", ["u1"]),
        ("Hey Ann, are you there?", ["u1"]),
        ("Ann: I said so yesterday", []),
        ("小明：我昨天说过", []),
        ("Ann: hello\nAnnie: hi", []),  # a transcript
        ("a@b.com", []),
        ("@", []),
        ("", []),
    ]

    def check(case: tuple[str, list[str]]) -> None:
        text, expected = case
        assert list(find_mentions(text, GROUP)) == expected

    check_each(cases, check)


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
