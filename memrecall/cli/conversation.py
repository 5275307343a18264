"""The conversation that a recall is about, from a file: JSON Lines, or one JSON list."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memrecall.errors import InvalidArgument

_TEXTS = ("name", "speaker", "message_id")


def read_messages(file: str) -> list[Any]:
    """The messages of a file, or of standard input for "-"; what is wrong is named by line."""
    where = "standard input" if file == "-" else file
    items = list(_items(_read(file), where))
    found = [said for place, item in items for said in _check(item, place)]
    if not found:
        raise InvalidArgument(f"{where} has no message", hint=_SHAPE)
    return found


_SHAPE = 'Write messages like {"role": "user", "content": "…"}, one a line or in one list'


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidArgument(f"the file {file} cannot be read: {reason}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidArgument(f"{file} line {line}: not UTF-8", hint=_SHAPE) from None


def _items(text: str, where: str) -> Iterator[tuple[str, Any]]:
    """Each message with the words that say where it stands."""
    if text.lstrip().startswith("["):
        for number, item in enumerate(_load(text, where, 1), 1):
            yield f"{where} message {number}", item
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{where} line {number}", _load(line, where, number)


def _load(text: str, where: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise InvalidArgument(f"{where} line {line}: not JSON ({error.msg})", hint=_SHAPE) from None
    except RecursionError:
        raise InvalidArgument(f"{where} line {first_line}: nested too deep", hint=_SHAPE) from None


def _check(item: Any, place: str) -> tuple[Any, ...]:
    """The message as a recall takes it; one without words, such as a tool call, is left out."""
    from memrecall.agent.conversation import read_conversation

    if not isinstance(item, dict):
        raise InvalidArgument(f"{place}: not an object", hint=_SHAPE)
    for name in ("role", "content"):
        if name not in item:
            raise InvalidArgument(f"{place}: {name} is missing", hint=_SHAPE)
    for name in _TEXTS:
        if not isinstance(item.get(name) or "", str):
            raise InvalidArgument(f"{place}: {name} {item[name]!r} is not a text")
    try:
        silent = item["content"] is None or not str(item["content"]).strip()
        return () if silent else read_conversation([item])
    except InvalidArgument as error:
        raise InvalidArgument(f"{place}: {error.message}", hint=error.hint) from None
