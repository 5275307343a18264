"""Which messages may need a recall and which cannot."""

import pytest

from memrecall.agent.conversation import check_when, find_courtesy, needs_recall
from memrecall.errors import InvalidArgument
from tests.cases import check_each, read_lines


def _messages(table: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in read_lines("needs", table)]


def test_messages_that_may_need_a_recall() -> None:
    def check(text: str) -> None:
        assert needs_recall(text)

    check_each([*_messages("needed"), *_messages("needed by an author")], check)


def test_messages_that_cannot_need_a_recall() -> None:
    def check(text: str) -> None:
        assert not needs_recall(text)
        assert needs_recall(text, "always")

    check_each(_messages("not needed"), check)


def test_empty_text_is_never_recalled_for() -> None:
    for text in ("", " \n\t "):
        assert not needs_recall(text)
        assert not needs_recall(text, "always")


def test_unknown_value_of_when_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Use auto or always"):
        check_when("never")


def test_courtesies_have_names() -> None:
    cases = {"Thanks, bye!": "bye", "好的，谢谢你！": "thanks", "你好": "hello", "ok": "noted"}
    assert {text: find_courtesy(text) for text in cases} == cases
