"""How the tables of English frames are written."""

import re

from memrecall.extraction.protocol import EntityType, MemoryType
from memrecall.extraction.rules.frames import PRESENT, Frame, Tense

NUMBER = r"(?:\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty)"
NAME = r"[A-Z][\w'’-]*(?: (?:[A-Z][\w'’.-]*|de|van|von|da|bin|al))*"


def frame(
    pattern: str,
    memory_type: MemoryType,
    field: str | None = None,
    relation: str | None = None,
    kind: EntityType = "thing",
    *,
    tenses: frozenset[Tense] = PRESENT,
    **more: bool | str,
) -> Frame:
    """A frame of predicates that begin like this; capitals count only in names."""
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
