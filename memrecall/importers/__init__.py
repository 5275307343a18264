"""Importers of chat exports and message files, one module per format.

A package adds a format of its own with `FileFormat` and the names that its reader yields.
"""

from pathlib import Path

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

# Invented chats of two users over four months: `lin` in Chinese, `maya` in English.
SAMPLE_CHAT = Path(__file__).with_name("sample.jsonl")

__all__ = [
    "SAMPLE_CHAT",
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
