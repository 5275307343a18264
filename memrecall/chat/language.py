"""The language of a chat: that of what was said, not of the names in it."""

import re
from collections.abc import Callable, Iterable
from itertools import chain

from memrecall.agent.conversation import language_of
from memrecall.model.prompts import Language

_READ = 2_000  # characters of a text: enough to tell
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?", re.IGNORECASE)
_ENGLISH_WORDS = """a about all am an and any are as at be but by can could did do does for from had
    has have he her him his how i i'm if in is it it's its me my no not of on or our please said say
    says she so some tell thank thanks that the their them then there they this to us was we were
    what when where which who whose why will with would yes you your"""
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_CHINESE = re.compile("[的了是我你您他她它吗呢吧呀啊把被请怎哪谁这那什么就都也还不没很在有们]")
_LITTLE = 4  # words or characters, none of which holds a sentence together
_PHRASE = 4  # Chinese characters that are more than a quoted word


def chat_language(
    latest: Iterable[str], earlier: Iterable[str], strip: Callable[[str], str] = str
) -> Language:
    """The language of a chat: Chinese if at least half of the latest messages are.

    Messages that tell little (a name, a number, “ok”) do not count. Where none tells, the last of
    the `earlier` ones that does decides. `strip` takes out what is no word of any language.
    """
    texts = list(latest)
    told = [found for text in texts if (found := tell_language(strip(text[:_READ]))) is not None]
    if told:
        return "zh" if 2 * told.count("zh") >= len(told) else "en"
    before = (tell_language(strip(text[:_READ])) for text in reversed(list(earlier)))
    any_at_all = (language_of(text) for text in reversed(texts))
    return next((found for found in chain(before, any_at_all) if found is not None), "en")


def tell_language(text: str) -> Language | None:
    """The language of a text, whatever names of the other it holds; None if it tells little."""
    han = len(_HAN.findall(text))
    words = _WORD.findall(text)
    english = any(word.lower().replace("’", "'") in _ENGLISH for word in words)
    chinese = _CHINESE.search(text) is not None
    if not english and not chinese:
        if han + len(words) <= _LITTLE:
            return None
        return "zh" if han else "en"
    if not english:
        return "zh"
    if not chinese:
        return "zh" if han > 2 * len(words) else "en"
    return "zh" if han >= _PHRASE and 2 * han >= len(words) else "en"
