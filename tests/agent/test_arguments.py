"""What models write as calls is read with good will, and never guessed beyond it."""

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


def test_traces_of_templates_around_a_name_are_removed() -> None:
    def check(written: str) -> None:
        assert normalize_tool_name(written) == "handoff"

    check_each(NAMES, check)


def test_what_models_write_for_nothing_is_nothing() -> None:
    def check(absent: object) -> None:
        given = {"query": "x", "time_range_days": absent, "keywords": absent, "since": absent}
        asked = parse_arguments("search_memories", json.dumps(given), SearchMemoriesInput, "en")
        assert asked == SearchMemoriesInput(query="x")

    check_each([None, "null", "None", "", " NULL ", "undefined"], check)


def test_a_required_word_null_is_a_word() -> None:
    asked = parse_arguments(
        "get_memory_detail", '{"memory_key": "null"}', GetMemoryDetailInput, "en"
    )
    assert asked == GetMemoryDetailInput(memory_key="null")


@pytest.mark.parametrize(
    "written",
    [
        '{"query": "x", "keywords": ["a", "b"]}',
        '"{\\"query\\": \\"x\\", \\"keywords\\": [\\"a\\", \\"b\\"]}"',  # JSON inside a string
        '{"query": "x", "keywords": "[\\"a\\", \\"b\\"]"}',
    ],
)
def test_json_inside_a_string_is_unwrapped(written: str) -> None:
    asked = parse_arguments("search_memories", written, SearchMemoriesInput, "en")
    assert asked == SearchMemoriesInput(query="x", keywords=["a", "b"])


def test_one_word_where_a_list_is_wanted_is_a_list_of_one() -> None:
    asked = parse_arguments(
        "search_memories", '{"query": "x", "keywords": "tea, black"}', SearchMemoriesInput, "en"
    )
    assert asked == SearchMemoriesInput(query="x", keywords=["tea, black"])


def test_numbers_as_words_are_numbers() -> None:
    asked = parse_arguments(
        "search_memories", '{"query": "x", "limit": "3"}', SearchMemoriesInput, "en"
    )
    assert asked == SearchMemoriesInput(query="x", limit=3)


@pytest.mark.parametrize(("language", "words"), [("en", "user is fixed"), ("zh", "用户已固定")])
def test_user_argument_is_refused(language: Language, words: str) -> None:
    def check(name: str) -> None:
        written = json.dumps({"query": "x", name: "ben"})
        with pytest.raises(InvalidArgument, match=words):
            parse_arguments("search_memories", written, SearchMemoriesInput, language)

    check_each(["user_id", "USER_ID", "agent_id", "session_id", "scope"], check)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(written: str) -> None:
    with suppress(InvalidArgument):
        assert isinstance(
            parse_arguments("search_memories", written, SearchMemoriesInput, "en"),
            SearchMemoriesInput,
        )


def test_hostile_nesting_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        parse_arguments("search_memories", "[" * 100_000, SearchMemoriesInput, "en")
