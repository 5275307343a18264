"""Filters on memories and messages: parsed from dicts and translated to SQL."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal

from sqlalchemy import Table, and_, false, func, literal, not_, null, or_, true
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.elements import Null

from memrecall.errors import InvalidArgument
from memrecall.json_objects import has_more_values
from memrecall.store.database.dialects import DatabaseDialect
from memrecall.store.database.tables import memories, messages
from memrecall.types import check_text, parse_time

Operator = Literal["eq", "gt", "gte", "lt", "lte", "contains", "icontains"]
Scalar = str | int | float | bool | datetime | None

MAX_FILTER_DEPTH = 16
MAX_CONDITIONS = 200
_MAX_VALUES = 10 * MAX_CONDITIONS  # with the lists and operators around the conditions
LARGEST_NUMBER = 2**53  # beyond it the databases round differently
_METADATA_PREFIX = "metadata."
_ANY_VALUE = "*"
_CONTAINS = ("contains", "icontains")
_ASCII_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)

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
    "project": "project",
    "superseded_by": "superseded_by",
}
FLAG_FIELDS = frozenset({"sensitive", "pinned", "truncated"})
TIME_FIELDS = (
    "created_at",
    "updated_at",
    "valid_from",
    "valid_to",
    "expires_at",
    "last_recalled_at",
)
PROVENANCE_FIELDS = ("actor", "origin")  # texts; messages have none
_COLUMNS = {
    **TEXT_FIELDS,
    **{name: name for name in (*FLAG_FIELDS, *TIME_FIELDS, *PROVENANCE_FIELDS)},
}
# What a message has of the fields of a memory.
_MESSAGE_FIELDS: dict[str, ColumnElement[Any]] = {
    **{
        name: messages.c[name]
        for name in ("content", "speaker", "session_id", "agent_id", "project")
    },
    **{name: false() for name in FLAG_FIELDS},
    "memory_key": messages.c.message_id,
    "memory_type": literal("message"),
    "created_at": messages.c.ts,
    "updated_at": messages.c.create_time,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_OPERATORS = (*_COMPARE, *_CONTAINS, "ne", "in", "nin")


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of a field (`column`) or of a key of the metadata with a value."""

    column: str | None
    key: str
    operator: Operator
    value: Scalar


@dataclass(frozen=True, slots=True)
class FilterAll:
    """A filter that passes if every part does; without parts it always passes."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class FilterAny:
    """A filter that passes if at least one part does."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class FilterNot:
    """A filter that passes if its part does not."""

    part: "Filter"


Filter = Compare | FilterAll | FilterAny | FilterNot


def read_filter(data: Mapping[str, Any] | None) -> Filter:
    """Parse a filter that a caller wrote; InvalidArgument names what is wrong with it."""
    parsed = _parse(check_filter_size(data or {}), 0)
    if _count(parsed) > MAX_CONDITIONS:
        raise _too_many_conditions()
    return parsed


def check_filter_size(data: Any) -> Any:
    """Return a filter that a caller wrote, unless it is too large to build anything from it."""
    if has_more_values(data, _MAX_VALUES):
        raise _too_many_conditions()
    return data


def _too_many_conditions() -> InvalidArgument:
    message = f"the filter has more than {MAX_CONDITIONS} conditions"
    return InvalidArgument(message, hint="Split the request")


def _count(condition: Filter) -> int:
    match condition:
        case FilterAll(parts) | FilterAny(parts):
            return sum(map(_count, parts))
        case FilterNot(part):
            return _count(part)
        case _:
            return 1


def _parse(data: object, depth: int) -> Filter:
    if not isinstance(data, Mapping):
        raise InvalidArgument(
            f"a filter is a dict of names and values, not {data!r}", hint='{"topic": "tea"}'
        )
    if depth > MAX_FILTER_DEPTH:
        raise InvalidArgument(
            f"the filter is nested deeper than {MAX_FILTER_DEPTH} levels", hint="Flatten it"
        )
    return FilterAll(tuple(_parse_entry(name, value, depth) for name, value in data.items()))


