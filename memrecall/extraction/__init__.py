"""Facts, decisions, relations and summaries of conversations, by a model or by rules.

The names are loaded on first use.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.extraction.model import ModelExtractor
    from memrecall.extraction.protocol import Extractor, Fact, KnownMemory, Utterance
    from memrecall.extraction.rules.extractor import RuleExtractor

__all__ = [
    "Extractor",
    "Fact",
    "KnownMemory",
    "ModelExtractor",
    "RuleExtractor",
    "Utterance",
]

__getattr__ = lazy_exports(
    __name__,
    {
        ".model": ("ModelExtractor",),
        ".protocol": ("Extractor", "Fact", "KnownMemory", "Utterance"),
        ".rules.extractor": ("RuleExtractor",),
    },
)
