"""Filters mean the same in SQLite, in PostgreSQL and in plain Python."""

import operator
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.store import MemoryQuery, Store, read_filter
from memrecall.store.database.statements import new_id
from memrecall.store.memories.filters import Compare, Filter, FilterAll, FilterAny, FilterNot

from ..cases import check_each, check_each_async
from .samples import ANN, BEN, MORNING, add_memory, at

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "contains": lambda text, part: part in text,
    "icontains": lambda text, part: part.lower() in text.lower(),
}
NAMES = st.sampled_from(["a", "b", "城市", 'q"t', "x.y", "back\\slash", "pinned"])
NUMBERS = (
    st.integers(-(2**53), 2**53) | st.integers(-3, 3) | st.sampled_from([0.1, 0.5, -2.25, 1e3])
)
TEXTS = st.sampled_from(["", "tea", "Tea", "茶", "é", "😀", "1", "true", 'a"b', "\\", "%", "_"])
SCALARS = TEXTS | NUMBERS | st.booleans() | st.none()
LISTS = st.lists(SCALARS | st.just(["tea", 1]), max_size=3)
METADATA = st.dictionaries(NAMES, SCALARS | LISTS | st.just({"a": 1, "b": "tea"}), max_size=4)
PARTS = st.sampled_from(["contains", "icontains"])
ORDERS = st.sampled_from(["gt", "gte", "lt", "lte"])
KEYS = NAMES.map(lambda name: f"metadata.{name}")

LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.dictionaries(KEYS, SCALARS, min_size=1, max_size=2),
    st.builds(lambda k, o, v: {k: {o: v}}, KEYS, ORDERS, TEXTS | NUMBERS),
    st.builds(lambda k, o, v: {k: {o: v}}, KEYS, st.sampled_from(["in", "nin"]), st.lists(SCALARS)),
    st.builds(lambda k, v: {k: {"ne": v}}, KEYS, SCALARS),
    st.builds(lambda k, o, v: {k: {o: v}}, KEYS, PARTS, TEXTS.filter(bool)),
    st.builds(lambda v: {"pinned": v}, st.booleans() | st.none()),
    st.builds(lambda o, v: {"subject": {o: v}}, ORDERS | st.just("eq"), TEXTS),
    st.builds(lambda v: {"subject": v}, TEXTS | st.none() | st.integers(0, 1)),
    st.builds(lambda o, n: {"valid_from": {o: at(n)}}, ORDERS, st.integers(-1, 2)),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"and": parts}, st.lists(inner, max_size=3)),
        st.builds(lambda parts: {"OR": parts}, st.lists(inner, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=6,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "metadata": METADATA,
            "pinned": st.booleans(),
            "subject": TEXTS.filter(bool) | st.none(),
            "valid_from": st.integers(-1, 2).map(at) | st.none(),
        }
    ),
    min_size=8,
    max_size=8,
)


some = given(ROWS, st.lists(FILTERS, min_size=30, max_size=30))


@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@some
async def test_sql_and_python_filters_agree(
    store: Store, rows: list[dict[str, Any]], filters: list[dict[str, Any]]
) -> None:
    await compare(store, rows, filters)


@pytest.mark.long
@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@some
async def test_sql_and_python_filters_agree_on_many_examples(
    store: Store, rows: list[dict[str, Any]], filters: list[dict[str, Any]]
) -> None:
    await compare(store, rows, filters)


def matches(condition: Filter, row: dict[str, Any]) -> bool:
    """Return whether a memory's fields, with `metadata` as a dict, pass the filter."""
    match condition:
        case FilterAll(parts):
            return all(matches(part, row) for part in parts)
        case FilterAny(parts):
            return any(matches(part, row) for part in parts)
        case FilterNot(part):
            return not matches(part, row)
        case Compare(column, key, name, value):
            stored = row.get(column) if column else row["metadata"].get(key)
            # A list passes if one of its items does.
            items = stored if isinstance(stored, list) and value is not None else [stored]
            return any(passes(item, name, value) for item in items)


def passes(stored: object, name: str, value: object) -> bool:
    """Return whether a stored value compares so with another."""
    if kind_of(stored) != kind_of(value):
        return False
    if value is None or isinstance(value, bool):
        return name == "eq" and stored is value
    return bool(COMPARE[name](stored, value))


def kind_of(value: object) -> str:
    """Return the kind of a value: only values of one kind compare."""
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__


async def compare(store: Store, rows: list[dict[str, Any]], filters: list[dict[str, Any]]) -> None:
    """Compare the database's and plain Python's results for one user's rows."""
    scope = Scope(new_id("user"))
    for number, row in enumerate(rows):
        await add_memory(store, f"k{number}", scope=scope, **row)
    for data in filters:
        condition = read_filter(data)
        expected = [f"k{n}" for n, row in enumerate(rows) if matches(condition, row)]
        keys = await store.memories(scope).keys(MemoryQuery(condition, superseded=True))
        assert keys == expected, data


