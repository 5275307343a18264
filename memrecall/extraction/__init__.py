"""What a model reads in conversations: facts, relations and summaries.

The names are loaded on first use.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.extraction.model import ModelExtractor
    from memrecall.extraction.protocol import Extracted, Extractor, Fact, KnownMemory, Utterance

__all__ = ["Extracted", "Extractor", "Fact", "KnownMemory", "ModelExtractor", "Utterance"]

__getattr__ = lazy_exports(
    __name__,
    {
        ".model": ("ModelExtractor",),
        ".protocol": ("Extracted", "Extractor", "Fact", "KnownMemory", "Utterance"),
    },
)
