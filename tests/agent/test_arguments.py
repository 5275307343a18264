"""Parsing of tool names and arguments as models write them."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from memrecall.agent.tools.models import GetMemoryDetailInput, SearchMemoriesInput
from memrecall.agent.tools.table import TOOLS, normalize_tool_name, parse_arguments
from memrecall.errors import InvalidArgument
from memrecall.types import Language

from ..cases import check_each


def read(text: str, language: Language = "en", tool: str = "search_memories") -> BaseModel:
    """Return the arguments that a model wrote."""
    return parse_arguments(TOOLS[tool], text, lenient=True, language=language)


NAMES = (
    *("handoff", " handoff ", "functions.handoff", "function:handoff", "tools/handoff"),
    *("call=handoff", "handoff<|channel|>commentary", "handoff<|constrain|>json", "handoff()"),
    *("`handoff`", "default_api.handoff", "mcp__memrecall__handoff", "recall.handoff", "handoff:0"),
    *("HandOff", "hand-off", "hand_off"),
)


def test_template_markup_is_removed_from_tool_names() -> None:
    def check(text: str) -> None:
        assert normalize_tool_name(text) == "handoff"

    check_each(NAMES, check)


def test_null_words_count_as_absent() -> None:
    def check(absent: object) -> None:
        fields = {"query": "x", "time_range_days": absent, "keywords": absent, "since": absent}
        assert read(json.dumps(fields)) == SearchMemoriesInput(query="x")

    check_each([None, "null", "None", "", " NULL ", "undefined"], check)


def test_null_word_of_required_argument_is_kept() -> None:
    arguments = read('{"memory_key": "null"}', tool="get_memory_detail")
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
    assert read(text) == SearchMemoriesInput(query="x", keywords=["a", "b"])


def test_single_value_becomes_a_list() -> None:
    arguments = read('{"query": "x", "keywords": "tea, black"}')
    assert arguments == SearchMemoriesInput(query="x", keywords=["tea, black"])


def test_numbers_in_strings_are_converted() -> None:
    assert read('{"query": "x", "limit": "3"}') == SearchMemoriesInput(query="x", limit=3)


@pytest.mark.parametrize(("language", "words"), [("en", "user is fixed"), ("zh", "用户已固定")])
def test_user_argument_is_refused(language: Language, words: str) -> None:
    def check(name: str) -> None:
        text = json.dumps({"query": "x", name: "ben"})
        with pytest.raises(InvalidArgument, match=words):
            read(text, language)

    check_each(["user_id", "USER_ID", "agent_id", "session_id", "scope"], check)


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(InvalidArgument):
        assert isinstance(read(text), SearchMemoriesInput)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        read("[" * 100_000)


class TestClients:
    """Arguments from clients, which send JSON values and get short errors in English."""

    def test_positional_values_get_names(self) -> None:
        tool = TOOLS["search_memories"]
        assert parse_arguments(tool, ["x", "keyword"]) == SearchMemoriesInput(
            query="x", search_mode="keyword"
        )
        with pytest.raises(InvalidArgument, match="takes up to 10 parameters, not 11"):
            parse_arguments(tool, ["x"] * 11)

    def test_values_are_not_repaired(self) -> None:
        tool = TOOLS["search_memories"]
        for name, value in (("keywords", "tea"), ("time_range_days", "null")):
            fields = {"query": "x", name: value}
            assert read(json.dumps(fields))
            with pytest.raises(InvalidArgument):
                parse_arguments(tool, fields)

    def test_error_is_one_short_line(self) -> None:
        with pytest.raises(InvalidArgument) as error_info:
            parse_arguments(TOOLS["search_memories"], {"query": "x", "a\n" * 200: 1})
        assert "\n" not in error_info.value.message
        assert len(error_info.value.message) < 210

    def test_missing_arguments_are_empty(self) -> None:
        values: tuple[object, ...] = (None, {}, [])
        for absent in values:
            with pytest.raises(InvalidArgument, match="query is missing"):
                parse_arguments(TOOLS["search_memories"], absent)
