"""Filters as conditions of a SQL statement, with the same meaning on both databases.

A key of the metadata is looked up with `json_each`, not by a path: SQLite finds no key by a path
that JSON writes with escapes, which is every key that is not ASCII.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from sqlalchemy import (
    Numeric,
    Text,
    and_,
    case,
    cast,
    exists,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql import ColumnElement

from memrecall.errors import InvalidArgument
from memrecall.store.database.tables import memories
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
class FilterAll:
    """Every part holds; nothing at all holds always."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class FilterAny:
    """At least one part holds."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class FilterNot:
    """The part does not hold."""

    part: "Filter"


Filter = Compare | FilterAll | FilterAny | FilterNot


def read_filter(given: Mapping[str, Any] | None) -> Filter:
    """The filter that an application wrote; InvalidArgument names what cannot be understood."""
    read = _read(given or {}, 0)
    if _count(read) > MOST_CONDITIONS:
        raise InvalidArgument(f"filters have more than {MOST_CONDITIONS} conditions")
    return read


def matches(wanted: Filter, row: Mapping[str, Any]) -> bool:
    """Whether a memory's fields, with its `metadata` as a dict, pass the filter."""
    match wanted:
        case FilterAll(parts):
            return all(matches(part, row) for part in parts)
        case FilterAny(parts):
            return any(matches(part, row) for part in parts)
        case FilterNot(part):
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
        case FilterAll(parts) | FilterAny(parts):
            return sum(map(_count, parts))
        case FilterNot(part):
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
    return FilterAll(tuple(_read_entry(name, value, depth) for name, value in given.items()))


def _read_entry(name: object, value: object, depth: int) -> Filter:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a filter names {name!r}, which is not a field")
    check_text("a filter's name", name)
    joined = name.lower()
    if joined in ("and", "or"):
        if not isinstance(value, list | tuple):
            raise InvalidArgument(f"{name!r} takes a list of filters, not {value!r}")
        parts = tuple(_read(part, depth + 1) for part in value)
        return FilterAll(parts) if joined == "and" else FilterAny(parts)
    if joined == "not":
        return _read_not(value, depth)
    if isinstance(value, Mapping):
        return FilterAll(tuple(_read_operator(name, asked, of) for asked, of in value.items()))
    if isinstance(value, list | tuple):
        return _read_operator(name, "in", value)
    return _leaf(name, "eq", value)


def _read_not(value: object, depth: int) -> Filter:
    """Of a filter, or of a list of which none may hold."""
    if isinstance(value, list | tuple):
        return FilterNot(FilterAny(tuple(_read(part, depth + 1) for part in value)))
    return FilterNot(_read(value, depth + 1))


def _read_operator(name: str, asked: object, value: object) -> Filter:
    if asked not in _OPERATORS:
        raise InvalidArgument(
            f"the operator {asked!r} of filter {name!r} is not known",
            hint=f"Use {', '.join(_OPERATORS)}",
        )
    if asked == "ne":
        return FilterNot(_leaf(name, "eq", value))
    if asked in ("in", "nin"):
        within = FilterAny(tuple(_leaf(name, "eq", one) for one in _listed(name, value)))
        return within if asked == "in" else FilterNot(within)
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


_BYTES = "C"  # the order of Python's strings and of SQLite


def condition(wanted: Filter, *, sqlite: bool) -> ColumnElement[bool]:
    """The filter as a condition that is true or false, never unknown."""
    match wanted:
        case FilterAll(parts):
            return and_(true(), *(condition(part, sqlite=sqlite) for part in parts))
        case FilterAny(parts):
            return or_(false(), *(condition(part, sqlite=sqlite) for part in parts))
        case FilterNot(part):
            return not_(condition(part, sqlite=sqlite))
        case Compare(column=None):
            return _of_metadata(wanted, sqlite)
        case Compare():
            return _of_field(wanted, sqlite)


def _of_field(wanted: Compare, sqlite: bool) -> ColumnElement[bool]:
    column = memories.c[str(wanted.column)]
    if wanted.value is None:
        return column.is_(None)
    if wanted.column in FLAG_FIELDS:
        return column.is_(wanted.value) if isinstance(wanted.value, bool) else false()
    kind = datetime if wanted.column in TIME_FIELDS else str
    if not isinstance(wanted.value, kind):
        return false()
    ordered = column if sqlite or kind is datetime else column.collate(_BYTES)
    return and_(column.is_not(None), _compare_sql(ordered, wanted))


def _of_metadata(wanted: Compare, sqlite: bool) -> ColumnElement[bool]:
    if wanted.value is None:
        return or_(not_(_entry(wanted.key, sqlite)), _entry(wanted.key, sqlite, "null"))
    return (_in_sqlite if sqlite else _in_postgresql)(wanted)


def _entry(key: str, sqlite: bool, kind: str | None = None) -> ColumnElement[bool]:
    """Whether the metadata has a key, perhaps with a value of that kind."""
    each = _each(sqlite)
    found = select(literal(1)).select_from(each).where(each.c.key == key)
    if kind is not None:
        found = found.where((each.c.type if sqlite else func.json_typeof(each.c.value)) == kind)
    return exists(found)


def _each(sqlite: bool) -> Any:
    names = ("key", "type", "atom") if sqlite else ("key", "value")
    return func.json_each(memories.c.metadata).table_valued(*names)


def _in_sqlite(wanted: Compare) -> ColumnElement[bool]:
    each = _each(True)
    kinds = {"str": ["text"], "number": ["integer", "real"], "flag": [str(wanted.value).lower()]}
    found = select(literal(1)).select_from(each)
    found = found.where(each.c.key == wanted.key, each.c.type.in_(kinds[kind_of(wanted.value)]))
    if not isinstance(wanted.value, bool):
        found = found.where(_compare_sql(each.c.atom, wanted))
    return exists(found)


def _in_postgresql(wanted: Compare) -> ColumnElement[bool]:
    each = _each(False)
    kinds = {"str": "string", "number": "number", "flag": "boolean"}
    of_kind = func.json_typeof(each.c.value) == kinds[kind_of(wanted.value)]
    said = each.c.value.op("#>>", return_type=Text())(literal([], ARRAY(Text)))
    found = select(literal(1)).select_from(each).where(each.c.key == wanted.key)
    if isinstance(wanted.value, bool):
        return exists(found.where(of_kind, said == str(wanted.value).lower()))
    if isinstance(wanted.value, str):
        return exists(found.where(of_kind, _compare_sql(said.collate(_BYTES), wanted)))
    # A CASE is the only order that is kept: what is no number must not be read as one.
    value = cast(case((of_kind, said), else_=None), Numeric)
    return exists(found.where(_compare_sql(value, replace(wanted, value=_decimal(wanted.value)))))


def _decimal(value: Any) -> Any:
    """A number as its digits say, which is how JSON keeps it."""
    return Decimal(repr(value)) if isinstance(value, float) and math.isfinite(value) else value


def _compare_sql(column: ColumnElement[Any], wanted: Compare) -> ColumnElement[bool]:
    return {
        "eq": column.__eq__,
        "gt": column.__gt__,
        "gte": column.__ge__,
        "lt": column.__lt__,
        "lte": column.__le__,
    }[wanted.operator](wanted.value)
