"""What applications call. What needs the machinery of models loads when it is first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memrecall.memory.importing import BadLine, Importer, ImportReport, check_file, file_size
from memrecall.memory.library import Library
from memrecall.memory.recalling import client_of, recall
from memrecall.memory.reindexing import Reindexer

if TYPE_CHECKING:
    from memrecall.memory.forgetting import Policy
    from memrecall.memory.long_term import LongTermMemory
    from memrecall.memory.memory import AsyncMemory
    from memrecall.memory.reranking import CrossEncoderReranker, EndpointReranker, Reranker
    from memrecall.memory.short_term import ShortTermMemory
    from memrecall.memory.sync import Memory

__all__ = [
    "AsyncMemory",
    "BadLine",
    "CrossEncoderReranker",
    "EndpointReranker",
    "ImportReport",
    "Importer",
    "Library",
    "LongTermMemory",
    "Memory",
    "Policy",
    "Reindexer",
    "Reranker",
    "ShortTermMemory",
    "check_file",
    "client_of",
    "file_size",
    "recall",
]

_HOMES = {
    "AsyncMemory": "memory",
    "CrossEncoderReranker": "reranking",
    "EndpointReranker": "reranking",
    "LongTermMemory": "long_term",
    "Memory": "sync",
    "Policy": "forgetting",
    "Reranker": "reranking",
    "ShortTermMemory": "short_term",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
