"""Fixed phrases for models and readers in both languages, and the language of a chat."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

from memrecall.text.language import fill_phrase, language_of
from memrecall.types import Language

_SAMPLE = 2_000  # characters of a text that are enough to detect its language
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?", re.IGNORECASE)
_ENGLISH_WORDS = """a about all am an and any are as at be but by can could did do does for from had
    has have he her him his how i i'm if in is it it's its me my no not of on or our please said say
    says she so some tell thank thanks that the their them then there they this to us was we were
    what when where which who whose why will with would yes you your"""
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_CHINESE = re.compile("[的了是我你您他她它吗呢吧呀啊把被请怎哪谁这那什么就都也还不没很在有们]")
_TOO_SHORT = 4  # words or characters, if none is a function word
_LONGEST_QUOTE = 4  # Chinese characters that may be a quoted word


def chat_language(
    latest: Iterable[str], earlier: Iterable[str], strip: Callable[[str], str] = str
) -> Language:
    """Return the language of a chat: Chinese if at least half of the latest messages are.

    Messages too short to judge (a name, a number, “ok”) do not count. If all are, the last of the
    `earlier` ones that is not decides. `strip` removes names, which belong to no language.
    """
    texts = list(latest)
    latest_languages = [detect_language(strip(text[:_SAMPLE])) for text in texts]
    known = [language for language in latest_languages if language is not None]
    if known:
        return "zh" if 2 * known.count("zh") >= len(known) else "en"
    before = (detect_language(strip(text[:_SAMPLE])) for text in reversed(list(earlier)))
    guesses = (language_of(text) for text in reversed(texts))
    return next((language for language in chain(before, guesses) if language is not None), "en")


def detect_language(text: str) -> Language | None:
    """Return the language of a text, or None if it is too short to judge.

    Names of the other language in it do not matter.
    """
    han = len(_HAN.findall(text))
    words = _WORD.findall(text)
    english = any(word.lower().replace("’", "'") in _ENGLISH for word in words)
    chinese = _CHINESE.search(text) is not None
    if not english and not chinese:
        if han + len(words) <= _TOO_SHORT:
            return None
        return "zh" if han else "en"
    if not english:
        return "zh"
    if not chinese:
        return "zh" if han > 2 * len(words) else "en"
    return "zh" if han >= _LONGEST_QUOTE and 2 * han >= len(words) else "en"


_PHRASES: dict[str, tuple[str, str]] = {
    # Facts that follow the prompt
    "now": ("Now: {now}.", "现在：{now}。"),
    "you_are": ("You are {name} (id {id}).", "你是{name}（id {id}）。"),
    "members": ("Members of the group: {members}.", "群成员：{members}。"),
    "also_called": ("{name} (also {nicknames})", "{name}（也叫{nicknames}）"),
    "also_joint": (", ", "、"),
    "cap_left": ("Recalls left in this turn: {left}.", "本轮还可以回忆的次数：{left}。"),
    "cap_none": (
        "No recalls are left in this turn: do not call recall_memory.",
        "本轮没有剩余的回忆次数：不要调用 recall_memory。",
    ),
    "your_turn": ("It is your turn, {name}.", "轮到你了，{name}。"),
    # Results of tools
    "mentioned": ("You are mentioned and must speak.", "被提及，需要发言"),
    "not_mentioned": (
        "You are not mentioned; judge for yourself whether to speak.",
        "未被提及，可自行判断",
    ),
    "nothing_recalled": (
        "Nothing relevant was found. Do not guess: say that you do not know, or ask.",
        "没有找到相符的内容。不要猜测：请说不知道，或者询问。",
    ),
    "nothing_said_before": ("Nothing about it was said before.", "以前没有说过相关的内容。"),
    "withheld": (
        "Sensitive memories that match, but may not be shown: {count}. Say so; do not say that "
        "there are none.",
        "有 {count} 条敏感记忆相符，因没有权限未显示。请说无权显示，不要说没有。",
    ),
    "recall_failed": (
        "The recall failed, which is not the same as finding nothing. Answer without it and do not "
        "claim to know what was said earlier.",
        "回忆失败，这不等于没有找到。请在没有它的情况下回答，不要声称知道以前说过什么。",
    ),
    "cap_reached": (
        "Refused: no recall is left in this turn (at most {cap}). Answer with what you have.",
        "拒绝：本轮的回忆次数已用完（最多 {cap} 次）。请用已有的内容回答。",
    ),
    "too_many_calls": (
        "Refused: at most {cap} tool calls run in one turn. Answer with what you have.",
        "拒绝：一轮最多执行 {cap} 次工具调用。请用已有的内容回答。",
    ),
    "omitted": (
        "Only the latest {shown} messages are shown.",
        "只显示最近 {shown} 条消息。",
    ),
    "shortened": (
        "Long messages are truncated and end in “…”: {count}.",
        "过长的消息已截断，以“…”结尾：{count} 条。",
    ),
    "note_joint": (" ", ""),
    # Asking without tools
    "as_data": (
        "Data from {tool}, not said by anyone: {content}",
        "来自 {tool} 的数据，不是任何人说的：{content}",
    ),
    "answer_in_words": (
        "Answer now in plain words. Tools are no longer available: do not write tool calls.",
        "现在请只用文字回答。工具已不可用：不要写出工具调用。",
    ),
    # To the reader
    "no_answer": ("I have no answer to this.", "这个问题我答不上来。"),
}


tell = partial(fill_phrase, _PHRASES)
