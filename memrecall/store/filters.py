"""Filters on memories: what they may say, and what they mean.

    {"topic": "tea", "year": {"gte": 2024}, "or": [{"pinned": True}, {"not": {"layer": "short"}}]}

A name is a field of the memory or else a key of its metadata; `metadata.name` is always the latter.
Values of different kinds are never equal and never in order; a missing value equals None alone.
`matches` is the meaning in plain Python; `filter_sql` says the same to the databases.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from memrecall.errors import InvalidArgument
from memrecall.types import check_text, parse_time

Comparison = Literal["eq", "gt", "gte", "lt", "lte"]
Scalar = str | int | float | bool | datetime | None

DEEPEST = 16
MOST_CONDITIONS = 200
LARGEST_NUMBER = 2**53  # beyond it the databases round differently
_PREFIX = "metadata."

TEXT_FIELDS = {
    "id": "memory_key",
    "memory_key": "memory_key",
    "memory": "content",
    "content": "content",
    "summary": "summary",
    "memory_type": "memory_type",
    "layer": "layer",
    "subject": "subject",
    "speaker": "speaker",
    "field": "field",
    "session_id": "session_id",
    "run_id": "session_id",
    "agent_id": "agent_id",
    "superseded_by": "superseded_by",
}
FLAG_FIELDS = {"sensitive": "sensitive", "pinned": "pinned", "truncated": "truncated"}
TIME_FIELDS = {
    name: name
    for name in (
        "created_at",
        "updated_at",
        "valid_from",
        "valid_to",
        "expires_at",
        "last_recalled_at",
    )
}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_OPERATORS = (*_ORDER, "ne", "in", "nin")


@dataclass(frozen=True, slots=True)
class Compare:
    """A value stands in this relation to a field (`column`) or to a key of the metadata."""

    column: str | None
    key: str
    operator: Comparison
    value: Scalar


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds; nothing at all holds always."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Some:
    """At least one part holds."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: "Filter"


Filter = Compare | All | Some | Not


def read_filter(given: Mapping[str, Any] | None) -> Filter:
    """The filter that an application wrote; InvalidArgument names what cannot be understood."""
    read = _read(given or {}, 0)
    if _count(read) > MOST_CONDITIONS:
        raise InvalidArgument(f"filters have more than {MOST_CONDITIONS} conditions")
    return read


def matches(wanted: Filter, row: Mapping[str, Any]) -> bool:
    """Whether a memory's fields, with its `metadata` as a dict, pass the filter."""
    match wanted:
        case All(parts):
            return all(matches(part, row) for part in parts)
        case Some(parts):
            return any(matches(part, row) for part in parts)
        case Not(part):
            return not matches(part, row)
        case Compare(column, key, asked, value):
            found = row.get(column) if column else row["metadata"].get(key)
            return _compare(found, asked, value)


def kind_of(value: object) -> str:
    """What a value can be compared with: others of its kind."""
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    return "nothing" if value is None else type(value).__name__


def _compare(found: object, asked: Comparison, value: Scalar) -> bool:
    if kind_of(found) != kind_of(value):
        return False
    if value is None or isinstance(value, bool):
        return asked == "eq" and found is value
    return _ORDER[asked](found, value)


def _count(wanted: Filter) -> int:
    match wanted:
        case All(parts) | Some(parts):
            return sum(map(_count, parts))
        case Not(part):
            return _count(part)
        case _:
            return 1


def _read(given: object, depth: int) -> Filter:
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            f"a filter is a dict of names and values, not {given!r}", hint='{"topic": "tea"}'
        )
    if depth > DEEPEST:
        raise InvalidArgument(f"filters are nested deeper than {DEEPEST} levels")
    return All(tuple(_read_entry(name, value, depth) for name, value in given.items()))


def _read_entry(name: object, value: object, depth: int) -> Filter:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a filter names {name!r}, which is not a field")
    check_text("a filter's name", name)
    joined = name.lower()
    if joined in ("and", "or"):
        if not isinstance(value, list | tuple):
            raise InvalidArgument(f"{name!r} takes a list of filters, not {value!r}")
        parts = tuple(_read(part, depth + 1) for part in value)
        return All(parts) if joined == "and" else Some(parts)
    if joined == "not":
        return _read_not(value, depth)
    if isinstance(value, Mapping):
        return All(tuple(_read_operator(name, asked, of) for asked, of in value.items()))
    if isinstance(value, list | tuple):
        return _read_operator(name, "in", value)
    return _leaf(name, "eq", value)


def _read_not(value: object, depth: int) -> Filter:
    """Of a filter, or of a list of which none may hold."""
    if isinstance(value, list | tuple):
        return Not(Some(tuple(_read(part, depth + 1) for part in value)))
    return Not(_read(value, depth + 1))


def _read_operator(name: str, asked: object, value: object) -> Filter:
    if asked not in _OPERATORS:
        raise InvalidArgument(
            f"the operator {asked!r} of filter {name!r} is not known",
            hint=f"Use {', '.join(_OPERATORS)}",
        )
    if asked == "ne":
        return Not(_leaf(name, "eq", value))
    if asked in ("in", "nin"):
        within = Some(tuple(_leaf(name, "eq", one) for one in _listed(name, value)))
        return within if asked == "in" else Not(within)
    return _leaf(name, asked, value)  # type: ignore[arg-type]  # one of _ORDER


def _listed(name: str, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise InvalidArgument(f"'in' of filter {name!r} takes a list, not {value!r}")
    return list(value)


def _leaf(name: str, asked: Comparison, value: object) -> Compare:
    if not isinstance(value, str | int | float | bool | datetime | None):
        raise InvalidArgument(f"filter {name!r} compares with {value!r}, which is no plain value")
    if asked != "eq" and (value is None or isinstance(value, bool)):
        raise InvalidArgument(f"filter {name!r}: {value!r} has no order", hint="Use eq or ne")
    if isinstance(value, str):
        check_text(f"filter {name!r}", value)
    if isinstance(value, int | float) and not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        raise InvalidArgument(
            f"filter {name!r} compares with {value}", hint=f"Use numbers up to {LARGEST_NUMBER}"
        )
    column = _column(name)
    if column in TIME_FIELDS:
        value = None if value is None else parse_time(value, f"filter {name!r}")
    elif isinstance(value, datetime):
        raise InvalidArgument(f"{name!r} is not a time", hint=f"Times: {', '.join(TIME_FIELDS)}")
    return Compare(column, name.removeprefix(_PREFIX), asked, value)


def _column(name: str) -> str | None:
    return (
        None
        if name.startswith(_PREFIX)
        else TEXT_FIELDS.get(name) or FLAG_FIELDS.get(name) or TIME_FIELDS.get(name)
    )
