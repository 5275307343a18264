"""Facts, decisions, relations and summaries of conversations, by a model or by rules.

The names are loaded on first use.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.extraction.model import ModelExtractor
    from memrecall.extraction.names import aliases_in, fold_person_name, may_be_one
    from memrecall.extraction.offline import EXTRACTION_RULES, offline_client
    from memrecall.extraction.protocol import (
        RETRACTION,
        USER,
        Decided,
        Decision,
        Entity,
        Extracted,
        Extractor,
        Fact,
        KnownMemory,
        Related,
        Relation,
        Summary,
        Utterance,
    )
    from memrecall.extraction.rules.extractor import RuleExtractor

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
    "KnownMemory",
    "ModelExtractor",
    "Related",
    "Relation",
    "RuleExtractor",
    "Summary",
    "Utterance",
    "aliases_in",
    "fold_person_name",
    "may_be_one",
    "offline_client",
]

__getattr__ = lazy_exports(
    __name__,
    {
        ".model": ("ModelExtractor",),
        ".names": ("aliases_in", "fold_person_name", "may_be_one"),
        ".offline": ("EXTRACTION_RULES", "offline_client"),
        ".protocol": (
            "Decided",
            "Decision",
            "Entity",
            "Extracted",
            "Extractor",
            "Fact",
            "KnownMemory",
            "RETRACTION",
            "Related",
            "Relation",
            "Summary",
            "USER",
            "Utterance",
        ),
        ".rules.extractor": ("RuleExtractor",),
    },
)
