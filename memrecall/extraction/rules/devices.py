"""Things of which one has one at a time: a new phone takes the place of the old."""

import re
from dataclasses import replace

from memrecall.extraction.rules.frames import Told

_DEVICES = (
    (
        "phone_model",
        re.compile(r"\b(?:iphone|pixel|galaxy|android phone|smartphone|phone)\b|手机", re.I),
    ),
    (
        "computer_model",
        re.compile(r"\b(?:macbook|thinkpad|laptop|chromebook|imac|xps)\b|电脑|笔记本", re.I),
    ),
)
# What is had for one purpose, or more than once, stands beside others.
_ONE_OF_SEVERAL = re.compile(
    r"\b(?:and|two|three|several|old|spare|second|both|for|at|in|on|case|number|as|broken|dead)\b|\bphones\b"
    r"|[两二三几]|和|家里|公司|工作|上班|壳|号|旧|备用|时|坏|没电|丢",
    re.IGNORECASE,
)


def as_device(told: Told, noun: str) -> Told:
    """What tells of a device fills the slot of such devices; all else is as it was.

    `noun` is what it is told of, if that is a thing: "my phone".
    """
    frame = told.frame
    if frame.field not in ("owns", "uses", None) or told.negated or frame.memory_type == "plan":
        return told
    if frame.field is None and frame.memory_type not in ("decision", "general"):
        return told
    for slot, pattern in _DEVICES:
        named = pattern.fullmatch(noun) if noun else pattern.search(told.value)
        if named and not _ONE_OF_SEVERAL.search(told.value):
            return replace(told, frame=replace(frame, field=slot))
    return told
