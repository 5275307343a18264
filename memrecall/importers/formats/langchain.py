"""Messages of LangChain and LangGraph as JSON.

Three forms: `messages_to_dict` (`type` and `data`), `dumps` (`lc` and `kwargs`), and the state of
a graph or thread, whose `messages` have their fields at the top.
"""

import re
from collections.abc import Iterator
from typing import Any

from memrecall.importers.formats.openai import read_conversations
from memrecall.importers.json_stream import has_members, read_values
from memrecall.importers.records import FileFormat, ReadItem, ReadOptions
from memrecall.importers.source import SourceFile

_TYPE = re.compile(r'"type"\s*:\s*"(?:human|ai|HumanMessage|AIMessage(?:Chunk)?)"')
_CLASSES = re.compile(r"(Human|AI|System|Tool|Function|Chat)Message(?:Chunk)?$")
_DROPPED = ("additional_kwargs", "response_metadata", "usage_metadata", "example", "artifact")


def _matches(file: SourceFile) -> bool:
    sample = file.sample
    is_dump = has_members(sample, "lc", "kwargs") and "Message" in sample
    return is_dump or (bool(_TYPE.search(sample)) and has_members(sample, "type", "content"))


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    yield from read_conversations("langchain", read_values(file), _flatten)


def _flatten(value: Any) -> Any:
    """Return a message with its fields at the top and a type such as `human`."""
    if not isinstance(value, dict):
        return value
    fields = value.get("kwargs") if "lc" in value else value.get("data")
    path = value.get("id")
    name = path[-1] if "lc" in value and isinstance(path, list) and path else value.get("type")
    flat = dict(fields) if isinstance(fields, dict) else dict(value)
    match = _CLASSES.match(str(name))
    flat["type"] = match[1].lower() if match else str(name or flat.get("type") or "")
    if flat["type"] == "chat":
        flat.setdefault("role", "assistant")
    return {key: item for key, item in flat.items() if key not in _DROPPED and item is not None}


FORMAT = FileFormat("langchain", _matches, _read)
