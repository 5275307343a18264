"""Arguments as mem0 takes them: ids inside filters, limits under another name, dates."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from memrecall.errors import InvalidArgument
from memrecall.types import parse_time

ANY_VALUE = "*"  # as the value of a filter
_DAY = timedelta(days=1)
_ID_NAMES = {
    "user_id": "user_id",
    "agent_id": "agent_id",
    "run_id": "session_id",
    "session_id": "session_id",
}


class CallScope(NamedTuple):
    """The ids that a call names, in the order that `ScopeBinding.scope` takes them."""

    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None


def take_scope(
    filters: Mapping[str, Any] | None, **ids: str | None
) -> tuple[CallScope, dict[str, Any]]:
    """Return the ids of a call, those in its filters included, and the remaining filters.

    An id counts at the top level of the filters and in the parts of an AND, where it holds for
    every result. Lists, operators and "*" are ordinary filters.
    """
    named: dict[str, Any] = {}
    for name, value in ids.items():
        _name_id(named, name, value)
    rest = _take_ids(filters, named) if isinstance(filters, Mapping) else filters
    return CallScope(**named), rest or {}


def _take_ids(filters: Mapping[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    for name, value in filters.items():
        is_plain = value is not None and not isinstance(value, Mapping | list | tuple | set)
        if name in _ID_NAMES and is_plain and value != ANY_VALUE:
            _name_id(named, name, value)
        elif str(name).lower() == "and" and isinstance(value, list | tuple):
            parts = [_take_ids(p, named) if isinstance(p, Mapping) else p for p in value]
            rest[name] = parts
        else:
            rest[name] = value
    return rest


def _name_id(named: dict[str, Any], name: str, value: Any) -> None:
    field = _ID_NAMES[name]
    if value is None:
        return
    if named.setdefault(field, value) != value:
        raise InvalidArgument(
            f"{name} is given twice: {named[field]!r} and {value!r}", hint="Pass one of them"
        )


def choose_limit(limit: int, top_k: int | None, default: int) -> int:
    """Return the number of results that a call wants, as `limit` or as `top_k`."""
    if top_k is None:
        return limit
    if limit not in (default, top_k):
        raise InvalidArgument(
            f"limit {limit} and top_k {top_k} differ", hint="They mean the same: pass one of them"
        )
    return top_k


def parse_moment(value: object, name: str) -> datetime | None:
    """Return a time from a datetime, a text or Unix seconds; a date means its noon in UTC.

    At noon in UTC it is the same day nearly everywhere.
    """
    if value is None:
        return None
    day = _parse_date(value)
    if day is not None:
        return datetime.combine(day, time(12), UTC)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            raise InvalidArgument(
                f"{name} {value!r} is not a time", hint="Pass Unix seconds, not milliseconds"
            ) from None
    return parse_time(value, name)


def parse_expiration(value: object) -> datetime | None:
    """Return when the last day of a memory ends; None means that it has none."""
    if value is None:
        return None
    day = value.date() if isinstance(value, datetime) else _parse_date(value)
    if day is None:
        raise InvalidArgument(
            f"expiration_date {value!r} is not a date", hint="Write it like 2026-12-31"
        )
    return datetime.combine(day, time(), UTC) + _DAY


def expiration_date(expires_at: datetime | None) -> str | None:
    """Return the last day on which a memory is valid to its end, as mem0 writes it."""
    return None if expires_at is None else (expires_at - _DAY).date().isoformat()


def _parse_date(value: object) -> date | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
