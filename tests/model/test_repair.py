"""Repair of malformed JSON from models."""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.model.structured import repair_json
from tests.counting import count_calls

from ..cases import check_each, read_rows

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
CONTAINERS = st.lists(VALUES, max_size=4) | st.dictionaries(st.text(), VALUES, max_size=4)


def test_malformed_json_is_repaired() -> None:
    def check(case: tuple[str, object]) -> None:
        text, value = case
        assert repair_json(text) == value

    check_each(read_rows("values", "repaired"), check)


def test_text_without_json_raises_value_error() -> None:
    def check(text: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            repair_json(text)

    check_each(["", "maybe", "{maybe}", "]", "{]", '{"a": yes}', '"open', "{'a'}"], check)


@settings(max_examples=40)
@given(VALUES)
def test_valid_json_is_unchanged(value: object) -> None:
    assert repair_json(json.dumps(value)) == value
    assert repair_json(json.dumps(value, ensure_ascii=False, indent=1)) == value


@settings(max_examples=40)
@given(CONTAINERS)
def test_prose_and_fences_are_ignored(value: object) -> None:
    assert repair_json(f"Here it is:\n```json\n{json.dumps(value)}\n```\nBye.") == value


@settings(max_examples=40)
@given(st.dictionaries(st.text(), VALUES, min_size=1), st.data())
def test_truncated_json_keeps_complete_values(
    value: dict[str, object], data: st.DataObject
) -> None:
    text = json.dumps(value)
    end = data.draw(st.integers(min_value=1, max_value=len(text)))
    repaired = repair_json(text[:end])
    assert isinstance(repaired, dict)
    assert list(repaired) == list(value)[: len(repaired)]


@given(st.text() | st.text(alphabet="{}[]\"':,\\ntrue0.-` "))
def test_any_text_parses_or_raises_value_error(text: str) -> None:
    with suppress(ValueError):
        repair_json(text)


ADVERSARIAL: dict[str, Callable[[int], str]] = {
    "lists": lambda size: "[" * size,
    "objects": lambda size: "{" * size,
    "objects in objects": lambda size: '{"a":' * size,
    "backslashes": lambda size: '["' + "\\" * size,
    "quotes": lambda size: "[" + '"' * (size + 1),
    "open strings": lambda size: "['" * (size // 2),
    "words": lambda size: "[a " * (size // 2),
    "numbers": lambda size: "[" + "1 " * size + "x",
    "a long name": lambda size: "{" + "a" * size,
    "fences": lambda size: "```json " * (size // 5),
    "spaces": lambda size: "[" + " " * size + "x",
    "a long number": lambda size: "[" + "9" * size,
}


def test_adversarial_input_takes_linear_steps() -> None:
    def check(name: str) -> None:
        small, large = (
            count_calls(partial(repair_or_ignore, ADVERSARIAL[name](size)))
            for size in (1_000, 4_000)
        )
        assert large < 5 * small + 500

    check_each(ADVERSARIAL, check)


def repair_or_ignore(text: str) -> None:
    with suppress(ValueError):
        repair_json(text)


def test_adversarial_input_terminates() -> None:
    """Work inside regular expressions is not counted; backtracking would take hours."""

    def check(name: str) -> None:
        repair_or_ignore(ADVERSARIAL[name](100_000))

    check_each(ADVERSARIAL, check)
