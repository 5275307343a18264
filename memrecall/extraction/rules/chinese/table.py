"""How the tables of Chinese frames are written."""

import re

from memrecall.extraction.protocol import EntityType, MemoryType
from memrecall.extraction.rules.frames import NOW_OR_BEFORE, Frame, Tense

NEG = "(?P<neg>再也不|不再|从来不|从不|不太|不怎么|不大|并不|已经不|不能|不可以|不|没有|没)?"
NUMBER = "[0-9一二两三四五六七八九十]"


def frame(
    pattern: str,
    memory_type: MemoryType,
    field: str | None = None,
    relation: str | None = None,
    kind: EntityType = "thing",
    *,
    tenses: frozenset[Tense] = NOW_OR_BEFORE,
    **more: bool | str,
) -> Frame:
    """A frame of predicates that begin like this."""
    return Frame(
        re.compile(pattern),
        memory_type,
        field,
        relation,
        kind,
        tenses=tenses,
        **more,  # type: ignore[arg-type]
    )


P: MemoryType = "user_profile"
R: MemoryType = "relationship"
T: MemoryType = "user_preference"
