"""Corrections of a memory as applications write them."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from memrecall.errors import InvalidArgument
from memrecall.memory.conversations import Redact, scrub
from memrecall.memory.importing import first_fault
from memrecall.store.changes import UPDATABLE
from memrecall.types import NewMemory

_NAMES = {"memory": "content", "text": "content", "data": "content"}


def read_correction(
    data: object, fields: Mapping[str, Any], redact: Redact | None
) -> dict[str, Any]:
    """The fields to be changed, checked as those of a new memory are."""
    given: dict[str, Any] = dict(fields)
    if isinstance(data, Mapping):
        given = {**data, **given}
    elif data is not None:
        given = {"content": data, **given}
    given = {_NAMES.get(name, name): value for name, value in given.items()}
    unknown = sorted(set(given) - UPDATABLE)
    if unknown:
        raise InvalidArgument(
            f"{unknown[0]!r} of a memory cannot be changed",
            hint=f"Use {', '.join(sorted(UPDATABLE))}",
        )
    if not given:
        raise InvalidArgument("nothing is to be changed", hint="Give the new text, or a field")
    for name in ("content", "summary", "metadata"):
        if name in given:
            given[name] = scrub(given[name], redact)
    try:
        checked = NewMemory.model_validate({"content": "-", **given})
    except ValidationError as error:
        raise InvalidArgument(first_fault(error)) from None
    return {name: getattr(checked, name) for name in given}
