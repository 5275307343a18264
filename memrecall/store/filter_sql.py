"""Filters as conditions of a SQL statement, with the same meaning on both databases.

A key of the metadata is looked up with `json_each`, not by a path: SQLite finds no key by a path
that JSON writes with escapes, which is every key that is not ASCII.
"""

import math
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

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

from memrecall.store.filters import (
    FLAG_FIELDS,
    TIME_FIELDS,
    All,
    Compare,
    Filter,
    Not,
    Some,
    kind_of,
)
from memrecall.store.tables import memories

_BYTES = "C"  # the order of Python's strings and of SQLite


def condition(wanted: Filter, *, sqlite: bool) -> ColumnElement[bool]:
    """The filter as a condition that is true or false, never unknown."""
    match wanted:
        case All(parts):
            return and_(true(), *(condition(part, sqlite=sqlite) for part in parts))
        case Some(parts):
            return or_(false(), *(condition(part, sqlite=sqlite) for part in parts))
        case Not(part):
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
    return and_(column.is_not(None), _compare(ordered, wanted))


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
        found = found.where(_compare(each.c.atom, wanted))
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
        return exists(found.where(of_kind, _compare(said.collate(_BYTES), wanted)))
    # A CASE is the only order that is kept: what is no number must not be read as one.
    value = cast(case((of_kind, said), else_=None), Numeric)
    return exists(found.where(_compare(value, replace(wanted, value=_decimal(wanted.value)))))


def _decimal(value: Any) -> Any:
    """A number as its digits say, which is how JSON keeps it."""
    return Decimal(repr(value)) if isinstance(value, float) and math.isfinite(value) else value


def _compare(column: ColumnElement[Any], wanted: Compare) -> ColumnElement[bool]:
    return {
        "eq": column.__eq__,
        "gt": column.__gt__,
        "gte": column.__ge__,
        "lt": column.__lt__,
        "lte": column.__le__,
    }[wanted.operator](wanted.value)
