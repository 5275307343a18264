"""Language detection, bilingual phrases and stop words for English and Chinese."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from memrecall.text.tokens import stem
from memrecall.types import Language


def language_of(text: str) -> Language:
    """Return "zh" if a text has any Chinese: it may be full of English names."""
    return "zh" if any("\u4e00" <= character <= "\u9fff" for character in text) else "en"


def read_phrases(file: Path) -> dict[str, tuple[str, str]]:
    """Return a file's texts in English and Chinese, by name; its sections are for readers."""
    sections: dict[str, dict[str, tuple[str, str]]] = json.loads(file.read_text("utf-8"))
    return {
        name: (english, chinese)
        for section in sections.values()
        for name, (english, chinese) in section.items()
    }


def language_of_most(texts: Iterable[str]) -> Language:
    """Return the language of most texts, English on a tie."""
    is_chinese = [language_of(text) == "zh" for text in texts]
    return "zh" if sum(is_chinese) * 2 > len(is_chinese) else "en"


def fill_phrase(
    phrases: Mapping[str, tuple[str, str]], language: Language, name: str, /, **values: object
) -> str:
    """Return a phrase of an (English, Chinese) table with its values filled in."""
    return phrases[name][language == "zh"].format(**values)


_LISTS: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("stop_words.json").read_text("utf-8")
)
_ENGLISH, _CHINESE = (frozenset(" ".join(_LISTS[name]).split()) for name in ("english", "chinese"))

STOP_TERMS: frozenset[str] = frozenset(map(stem, _ENGLISH))
"""Stems of English stop words."""

STOP_CHARS: frozenset[str] = frozenset(
    "的了着过地得之所么们吗呢吧啊呀嘛啦哦喔哈嗯呃哎唉哇"
    "我你您他她它咱谁这那哪此其某每各"
    "是在有和与及或而且但又还也都就才只却则因于以从到对向给把被让由为跟同"
    "不没很太最更再已将会能可要想请个些几"
)
"""Chinese stop characters, which occur in nearly every text."""

STOP_WORDS: frozenset[str] = _ENGLISH | _CHINESE
"""English and Chinese stop words, not stemmed."""

FIRST_PERSON = re.compile(
    r"我|咱|俺|\b(?:i|i'm|i've|i'd|me|my|mine|myself|we|we've|our|ours|us)\b", re.IGNORECASE
)

_ENGLISH_QUESTION = re.compile(
    r"(?:what|who|whom|whose|when|where|which|why|how|did|does|do|is|are|was|were|has|have|had"
    r"|can|could|will|would|should|remind)\b",
    re.IGNORECASE,
)
_CHINESE_QUESTION = re.compile(
    "什么|哪|谁|多少|几(?!乎|何|率)|怎么|为何|如何|吗|呢(?!子|绒|料|喃)|来着|是不是|有没有|啥"
)


def is_question(text: str) -> bool:
    """Return True if a text asks for something, also without a question mark."""
    last = text.strip()
    return (
        last.endswith(("?", "？"))
        or _ENGLISH_QUESTION.match(last) is not None
        or _CHINESE_QUESTION.search(last) is not None
    )
