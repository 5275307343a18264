"""Importers of chat exports and message files, one module per format.

A package adds a format of its own with `FileFormat` and the names that its reader yields. They load
when they are first used, because hooks need only the small modules and must start quickly.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
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
_SOURCES = ("Source", "SourceFile")

__getattr__ = lazy_exports(
    __name__,
    {".source": _SOURCES, ".records": [name for name in __all__ if name not in _SOURCES]},
)