def _parse_entry(name: object, value: object, depth: int) -> Filter:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{name!r} in a filter is not a field", hint="Use a field's name")
    check_text("a filter's name", name)
    connective = name.lower()
    if connective in ("and", "or"):
        if not isinstance(value, list | tuple):
            raise InvalidArgument(
                f"{name!r} takes a list of filters, not {value!r}", hint="Put it into a list"
            )
        parts = tuple(_parse(part, depth + 1) for part in value)
        return FilterAll(parts) if connective == "and" else FilterAny(parts)
    if connective == "not":
        if isinstance(value, list | tuple):
            return FilterNot(FilterAny(tuple(_parse(part, depth + 1) for part in value)))
        return FilterNot(_parse(value, depth + 1))
    if isinstance(value, Mapping):
        return FilterAll(tuple(_parse_operator(name, key, item) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return _parse_operator(name, "in", value)
    if value == _ANY_VALUE:
        return FilterNot(_parse_comparison(name, "eq", None))
    return _parse_comparison(name, "eq", value)


def _parse_operator(name: str, symbol: object, value: object) -> Filter:
    if symbol not in _OPERATORS:
        raise InvalidArgument(
            f"the operator {symbol!r} of filter {name!r} is not known",
            hint=f"Use {', '.join(_OPERATORS)}",
        )
    if symbol == "ne":
        return FilterNot(_parse_comparison(name, "eq", value))
    if symbol in ("in", "nin"):
        if not isinstance(value, list | tuple | set | frozenset):
            raise InvalidArgument(
                f"'in' of filter {name!r} takes a list, not {value!r}", hint="Put it into a list"
            )
        any_choice = FilterAny(tuple(_parse_comparison(name, "eq", item) for item in value))
        return any_choice if symbol == "in" else FilterNot(any_choice)
    return _parse_comparison(name, symbol, value)  # type: ignore[arg-type]  # one of _COMPARE


def _parse_comparison(name: str, symbol: Operator, value: object) -> Compare:
    if name == "user_id":
        raise InvalidArgument(
            "user_id is not a field of memories: every search and list is of one user",
            hint="Pass it as an argument or at the top of the filters, outside of OR and NOT",
        )
    if symbol in _CONTAINS and (
        not isinstance(value, str) or not value or name in TIME_FIELDS or name in FLAG_FIELDS
    ):
        raise InvalidArgument(
            f"{symbol!r} of filter {name!r} cannot look for {value!r}",
            hint="It looks for a part of a text in a text",
        )
    if not isinstance(value, str | int | float | bool | datetime | None):
        raise InvalidArgument(
            f"filter {name!r} cannot compare with {value!r}",
            hint="Use a string, a number, a boolean, a time or null",
        )
    if symbol != "eq" and (value is None or isinstance(value, bool)):
        raise InvalidArgument(f"filter {name!r}: {value!r} cannot be ordered", hint="Use eq or ne")
    if isinstance(value, str):
        check_text(f"filter {name!r}", value)
    if isinstance(value, int | float) and not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        raise InvalidArgument(
            f"filter {name!r} cannot compare with {value}",
            hint=f"Use numbers up to {LARGEST_NUMBER}",
        )
    column = _COLUMNS.get(name)  # a name that begins with the prefix is no column
    if column in TIME_FIELDS:
        value = None if value is None else parse_time(value, f"filter {name!r}")
    elif isinstance(value, datetime):
        raise InvalidArgument(f"{name!r} is not a time", hint=f"Times: {', '.join(TIME_FIELDS)}")
    return Compare(column, name.removeprefix(_METADATA_PREFIX), symbol, value)


def to_condition(
    condition: Filter, dialect: DatabaseDialect, table: Table = memories
) -> ColumnElement[bool]:
    """Return the filter on memories or messages as SQL that is true or false, never unknown."""
    match condition:
        case FilterAll(parts):
            return and_(true(), *(to_condition(part, dialect, table) for part in parts))
        case FilterAny(parts):
            return or_(false(), *(to_condition(part, dialect, table) for part in parts))
        case FilterNot(part):
            return not_(to_condition(part, dialect, table))
        case Compare(None, key, _, None):
            has_null = dialect.has_json_key(table.c.metadata, key, with_null=True)
            return or_(not_(dialect.has_json_key(table.c.metadata, key)), has_null)
        case Compare(None, key, name, value):
            return dialect.compare_json(table.c.metadata, key, _comparison(name, dialect), value)
        case Compare(column, _, name, value):
            return _compare_field(table, str(column), name, value, dialect)


def _compare_field(
    table: Table, name: str, symbol: Operator, value: Scalar, dialect: DatabaseDialect
) -> ColumnElement[bool]:
    if name in PROVENANCE_FIELDS and table is memories:
        if value is None:
            return false()
        compare = _comparison(symbol, dialect)
        return dialect.compare_json(memories.c.provenance, name, compare, value)
    column = memories.c[name] if table is memories else _MESSAGE_FIELDS.get(name, null())
    if value is None:
        return column.is_(None)
    if name in FLAG_FIELDS:
        return column.is_(value) if isinstance(value, bool) else false()
    is_time = name in TIME_FIELDS
    if not isinstance(value, datetime if is_time else str) or isinstance(column, Null):
        return false()
    comparable = column if is_time else dialect.sort_by_bytes(column)
    return and_(column.is_not(None), _comparison(symbol, dialect)(comparable, value))


def _comparison(symbol: Operator, dialect: DatabaseDialect) -> Callable[[Any, Any], Any]:
    find = getattr(func, dialect.position_function)  # LIKE is not the same in both databases
    if symbol == "icontains":
        # Only of ASCII letters do both databases know the lower case.
        return lambda text, part: find(func.lower(text), part.translate(_ASCII_LOWER)) > 0
    return (lambda text, part: find(text, part) > 0) if symbol == "contains" else _COMPARE[symbol]
