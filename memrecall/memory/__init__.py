"""What applications call."""

from memrecall.memory.importing import BadLine, Importer, ImportReport, check_file, file_size
from memrecall.memory.library import Library
from memrecall.memory.recalling import client_of, recall
from memrecall.memory.reindexing import Reindexer

__all__ = [
    "BadLine",
    "ImportReport",
    "Importer",
    "Library",
    "Reindexer",
    "check_file",
    "client_of",
    "file_size",
    "recall",
]
