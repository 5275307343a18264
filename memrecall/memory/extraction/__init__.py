"""From conversation to facts, decisions, relations and summaries: by a model or by rules.

The names load when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memrecall.memory.extraction.facts import (
        RETRACTION,
        USER,
        Decided,
        Decision,
        Entity,
        Extracted,
        Fact,
        Known,
        Related,
        Relation,
        Summary,
        Utterance,
    )
    from memrecall.memory.extraction.model import ModelExtractor
    from memrecall.memory.extraction.names import aliases_in, fold_name, may_be_one
    from memrecall.memory.extraction.offline import EXTRACTION_RULES, offline_client
    from memrecall.memory.extraction.protocol import Extractor
    from memrecall.memory.extraction.rules import RuleExtractor

__all__ = [
    "EXTRACTION_RULES",
    "RETRACTION",
    "USER",
    "Decided",
    "Decision",
    "Entity",
    "Extracted",
    "Extractor",
    "Fact",
    "Known",
    "ModelExtractor",
    "Related",
    "Relation",
    "RuleExtractor",
    "Summary",
    "Utterance",
    "aliases_in",
    "fold_name",
    "may_be_one",
    "offline_client",
]

_HOMES = {
    "facts": (
        "Decided",
        "Decision",
        "Entity",
        "Extracted",
        "Fact",
        "Known",
        "RETRACTION",
        "Related",
        "Relation",
        "Summary",
        "USER",
        "Utterance",
    ),
    "model": ("ModelExtractor",),
    "names": (
        "aliases_in",
        "fold_name",
        "may_be_one",
    ),
    "offline": (
        "EXTRACTION_RULES",
        "offline_client",
    ),
    "protocol": ("Extractor",),
    "rules": ("RuleExtractor",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
