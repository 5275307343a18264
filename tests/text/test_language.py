"""Questions, with and without a question mark."""

from memrecall.text.language import is_question

from ..cases import check_each

QUESTIONS = [
    *("What is the PIN", "who called", "Remind me of the date", "Does Ann drink tea"),
    *("the date of the exam?", "Tea or coffee? ", "  where is it"),
    *("我有什么忌口来着", "你去过哪里", "谁来了", "一共多少钱", "他几岁了", "怎么走", "你在吗"),
    *("有没有时间", "是不是明天", "吃啥", "电话号码？"),
]
STATEMENTS = [
    *("", "   ", "tea", "I drink tea.", "whatever you say", "Island trip", "Isabel called"),
    *("Tell them what I said.", "我喜欢喝茶。", "明天下午三点开会", "好的，记住了"),
]


def test_questions_are_recognized_without_a_question_mark() -> None:
    def check(text: str) -> None:
        assert is_question(text)

    check_each(QUESTIONS, check)


def test_statements_are_no_questions() -> None:
    def check(text: str) -> None:
        assert not is_question(text)

    check_each(STATEMENTS, check)
