"""Detection of a chat's language, which ignores the names in it."""

from memrecall.chat.turn import chat_language, detect_language
from memrecall.memory import Library
from memrecall.testing import say
from tests.cases import check_each, read_rows

from .chat_helpers import collect_turn, group_chat, single_chat


def test_detect_language() -> None:
    def check(case: tuple[str, str | None]) -> None:
        text, language = case
        assert detect_language(text) == language

    check_each(read_rows("languages", "languages"), check)


def test_short_message_takes_language_of_earlier_ones() -> None:
    assert chat_language(["王小明?"], ["Who has the key?"]) == "en"
    assert chat_language(["ok"], ["钥匙在谁那里？", "42"]) == "zh"
    assert chat_language(["王小明?"], []) == "zh"
    assert chat_language([], []) == "en"


def test_half_chinese_messages_make_the_chat_chinese() -> None:
    assert chat_language(["好的，我来", "I am here", "ok"], []) == "zh"
    assert chat_language(["好的，我来", "I am here", "so am I"], []) == "en"


async def test_chinese_name_does_not_make_a_group_chinese(sqlite_library: Library) -> None:
    chat = group_chat(sqlite_library, say("Nothing."), say("ok"))
    await chat.post("ann", "@Helper what did 王小明 say?")
    turn = await collect_turn(chat.stream("bot"))
    assert turn.final.language == "en"
    assert "You are mentioned" in turn.results("is_mentioned", forged=True)[0].content
    await chat.post("ann", "@小助手 小波？")  # only names of members
    assert (await chat.answer("bot")).language == "en"


async def test_name_does_not_make_a_single_chat_chinese(sqlite_library: Library) -> None:
    chat = single_chat(sqlite_library, say("Nothing."), say("ok"))
    assert (await chat.answer("What did 王小明 say?")).language == "en"
    assert (await chat.answer("王小明?")).language == "en"
