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
    cases: dict[str, list[str]] = {  # the ids, and texts that mention them
        "u1": [
            *("@Ann hello", "@ann, hello", "hello @ANN.", "@Ann的方案", "Ann, what do you think?"),
            *("What do you think, Ann?", "@\u200bAnn", "@Ann’s idea", "look, @Ann."),
            *("Thanks, Ann.", "Was it Tom, Ann?", "Hey Ann, are you there?"),
        ],
        "u2 u3": ["@Anna Lee and @u3"],
        "u2": ["@anna   lee?", "@ Annie", "annie: see above"],
        "": [
            *("@Annabel", "@Anna", "@bot_77 please", "mail ann@ann.example or x@u3"),
            *("Ann said so yesterday", "小明昨天说的", "we met Ann and Annie", "@ann-marie"),
            *("@ann.lee", "https://x.com/@ann", "see x.com/@ann or www.x.com/@ann"),
            *("`@ann` is how", "Ann，2026-11-15：“好的。”"),
            "Ann, 2026-11-15: “@小明 Annie, come”\n小明，2026-11-16：“x”",
            *("2026-11-15 你说过：“小深，你来”", "I met Tom, Ann.", "I met 小明, Ann."),
            *("Ann: I said so yesterday", "小明：我昨天说过", "Ann: hello\nAnnie: hi", "a@b.com"),
            *("@", ""),
        ],
        "u3": ["@小明你好", "@明明", "你怎么看，小明？", "```\n@ann\n```\n@小明"],
        "u4": ["@小明明你好"],
        "bot_7": [
            *("＠小深 在吗", "问一下@deepseek助手", "@ＤｅｅｐＳｅｅｋ助手", "@BOT_7 please"),
            *("小深，你怎么看？", "好的。小深，你呢", "ok@小深"),
        ],
        "u1 u3": ["@小明 @Ann 看看", "@u1@u3", "@Ann/@小明 look"],
        "u1 u2 u3 u4 bot_7": ["@所有人 开会", "@all meeting"],
    }

    def check(case: tuple[str, str]) -> None:
        text, expected = case
        assert list(find_mentions(text, GROUP)) == expected.split()

    check_each([(text, ids) for ids, texts in cases.items() for text in texts], check)


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
