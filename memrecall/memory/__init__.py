"""What applications call. What needs the machinery of models loads when it is first asked for."""

from typing import TYPE_CHECKING

from memrecall.importers.importer import Importer, ImportReport
from memrecall.importers.plan import make_plan
from memrecall.importers.source import open_source
from memrecall.lazy import lazy_exports
from memrecall.library.library import Library
from memrecall.library.reindex import Reindexer
from memrecall.memory.recall import client_of, recall

if TYPE_CHECKING:
    from memrecall.memory.layers import LongTermMemory, ShortTermMemory
    from memrecall.memory.memory import AsyncMemory
    from memrecall.memory.retention import Policy
    from memrecall.memory.sync import Memory

__all__ = [
    "AsyncMemory",
    "ImportReport",
    "Importer",
    "Library",
    "LongTermMemory",
    "Memory",
    "Policy",
    "Reindexer",
    "ShortTermMemory",
    "client_of",
    "make_plan",
    "open_source",
    "recall",
]

__getattr__ = lazy_exports(
    __name__,
    {
        ".layers": ("LongTermMemory", "ShortTermMemory"),
        ".memory": ("AsyncMemory",),
        ".retention": ("Policy",),
        ".sync": ("Memory",),
    },
)
