"""JSON as models write it."""

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.model import repair_json

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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Sure, as {asked}:\n```\n{"a": [1, 2]}\n```\nAnything else?', {"a": [1, 2]}),
        ('The answer [is]: {"a": "b"} as you see.', {"a": "b"}),
        ('{"a": 1, "b": [1, 2,],}', {"a": 1, "b": [1, 2]}),
        ("{'a': 'it\\'s', 'b': True, 'c': None, 'd': False}",
         {"a": "it's", "b": True, "c": None, "d": False}),
        ('{needed: true, "why": "x"}', {"needed": True, "why": "x"}),
        ('{"a": 1 "b": -2.5e3}', {"a": 1, "b": -2500.0}),
        ('{"a": "line\nbreak", "b": "D:\\dir"}', {"a": "line\nbreak", "b": "D:\\dir"}),
        ('{"a": "\\ud83d\\ude00",}', {"a": "😀"}),
        ('{"a": [1, {"b": 2}', {"a": [1, {"b": 2}]}),
        ('{"a": [1, 2}', {"a": [1, 2]}),
        ('{"a": "cut o', {"a": "cut o"}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": 1, "b":', {"a": 1}),
        ('{"a": 1, "b": tru', {"a": 1}),
        ('{"a": 1, "b": 0.9', {"a": 1}),
        ('{"a": 1} // done', {"a": 1}),
        ("True", True),
        ("`None`", None),
    ],
)  # fmt: skip
def test_what_was_meant_is_read(text: str, value: object) -> None:
    assert repair_json(text) == value


@pytest.mark.parametrize(
    "text", ["", "maybe", "{maybe}", "]", "{]", '{"a": yes}', '"open', "{'a'}"]
)
def test_what_is_no_json_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        repair_json(text)


@given(VALUES)
def test_valid_json_is_unchanged(value: object) -> None:
    assert repair_json(json.dumps(value)) == value
    assert repair_json(json.dumps(value, ensure_ascii=False, indent=1)) == value


@given(CONTAINERS)
def test_prose_and_fences_do_not_matter(value: object) -> None:
    assert repair_json(f"Here it is:\n```json\n{json.dumps(value)}\n```\nBye.") == value


@given(st.dictionaries(st.text(), VALUES, min_size=1), st.data())
def test_a_cut_end_keeps_the_beginning(value: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(value)
    end = data.draw(st.integers(min_value=1, max_value=len(text)))
    read = repair_json(text[:end])
    assert isinstance(read, dict)
    assert list(read) == list(value)[: len(read)]


@given(st.text() | st.text(alphabet="{}[]\"':,\\ntrue0.-` "))
def test_nothing_but_value_errors(text: str) -> None:
    with suppress(ValueError):
        repair_json(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{" * 100_000,
        '{"a":' * 100_000,
        '["' + "\\" * 100_000,
        "[" + '"' * 100_001,
        "['" * 50_000,
        "[a " * 50_000,
        "[" + "1 " * 100_000 + "x",
        "{" + "a" * 100_000,
        "```json " * 20_000,
        "[" + " " * 100_000 + "x",
        "[" + "9" * 100_000,
    ],
)
def test_hostile_input_takes_no_time(text: str) -> None:
    start = time.perf_counter()
    with suppress(ValueError):
        repair_json(text)
    assert time.perf_counter() - start < 3
