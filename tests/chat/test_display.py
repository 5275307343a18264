"""The notebook view of a finished chat turn."""

from memrecall.chat import Final, LeakReport

from ..inert import EVIL, assert_harmless


def test_html_shows_answer_and_cost() -> None:
    final = Final("In Lisbon.", "m9", model="gpt", model_calls=2, recalls=1, usage={"prompt": 1200})
    text = assert_harmless(final._repr_html_()).text
    assert text == "In Lisbon.gpt · 1 recalls · 2 model calls · 1,200 tokens · m9"


def test_html_shows_problems_in_the_language_of_the_turn() -> None:
    leak = LeakReport("deepseek_dsml", "recall_memory")
    final = Final("抱歉", None, degraded=True, language="zh", leaks=(leak,))
    text = assert_harmless(final._repr_html_()).text
    assert "模型没有给出完整的回答" in text
    assert "隐藏了一个写成文字的工具调用: deepseek_dsml (recall_memory)" in text


def test_html_of_silence() -> None:
    assert "chose to say nothing" in Final("", None, silent=True)._repr_html_()


def test_html_escapes_model_text() -> None:
    final = Final(EVIL, EVIL, model=EVIL, leaks=(LeakReport(EVIL, EVIL),))
    assert assert_harmless(final._repr_html_()).text.count(EVIL) == 5
