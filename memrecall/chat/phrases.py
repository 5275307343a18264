"""Fixed phrases for models and readers in both languages, and the language of a chat."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path

from memrecall.text.language import fill_phrase, language_of, read_phrases
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


_PHRASES = read_phrases(Path(__file__).with_name("phrases.json"))


tell = partial(fill_phrase, _PHRASES)