INVALID_FILTERS: list[tuple[Any, str]] = [
    ({"a": {"like": "t%"}}, "'like'"),
    ({"a": {"$gt": 1}}, "'\\$gt'"),
    ({"and": {"a": 1}}, "'and'"),
    ({"or": "x"}, "'or'"),
    ({"not": 1}, "1"),
    ({"a": {"in": 5}}, "'in'"),
    ({"a": {"gt": None}}, "cannot be ordered"),
    ({"a": {"lt": True}}, "cannot be ordered"),
    ({"a": {"eq": [1]}}, "Use a string, a number"),
    ({"a": float("nan")}, "nan"),
    ({"a": 2**60}, "numbers up to"),
    ({"a": "\0"}, "NUL"),
    ({"created_at": "yesterday"}, "not a time"),
    ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, "not a time"),
    ({1: 2}, "1"),
    ([1], r"\[1\]"),
    ({"a": 1, "or": [{"a": {"in": list(range(201))}}]}, "200 conditions"),
]


def test_invalid_filters_are_refused_by_name() -> None:
    def refuse(case: tuple[Any, str]) -> None:
        invalid, pattern = case
        with pytest.raises(InvalidArgument, match=pattern):
            read_filter(invalid)

    check_each(INVALID_FILTERS, refuse)


def test_deeply_nested_filters_are_refused() -> None:
    nested: dict[str, Any] = {"a": 1}
    for _ in range(50):
        nested = {"not": nested}
    with pytest.raises(InvalidArgument, match="nested"):
        read_filter(nested)


async def test_fields_and_metadata_keys_of_one_name_differ(store: Store) -> None:
    await add_memory(store, "k1", pinned=True, metadata={"pinned": False})
    await add_memory(store, "k2", pinned=False, metadata={"pinned": True})
    memories = store.memories(ANN)

    assert await memories.keys(MemoryQuery(read_filter({"pinned": True}))) == ["k1"]
    assert await memories.keys(MemoryQuery(read_filter({"metadata.pinned": True}))) == ["k2"]


async def test_actor_and_origin_are_of_the_provenance(store: Store) -> None:
    await add_memory(store, "tea", metadata={"actor": "me"})
    (record,) = await store.memories(ANN).get_many(["tea"])
    actor, origin = record.provenance.actor, record.provenance.origin.value
    filters: dict[str, tuple[dict[str, Any], bool]] = {
        "actor": ({"actor": actor}, True),
        "part of the actor": ({"actor": {"contains": actor[1:]}}, True),
        "another actor": ({"actor": "me"}, False),
        "not another": ({"actor": {"ne": "me"}}, True),
        "any": ({"actor": "*"}, True),
        "none": ({"origin": None}, False),
        "origin": ({"origin": {"in": [origin]}}, True),
        "number": ({"origin": 1}, False),
        "metadata": ({"metadata.actor": "me"}, True),
    }

    async def check(name: str) -> None:
        data, passes = filters[name]
        page = await store.memories(ANN).page(MemoryQuery(read_filter(data)))
        assert bool(page.items) == passes

    await check_each_async(filters, check)


async def test_list_in_metadata_passes_if_one_of_its_items_does(store: Store) -> None:
    await add_memory(store, "tags", metadata={"tags": ["a", "茶叶", 3, True]})
    await add_memory(store, "text", metadata={"tags": "a"})
    await add_memory(store, "others", metadata={"tags": ["b", ["a"], {"a": "a"}]})
    cases: list[tuple[Any, list[str]]] = [
        ({"contains": "a"}, ["tags", "text"]),
        ({"contains": "茶"}, ["tags"]),
        ({"icontains": "A"}, ["tags", "text"]),
        ({"in": ["a", "x"]}, ["tags", "text"]),
        ({"in": ["x"]}, []),
        ({"nin": ["a", "x"]}, ["others"]),
        ({"gt": 2}, ["tags"]),
        ("b", ["others"]),
        (True, ["tags"]),
        (False, []),
    ]

    async def check(case: tuple[Any, list[str]]) -> None:
        query = MemoryQuery(read_filter({"tags": case[0]}))
        assert await store.memories(ANN).keys(query) == sorted(case[1])

    await check_each_async(cases, check)


async def test_times_compare_across_time_zones(store: Store) -> None:
    await add_memory(store, "k", valid_from=MORNING)
    memories = store.memories(ANN)

    for text in ("2026-01-26T10:00:00Z", "2026-01-26T18:00:00+08:00", "2026-01-26T10:00:00"):
        assert await memories.keys(MemoryQuery(read_filter({"valid_from": text}))) == ["k"]
    assert await memories.keys(MemoryQuery(read_filter({"valid_from": {"gt": MORNING}}))) == []
    assert await store.memories(BEN).keys(MemoryQuery()) == []
