"""Whether a user's message can need a recall at all."""

import json
import re
from typing import Literal, get_args

from memrecall.errors import InvalidArgument

RecallWhen = Literal["auto", "always"]

_LONGEST_COURTESY = 60  # characters
# In this order: "thanks, bye" says goodbye.
_COURTESIES = {
    "bye": "(?:good)?bye|see you|good night|再见|拜拜|晚安",
    "thanks": "thanks?(?: you| a lot)?(?: (?:so|very) much)?|thx|谢谢?[你您]?|多谢|辛苦了?",
    "hello": "hi|hello|hey|there|good (?:morning|afternoon|evening)|how are you|how's it going"
    "|what's up|[你您]好|大家好|早上好?|[上中下]午好|晚上好|早安|嗨|哈喽|在吗"
    "|最近(?:怎么样|好吗|如何)",
    "noted": "ok(?:ay)?|sure|great|nice|cool|perfect|sounds good|got it|lol|haha+"
    "|好的?|嗯+|行|收到|明白|知道|没问题|没事|不客气|哈+",
}
_COURTESY_PATTERNS = {name: re.compile(words, re.IGNORECASE) for name, words in _COURTESIES.items()}
_COURTESY = re.compile(
    rf"\W*(?:(?:{'|'.join(_COURTESIES.values())})(?:[\W吧啊呀哦啦了]+|$)){{1,4}}", re.IGNORECASE
)
_HAS_WORDS = re.compile(r"\w").search


def needs_recall(text: str, when: RecallWhen = "auto") -> bool:
    """Return False for an empty text; unless `when` is "always", also for a greeting or thanks.

    Nor can JSON that asks nothing, which frameworks pass as a user's message. For everything else a
    recall costs less than a missing answer.
    """
    if when == "always":
        return bool(text.strip())
    return _HAS_WORDS(text) is not None and not is_greeting(text) and not _is_data(text)


def _is_data(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")) or "?" in text or "？" in text:
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def check_when(when: str) -> None:
    """Raise InvalidArgument if a value is not a `RecallWhen`."""
    if when not in get_args(RecallWhen):
        raise InvalidArgument(f"when is {when!r}", hint=f"Use {' or '.join(get_args(RecallWhen))}")


def find_courtesy(text: str) -> str | None:
    """Return "bye", "thanks", "hello" or "noted" for a text that says nothing else."""
    if len(text) > _LONGEST_COURTESY or _COURTESY.fullmatch(text) is None:
        return None
    return next(name for name, words in _COURTESY_PATTERNS.items() if words.search(text))


def is_greeting(text: str) -> bool:
    """Return True if a text is only a greeting, thanks or an acknowledgement."""
    return find_courtesy(text) is not None
