"""Parsing of tool names and arguments as models write them."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.agent.dispatch import normalize_tool_name, parse_arguments
from memrecall.agent.tools.models import GetMemoryDetailInput, SearchMemoriesInput
from memrecall.errors import InvalidArgument
from memrecall.types import Language

from ..cases import check_each

NAMES = (
    "handoff",
    " handoff ",
    "functions.handoff",
    "function:handoff",
    "tools/handoff",
    "call=handoff",
    "handoff<|channel|>commentary",
    "handoff<|constrain|>json",
    "handoff()",
    "`handoff`",
)


def test_template_markup_is_removed_from_tool_names() -> None:
    def check(text: str) -> None:
        assert normalize_tool_name(text) == "handoff"

    check_each(NAMES, check)


def test_null_words_count_as_absent() -> None:
    def check(absent: object) -> None:
        fields = {"query": "x", "time_range_days": absent, "keywords": absent, "since": absent}
        arguments = parse_arguments(
            "search_memories", json.dumps(fields), SearchMemoriesInput, "en"
        )
        assert arguments == SearchMemoriesInput(query="x")

    check_each([None, "null", "None", "", " NULL ", "undefined"], check)


def test_null_word_of_required_argument_is_kept() -> None:
    arguments = parse_arguments(
        "get_memory_detail", '{"memory_key": "null"}', GetMemoryDetailInput, "en"
    )
    assert arguments == GetMemoryDetailInput(memory_key="null")


@pytest.mark.parametrize(
    "text",
    [
        '{"query": "x", "keywords": ["a", "b"]}',
        '"{\\"query\\": \\"x\\", \\"keywords\\": [\\"a\\", \\"b\\"]}"',  # JSON inside a string
        '{"query": "x", "keywords": "[\\"a\\", \\"b\\"]"}',
    ],
)
def test_json_inside_a_string_is_unwrapped(text: str) -> None:
    arguments = parse_arguments("search_memories", text, SearchMemoriesInput, "en")
    assert arguments == SearchMemoriesInput(query="x", keywords=["a", "b"])


def test_single_value_becomes_a_list() -> None:
    arguments = parse_arguments(
        "search_memories", '{"query": "x", "keywords": "tea, black"}', SearchMemoriesInput, "en"
    )
    assert arguments == SearchMemoriesInput(query="x", keywords=["tea, black"])


def test_numbers_in_strings_are_converted() -> None:
    arguments = parse_arguments(
        "search_memories", '{"query": "x", "limit": "3"}', SearchMemoriesInput, "en"
    )
    assert arguments == SearchMemoriesInput(query="x", limit=3)


@pytest.mark.parametrize(("language", "words"), [("en", "user is fixed"), ("zh", "用户已固定")])
def test_user_argument_is_refused(language: Language, words: str) -> None:
    def check(name: str) -> None:
        text = json.dumps({"query": "x", name: "ben"})
        with pytest.raises(InvalidArgument, match=words):
            parse_arguments("search_memories", text, SearchMemoriesInput, language)

    check_each(["user_id", "USER_ID", "agent_id", "session_id", "scope"], check)


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(InvalidArgument):
        assert isinstance(
            parse_arguments("search_memories", text, SearchMemoriesInput, "en"),
            SearchMemoriesInput,
        )


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        parse_arguments("search_memories", "[" * 100_000, SearchMemoriesInput, "en")
