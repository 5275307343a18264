"""Entities and relations by rules, the example of the specification among them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.extraction import Entity, Related, RuleExtractor, aliases_in, may_be_one
from tests.cases import check_each, check_each_async

from .talking import NOW, talk


async def relate(*turns: str) -> Related:
    return await RuleExtractor().relations(talk(*turns), now=NOW)


def edges(related: Related) -> list[tuple[str, str, str]]:
    return [(one.source, one.relationship, one.destination) for one in related.relations]


@pytest.mark.parametrize("ending", ["", "有名", "有影响力", "厉害"])
async def test_the_example_of_the_specification(ending: str) -> None:
    said = f"我叫李明，在北京大学学习计算机科学。我的导师是张教授，他在人工智能领域非常{ending}"
    related = await relate(said)
    assert {one.name: one.type for one in related.entities} == {
        "李明": "person",
        "北京大学": "organization",
        "计算机科学": "field",
        "张教授": "person",
        "人工智能": "field",
    }
    assert edges(related) == [
        ("李明", "studies_at", "北京大学"),
        ("李明", "studies", "计算机科学"),
        ("李明", "advised_by", "张教授"),
        ("张教授", "expert_in", "人工智能"),
    ]
    assert {one.source_ids for one in related.relations} == {("m0",)}
    assert not any(one.ended for one in related.relations)


STATEMENTS: list[tuple[str, list[tuple[str, str, str]]]] = [
    ("I live in Berlin.", [("user", "lives_in", "Berlin")]),
    ("I'm from Norway.", [("user", "from", "Norway")]),
    ("I work at Siemens.", [("user", "works_at", "Siemens")]),
    (
        "My sister Clara works at Siemens in Munich.",
        [
            ("user", "sibling_of", "Clara"),
            ("Clara", "works_at", "Siemens"),
            ("Siemens", "located_in", "Munich"),
        ],
    ),
    (
        "I study physics at ETH in Zurich.",
        [("user", "studies_at", "ETH"), ("ETH", "located_in", "Zurich")],
    ),
    (
        "我在杭州的阿里巴巴上班。",
        [("user", "works_at", "阿里巴巴"), ("阿里巴巴", "located_in", "杭州")],
    ),
    ("我在中国的大学工作。", [("user", "works_at", "中国的大学")]),
    ("I work for a startup called Lumen.", [("user", "works_at", "Lumen")]),
    ("I work for a small company.", []),
    ("I work as a nurse.", [("user", "works_as", "nurse")]),
    ("I'm married to Paul.", [("user", "married_to", "Paul")]),
    ("I'm engaged to Priyanka.", [("user", "engaged_to", "Priyanka")]),
    ("My boss is named Carol.", [("user", "managed_by", "Carol")]),
    ("My husband's name is Carlos.", [("user", "married_to", "Carlos")]),
    ("My dog is called Rex.", [("user", "owns", "Rex")]),
    (
        "I have two brothers, Mark and Luke.",
        [("user", "sibling_of", "Mark"), ("user", "sibling_of", "Luke")],
    ),
    (
        "My sister Clara lives in Oslo.",
        [("user", "sibling_of", "Clara"), ("Clara", "lives_in", "Oslo")],
    ),
    ("Bob lives in Rome.", [("Bob", "lives_in", "Rome")]),
    ("I like tea and coffee.", [("user", "likes", "tea"), ("user", "likes", "coffee")]),
    ("I hate mushrooms.", [("user", "dislikes", "mushrooms")]),
    ("I'm allergic to nuts.", [("user", "allergic_to", "nuts")]),
    ("I speak German and Dutch.", [("user", "speaks", "German"), ("user", "speaks", "Dutch")]),
    ("I'm a member of the local chess club.", [("user", "member_of", "local chess club")]),
    ("I graduated from MIT in 2012.", [("user", "graduated_from", "MIT")]),
    ("My name is Eve. I live in Rome.", [("Eve", "lives_in", "Rome")]),
    ("我住在上海。", [("user", "lives_in", "上海")]),
    ("我是湖南人。", [("user", "from", "湖南")]),
    (
        "我在腾讯做产品经理。",
        [("user", "works_at", "腾讯"), ("user", "works_as", "产品经理")],
    ),
    ("我在一家叫云杉的公司上班。", [("user", "works_at", "云杉")]),
    ("我在一家小公司当会计。", [("user", "works_as", "会计")]),
    ("我和小雅结婚了。", [("user", "married_to", "小雅")]),
    ("我家的猫叫糯米。", [("user", "owns", "糯米")]),
    ("我养了一只叫豆豆的柯基。", [("user", "owns", "豆豆")]),
    (
        "我同事老赵是山东人。",
        [("user", "colleague_of", "老赵"), ("老赵", "from", "山东")],
    ),
    ("我喜欢喝茶。", [("user", "likes", "茶")]),
    ("我讨厌甜食。", [("user", "dislikes", "甜食")]),
    (
        "我对青霉素和尘螨过敏。",
        [("user", "allergic_to", "青霉素"), ("user", "allergic_to", "尘螨")],
    ),
    ("我是围棋社的成员。", [("user", "member_of", "围棋社")]),
    ("我在学吉他。", [("user", "learns", "吉他")]),
]


async def test_statements_relate() -> None:
    async def check(case: tuple[str, list[tuple[str, str, str]]]) -> None:
        said, wanted = case
        assert edges(await relate(said)) == wanted

    await check_each_async(STATEMENTS, check)


@pytest.mark.parametrize(
    "said",
    ["If I lived in Rome.", "Do I live in Rome?", "Hello!", "assistant| I live in Rome.", "你好"],
)
async def test_junk_relates_nothing(said: str) -> None:
    assert await relate(said) == Related((), ())


async def test_speakers_are_their_own_sources() -> None:
    related = await relate("Ann| I live in Rome.", "Bob| I'm allergic to nuts.")
    assert edges(related) == [("Ann", "lives_in", "Rome"), ("Bob", "allergic_to", "nuts")]
    assert Entity("Rome", "place") in related.entities


async def test_what_is_over_is_ended() -> None:
    related = await relate("I no longer work at Oracle.", "我不住长沙了。")
    assert [(one.destination, one.ended) for one in related.relations] == [
        ("Oracle", True),
        ("长沙", True),
    ]
    again = await relate("I work at Oracle.", "I no longer work at Oracle.")
    assert [one.ended for one in again.relations] == [True]


async def test_a_relation_said_twice_has_two_sources() -> None:
    (relation,) = (await relate("I live in Rome.", "I live in rome.")).relations
    assert relation.source_ids == ("m0", "m1")
    assert relation.destination == "Rome"


async def test_since_when_a_relation_holds() -> None:
    (relation,) = (await relate("I moved to Lisbon last week.")).relations
    assert relation.valid_from == datetime(2026, 3, 2, tzinfo=UTC)


SPELLINGS: list[tuple[str, str]] = [
    ("Ann", "ann"),
    ("Ann Lee", "ann lee"),
    ("ＡＮＮ", "Ann"),
    ("José", "Jose"),
    ("Dr. Anna Schmidt", "Anna Schmidt"),
    ("李明", "李明"),
    ("張教授", "张教授"),
    ("Mary-Jane", "Mary Jane"),
]


def test_spellings_of_one_name() -> None:
    def check(case: tuple[str, str]) -> None:
        one, other = case
        assert may_be_one(one, other)
        assert may_be_one(other, one)

    check_each(SPELLINGS, check)


@pytest.mark.parametrize(
    ("one", "other"), [("李老师", "李明"), ("Bob", "Robert"), ("Ann", "Anna"), ("", ""), ("?", "!")]
)
def test_other_names_are_others_unless_somebody_says_so(one: str, other: str) -> None:
    assert not may_be_one(one, other)


@pytest.mark.parametrize(
    ("said", "one", "other"),
    [
        ("李老师就是李明。", "李老师", "李明"),
        ("Robert, also known as Bob, called.", "Bob", "robert"),
        ("Mouse is short for Micah.", "Micah", "Mouse"),
        ("唐诺（小名糯米）来了", "糯米", "唐诺"),
    ],
)
def test_an_alias_that_was_said_counts(said: str, one: str, other: str) -> None:
    assert may_be_one(one, other, list(aliases_in(said)))


def test_aliases_reach_over_others() -> None:
    aliases = [frozenset({"李老师", "李明"}), frozenset({"李明", "Li Ming"})]
    assert may_be_one("李老师", "li ming", aliases)
    assert not may_be_one("李老师", "王老师", aliases)


@given(st.text(max_size=20), st.text(max_size=20))
def test_being_one_goes_both_ways(one: str, other: str) -> None:
    assert may_be_one(one, other) == may_be_one(other, one)
