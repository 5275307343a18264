"""What applications call."""

from memrecall.memory.forgetting import Policy
from memrecall.memory.importing import BadLine, Importer, ImportReport, check_file, file_size
from memrecall.memory.library import Library
from memrecall.memory.long_term import LongTermMemory
from memrecall.memory.memory import AsyncMemory
from memrecall.memory.recalling import client_of, recall
from memrecall.memory.reindexing import Reindexer
from memrecall.memory.reranking import EndpointReranker, Reranker
from memrecall.memory.short_term import ShortTermMemory
from memrecall.memory.sync import Memory

__all__ = [
    "AsyncMemory",
    "BadLine",
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
