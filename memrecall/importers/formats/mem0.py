"""Memories of mem0: the result of `get_all`, saved as JSON, or one memory a line.

They are memories here too, not messages.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from memrecall.errors import InvalidArgument, describe_validation_error
from memrecall.importers.json_stream import has_members, read_values
from memrecall.importers.records import (
    Fault,
    FileFormat,
    ReadItem,
    ReadOptions,
    Record,
    Skipped,
    digest,
    from_iso,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.json_objects import make_storable
from memrecall.types import NewMemory

_KEPT = ("categories", "actor_id", "role")


def _matches(file: SourceFile) -> bool:
    return has_members(file.sample, "memory", "id") and (
        has_members(file.sample, "created_at") or has_members(file.sample, "hash")
    )


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    memories = (memory for _, value in read_values(file) for memory in _unwrap(value))
    for number, memory in enumerate(memories, 1):
        yield _read_memory(number, memory)


def _unwrap(value: Any) -> list[Any]:
    """Return the memories in the `results` of an object, or the value itself."""
    results = value.get("results") if isinstance(value, dict) else None
    return results if isinstance(results, list) else [value]


def _read_memory(number: int, value: Any) -> ReadItem:
    if not isinstance(value, dict) or not isinstance(value.get("memory"), str):
        return Fault(number, "not a memory of mem0")
    text = make_storable(value["memory"]).strip()
    if not text:
        return Skipped(number, "no text")
    metadata = value.get("metadata")
    extra = {name: value[name] for name in _KEPT if value.get(name)}
    created = from_iso(value.get("created_at"))
    try:
        memory = NewMemory(
            content=text,
            memory_key=stable_id("mem0", str(value.get("id") or digest(text))),
            metadata=make_storable({**(metadata if isinstance(metadata, dict) else {}), **extra}),
            valid_from=created,
            said_at=from_iso(value.get("updated_at")) or created,
        )
    except ValidationError as error:
        return Fault(number, describe_validation_error(error))
    except InvalidArgument as error:
        return Fault(number, str(error))
    user, agent = value.get("user_id"), value.get("agent_id")
    return Record(
        number,
        memory,
        user_id=str(user) if user else None,
        agent_id=str(agent) if agent else None,
    )


FORMAT = FileFormat("mem0", _matches, _read)
