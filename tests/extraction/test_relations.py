"""Entities, relations and aliases by rules."""

from datetime import UTC, datetime

import pytest

from memrecall.extraction import RuleExtractor
from memrecall.extraction.protocol import Entity, Related
from memrecall.extraction.signature import fold_person_name
from memrecall.extraction.stated_graph import aliases_in
from tests.cases import check_each, check_each_async

from .transcripts import NOW, parse_turns


async def relate(*turns: str) -> Related:
    return await RuleExtractor().relations(parse_turns(*turns), now=NOW)


def edges(related: Related) -> list[tuple[str, str, str]]:
    return [(item.source, item.relationship, item.destination) for item in related.relations]


@pytest.mark.parametrize("ending", ["", "有名", "有影响力", "厉害"])
async def test_relations_of_specification_example(ending: str) -> None:
    text = f"我叫李明，在北京大学学习计算机科学。我的导师是张教授，他在人工智能领域非常{ending}"
    related = await relate(text)
    assert {item.name: item.type for item in related.entities} == {
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
    assert {item.source_ids for item in related.relations} == {("m0",)}
    assert not any(item.ended for item in related.relations)


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


async def test_relations_of_statements() -> None:
    async def check(case: tuple[str, list[tuple[str, str, str]]]) -> None:
        text, expected = case
        assert edges(await relate(text)) == expected

    await check_each_async(STATEMENTS, check)


@pytest.mark.parametrize(
    "text",
    ["If I lived in Rome.", "Do I live in Rome?", "Hello!", "assistant| I live in Rome.", "你好"],
)
async def test_messages_without_relations(text: str) -> None:
    assert await relate(text) == Related((), ())


async def test_relations_start_at_their_speaker() -> None:
    related = await relate("Ann| I live in Rome.", "Bob| I'm allergic to nuts.")
    assert edges(related) == [("Ann", "lives_in", "Rome"), ("Bob", "allergic_to", "nuts")]
    assert Entity("Rome", "place") in related.entities


async def test_former_home_taste_and_partner_end() -> None:
    cases: list[tuple[str, list[tuple[str, bool]]]] = [
        ("I moved from Leeds to York.", [("York", False), ("Leeds", True)]),
        ("我从昌平搬到通州了。", [("通州", False), ("昌平", True)]),
        ("I don't like coffee any more.", [("coffee", True)]),
        ("我不喜欢咖啡了。", [("咖啡", True)]),
        ("我戒辣了。", [("辣", True)]),
        ("I hate coffee.", [("coffee", False)]),
    ]

    async def check(case: tuple[str, list[tuple[str, bool]]]) -> None:
        text, expected = case
        related = await relate(text)
        assert [(item.destination, item.ended) for item in related.relations] == expected

    await check_each_async(cases, check)


async def test_relation_is_not_read_into_other_words() -> None:
    cases: list[tuple[str, list[tuple[str, str, str]]]] = [
        ("I moved to Hebden Bridge at the end of march.", [("user", "lives_in", "Hebden Bridge")]),
        (
            "下个月去一家小公司 叫拓野。我住在上海。",
            [("user", "works_at", "拓野"), ("user", "lives_in", "上海")],
        ),
        ("老韩花粉过敏 别走有花的那条线", [("老韩", "allergic_to", "花粉")]),
        ("I almost moved to Madrid.", []),
        ("I work at the weekend.", []),
        ("I married young.", []),
        ("I'm dating myself here.", []),
        ("I married Tom in May.", [("user", "married_to", "Tom")]),
        ("我喜欢蒸的。", []),
        ("我最近开始健身。", []),
    ]

    async def check(case: tuple[str, list[tuple[str, str, str]]]) -> None:
        assert edges(await relate(case[0])) == case[1]

    await check_each_async(cases, check)


async def test_relatives_without_a_name_are_one_node_each() -> None:
    cases: list[tuple[tuple[str, ...], list[tuple[str, str, str]]]] = [
        (
            ("我妈住在绍兴。", "我母亲是护士。"),
            [
                ("user", "child_of", "用户的妈妈"),
                ("用户的妈妈", "lives_in", "绍兴"),
                ("用户的妈妈", "works_as", "护士"),
            ],
        ),
        (
            ("My gran is 91 and she lives in Perth.",),
            [("user", "grandchild_of", "user's gran"), ("user's gran", "lives_in", "Perth")],
        ),
        (
            ("记一下 我女儿的家长会是22号下午三点。", "她叫糖糖 在实验二小"),
            [("user", "parent_of", "糖糖"), ("糖糖", "studies_at", "实验二小")],
        ),
        (
            ("跟我老公去。他妹叫佳佳 海鲜过敏",),
            [
                ("佳佳", "allergic_to", "海鲜"),
                ("user", "married_to", "用户的老公"),
                ("用户的老公", "sibling_of", "佳佳"),
            ],
        ),
        (("my dog is called Rex, 4 years old",), [("user", "owns", "Rex")]),
        (("the dog stays with me",), [("user", "owns", "dog")]),
        (
            ("my cousin Ade's wedding is on 4 July in Bath",),
            [("user", "cousin_of", "Ade")],
        ),
    ]

    async def check(case: tuple[tuple[str, ...], list[tuple[str, str, str]]]) -> None:
        assert edges(await relate(*case[0])) == case[1]

    await check_each_async(cases, check)


async def test_change_of_medicine_tool_partner_and_diet_ends_the_old_relation() -> None:
    cases: list[tuple[str, list[tuple[str, str, bool]]]] = [
        ("The doctor doubled my metformin to 1000 mg.", [("takes", "metformin", False)]),
        ("they upped my levothyroxine from 75 to 100", [("takes", "levothyroxine", False)]),
        (
            "I switched from zoloft to wellbutrin 150 mg",
            [("takes", "wellbutrin", False), ("takes", "zoloft", True)],
        ),
        ("I stopped taking ibuprofen.", [("takes", "ibuprofen", True)]),
        ("now its candesartan 8 once a day", [("takes", "candesartan", False)]),
        ("缬沙坦停了", [("takes", "缬沙坦", True)]),
        ("我开始吃叶酸了", [("takes", "叶酸", False)]),
        ("降脂药改成半片了", [("takes", "降脂药", False)]),
        (
            "we switched from slack to zulip last month",
            [("uses", "zulip", False), ("uses", "slack", True)],
        ),
        ("我们组把jira扔了", [("uses", "jira", True)]),
        ("I was vegetarian.", [("follows_diet", "vegetarian", True)]),
        ("Lena and I are over", [("partner_of", "Lena", True)]),
        ("分了 跟小雨 谈了三年", [("partner_of", "小雨", True)]),
        ("I'm flying to Oslo on the 24th.", [("travels_to", "Oslo", False)]),
        ("我20号去长沙", [("travels_to", "长沙", False)]),
        ("If I fly to Oslo I get seasick.", []),
    ]

    async def check(case: tuple[str, list[tuple[str, str, bool]]]) -> None:
        related = await relate(case[0])
        found = [(item.relationship, item.destination, item.ended) for item in related.relations]
        assert found == case[1]

    await check_each_async(cases, check)


async def test_dose_of_a_relative_is_theirs() -> None:
    text = "我爸的降压药医生给调了 氨氯地平原来一天一片 现在改成半片"
    related = await relate(text)
    assert ("用户的爸爸", "takes", "氨氯地平") in edges(related)
    assert not any(item[:2] == ("user", "takes") for item in edges(related))


async def test_former_relations_are_ended() -> None:
    related = await relate("I no longer work at Oracle.", "我不住长沙了。")
    assert [(item.destination, item.ended) for item in related.relations] == [
        ("Oracle", True),
        ("长沙", True),
    ]
    repeated = await relate("I work at Oracle.", "I no longer work at Oracle.")
    assert [item.ended for item in repeated.relations] == [True]


async def test_repeated_relation_has_all_sources() -> None:
    (relation,) = (await relate("I live in Rome.", "I live in rome.")).relations
    assert relation.source_ids == ("m0", "m1")
    assert relation.destination == "Rome"


async def test_valid_from_of_relations() -> None:
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


def test_spellings_of_one_name_match() -> None:
    def check(case: tuple[str, str]) -> None:
        name, other = case
        assert fold_person_name(name) == fold_person_name(other) != ""

    check_each(SPELLINGS, check)


@pytest.mark.parametrize(
    ("name", "other"),
    [("李老师", "李明"), ("Bob", "Robert"), ("Ann", "Anna")],
)
def test_different_names_do_not_match(name: str, other: str) -> None:
    assert fold_person_name(name) != fold_person_name(other)


@pytest.mark.parametrize(
    ("text", "name", "other"),
    [
        ("李老师就是李明。", "李老师", "李明"),
        ("Robert, also known as Bob, called.", "Bob", "Robert"),
        ("Mouse is short for Micah.", "Micah", "Mouse"),
        ("唐诺（小名糯米）来了", "糯米", "唐诺"),
    ],
)
def test_stated_alias_is_found(text: str, name: str, other: str) -> None:
    assert list(aliases_in(text)) == [frozenset({name, other})]
