"""JSON objects: strict in files of users, lenient in what models and tools return."""

import pytest

from memrecall.errors import InvalidArgument
from memrecall.json_objects import load_json_object, parse_json_line

from .cases import check_each

INVALID: list[tuple[bytes, str]] = [
    (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    (b'{"a": ', "not JSON: "),
    (b"[" * 100_000, "not JSON: "),
    (b"[1]", "not a JSON object"),
    (b'{"a": 1, "a": 1}', "a is given twice"),
    (b'{"a": {"b": 1, "b": 2}}', "b is given twice"),
]


def test_a_line_is_parsed_strictly() -> None:
    def check(case: tuple[bytes, str]) -> None:
        line, problem = case
        with pytest.raises(InvalidArgument, match=problem):
            parse_json_line(line)

    check_each(INVALID, check)
    assert parse_json_line('\ufeff{"茶": 1}\n'.encode()) == {"茶": 1}


def test_a_text_without_an_object_is_none() -> None:
    def check(text: str) -> None:
        assert load_json_object(text) is None

    check_each(["", "[1]", "null", '{"a": ', "[" * 100_000, '{"a":' * 100_000], check)
    assert load_json_object('{"a": {}}') == {"a": {}}
    assert load_json_object("{}") == {}
