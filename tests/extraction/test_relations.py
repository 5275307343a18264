"""Entities, relations and aliases by rules."""

from datetime import UTC, datetime
from typing import Any

import pytest

from memrecall.extraction import RuleExtractor
from memrecall.extraction.protocol import Entity, Related
from memrecall.extraction.signature import fold_person_name
from memrecall.extraction.stated_graph import aliases_in
from tests.cases import check_each, check_each_async

from .conversations import read_cases
from .transcripts import NOW, parse_turns


async def relate(*turns: str) -> Related:
    return await RuleExtractor().relations(parse_turns(*turns), now=NOW)


def edges(related: Related) -> list[tuple[str, str, str]]:
    return [(item.source, item.relationship, item.destination) for item in related.relations]


async def test_relations_of_specification_example() -> None:
    text = "我叫李明，在北京大学学习计算机科学。我的导师是张教授，他在人工智能领域非常有名。"
    related = await relate(text)
    assert {item.name: item.type for item in related.entities} == {
        "李明": "person",
        "北京大学": "organization",
        "计算机科学": "field",
        "张教授": "person",
    }
    assert edges(related) == [
        ("李明", "studies_at", "北京大学"),
        ("李明", "studies", "计算机科学"),
        ("李明", "advised_by", "张教授"),
    ]
    assert {item.source_ids for item in related.relations} == {("m0",)}
    assert not any(item.ended for item in related.relations)


async def test_relations_of_statements() -> None:
    async def check(case: dict[str, Any]) -> None:
        found = [
            [item.source, item.relationship, item.destination, item.ended]
            for item in (await relate(*case["turns"])).relations
        ]
        assert found == case["relations"]

    await check_each_async(read_cases("relations"), check)


async def test_relations_start_at_their_speaker() -> None:
    related = await relate("Ann| I live in Rome.", "Bob| I'm allergic to nuts.")
    assert edges(related) == [("Ann", "lives_in", "Rome"), ("Bob", "allergic_to", "nuts")]
    assert Entity("Rome", "place") in related.entities


async def test_former_relations_are_ended() -> None:
    related = await relate("I no longer work at Oracle.", "我不住长沙了。")
    assert [(item.destination, item.ended) for item in related.relations] == [
        ("Oracle", True),
        ("长沙", True),
    ]
    repeated = await relate("I work at Oracle.", "I no longer work at Oracle.")
    assert [item.ended for item in repeated.relations] == [True]


async def test_repeated_relation_has_all_sources() -> None:
    (relation,) = (await relate("I live in Rome.", "I live in ROME.")).relations
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
    ("name", "other"), [("李老师", "李明"), ("Bob", "Robert"), ("Ann", "Anna")]
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
