"""Files of JSON lines: objects with their line numbers, and errors that name the line."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memrecall.errors import InvalidArgument
from memrecall.types import VALUE

_LONGEST_SHOWN = 60


def read_bytes(path: Path) -> bytes:
    """A file's contents; an error if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"cannot read {path}: {error.strerror}", hint="Give a file of JSON lines"
        ) from None


def digest(data: bytes) -> str:
    """What tells one file's contents from another's."""
    return hashlib.sha256(data).hexdigest()


def numbered_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, counted from 1."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield number, line


def read_object(line: bytes) -> dict[str, Any]:
    """One line as a JSON object."""
    try:
        data = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidArgument("JSON, but not an object")
    return data


def at_line(path: Path, number: int, error: Exception) -> InvalidArgument:
    """The same complaint, with the place that it is about."""
    said = first_fault(error) if isinstance(error, ValidationError) else str(error)
    return InvalidArgument(f"{path} line {number}: {said}", line=number)


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong with an input, in one line."""
    fault = error.errors(include_url=False)[0]
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "missing":
        return f"{place} is missing"
    said = fault["msg"].removeprefix("Value error, ")
    if said.startswith(VALUE):  # a check that does not know the field's name
        return place + said.removeprefix(VALUE)
    given = repr(fault["input"])
    shown = given if len(given) <= _LONGEST_SHOWN else given[: _LONGEST_SHOWN - 3] + "…'"
    return f"{place} {shown}: {said}"
