"""Which messages need a recall and which do not."""

from memrecall.agent.offline.needs import needs_recall
from tests.agent.offline import needs_examples as examples
from tests.cases import check_each


def _lines(table: str) -> list[str]:
    return [line.replace("\\n", "\n").replace("\\t", "\t") for line in table.strip().splitlines()]


NEEDED = _lines(examples.NEEDED_EN) + _lines(examples.NEEDED_ZH)
NOT_NEEDED = _lines(examples.NOT_NEEDED_EN) + _lines(examples.NOT_NEEDED_ZH)
ABOUT_THIS_CONVERSATION = (
    ("continue", ["Write a story about a lighthouse.", "Once upon a time a keeper…"]),
    ("接着说", ["讲讲黑洞的形成", "恒星坍缩以后……"]),
    ("try again", ["Sort the list 3, 1, 2", "1, 2, 4"]),
    ("explain that one in more detail", ["Compare mergesort and quicksort", "Mergesort …"]),
    ("把那个改成蓝色", ["画一个红色的按钮", "<button>…"]),
    ("your answer above, please shorter", ["What is entropy?", "Entropy measures disorder."]),
)
ABOUT_ANOTHER_CONVERSATION = (
    "do it like last time",
    "上次的方案呢",
    "What did I tell you last week?",
    "老样子",
)


def test_requests_that_need_a_recall() -> None:
    def check(text: str) -> None:
        assert needs_recall(text, [])

    check_each(NEEDED, check)


def test_requests_that_need_no_recall() -> None:
    def check(text: str) -> None:
        assert not needs_recall(text, [])

    check_each(NOT_NEEDED, check)


def test_reference_to_this_conversation_needs_no_recall() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        assert not needs_recall(*case)

    check_each(ABOUT_THIS_CONVERSATION, check)


def test_reference_to_another_conversation_needs_a_recall() -> None:
    def check(text: str) -> None:
        assert needs_recall(text, ["Write a story about a lighthouse.", "讲讲黑洞"])

    check_each(ABOUT_ANOTHER_CONVERSATION, check)


def test_request_next_to_machine_text_is_recognised() -> None:
    code = "```python\nraise ValueError\n```"
    assert needs_recall(f"Fix it the way you suggested last time:\n{code}", [])
    assert not needs_recall(f"What does this do?\n{code}", [])
