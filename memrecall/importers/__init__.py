"""Importers of chat exports and message files, one module per format.

A package adds a format of its own with `FileFormat` and the names that its reader yields.
"""

from memrecall.importers.records import (
    DerivedIds,
    Fault,
    FileFormat,
    Note,
    ReadOptions,
    Record,
    Skipped,
    message_record,
    stable_id,
)
from memrecall.importers.source import Source, SourceFile

__all__ = [
    "DerivedIds",
    "Fault",
    "FileFormat",
    "Note",
    "ReadOptions",
    "Record",
    "Skipped",
    "Source",
    "SourceFile",
    "message_record",
    "stable_id",
]
