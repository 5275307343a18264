"""Input that one engine cannot store is refused by both before any write."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from memrecall.errors import CallerError, InvalidArgument
from memrecall.scope import Scope
from memrecall.store import MessageFilter, Store
from memrecall.store.database.statements import new_id
from memrecall.types import NewMemory, NewMessage, Origin

from ..cases import check_each
from .samples import ANN, add_memory, new_message

NUL = "a\0b"
LONE_SURROGATE = "a\ud83d"
TOO_LONG = "x" * 65
IMPOSSIBLE_IDS = [NUL, LONE_SURROGATE, TOO_LONG, "", " a", "a ", "a\nb", "a\x7fb", "\u200b"]

BAD_FIELDS: list[dict[str, Any]] = [
    *({"content": text} for text in (NUL, LONE_SURROGATE, "x" * 1_000_001, None, 7)),
    *({"message_id": name} for name in IMPOSSIBLE_IDS),
    *({"parent_message_id": name} for name in (NUL, LONE_SURROGATE, TOO_LONG)),
    *({"role": role} for role in ("User", "human", "", None)),
    *({"speaker": name} for name in (NUL, LONE_SURROGATE, "x" * 256)),
    *({"content_type": label} for label in (NUL, "", "x" * 51)),
    *({"ts": moment} for moment in ("yesterday", 7, "0001-01-01T00:00:00+14:00")),
    *({"metadata": {"k": value}} for value in (NUL, LONE_SURROGATE, {1}, b"", object())),
    *({"metadata": {"k": [float(value)]}} for value in ("nan", "inf", "-inf")),
    {"metadata": {NUL: 1}},
    {"metadata": {1: 1}},
    {"metadata": [1]},
    {"unknown": 1},
]


def test_invalid_message_is_refused() -> None:
    def refuse(fields: dict[str, Any]) -> None:
        with pytest.raises(ValidationError) as refusal:
            NewMessage.model_validate({"content": "hello", "role": "user", **fields})
        assert next(iter(fields)) in str(refusal.value)

    check_each(BAD_FIELDS, refuse, lambda fields: ascii(fields)[:60])


def test_json_may_be_nested_thirty_two_levels_deep() -> None:
    def nested(levels: int) -> dict[str, Any]:
        return {"k": nested(levels - 1)} if levels else {}

    assert new_message("m", metadata=nested(32)).metadata == nested(32)
    with pytest.raises(ValidationError, match="32"):
        new_message("m", metadata=nested(33))


def test_invalid_scope_id_is_refused() -> None:
    def refuse(case: tuple[str, str]) -> None:
        field, name = case
        with pytest.raises(InvalidArgument, match=field):
            replace(ANN, **{field: name})  # type: ignore[arg-type]

    check_each(product(["user_id", "agent_id", "session_id"], IMPOSSIBLE_IDS), refuse, ascii)


async def test_longest_and_unusual_ids_round_trip(store: Store) -> None:
    names = ["x" * 64, "汉" * 64, "😀" * 64, "a b", "a/b", "a'b\"c", "%s", "a\\b", "$1", ":x"]
    names += ["\u00e9", "e\u0301"]  # different ids that look alike
    scopes = [Scope(name, agent_id=name, session_id=name) for name in names]

    for scope in scopes:
        await store.timeline(scope).add([new_message(scope.user_id, scope.user_id)])

    for scope in scopes:
        message = await store.timeline(scope).get(scope.user_id)
        assert message.content == message.message_id == message.session_id == scope.user_id
    assert len((await store.owners.list_users()).items) == len(names)


Read = Callable[[Store, str], Awaitable[object]]
READS: dict[str, Read] = {
    "message": lambda store, name: store.timeline(ANN).get(name),
    "neighbors": lambda store, name: store.timeline(ANN).neighbors(name),
    "session": lambda store, name: store.timeline(ANN).page(MessageFilter(session_id=name)),
    "memory": lambda store, name: store.memories(ANN).get(name),
    "trace": lambda store, name: store.traces(ANN).get(name),
    "thread": lambda store, name: store.timeline(ANN).thread(name, session_id="s", limit=1),
    "thread of": lambda store, name: store.timeline(ANN).thread(session_id=name, limit=1),
    "erase user": lambda store, name: store.owners.erase_user(name),
    "erase session": lambda store, name: store.owners.erase_session("ann", name),
    "erase agent": lambda store, name: store.owners.erase_agent(name),
    "disable user": lambda store, name: store.owners.set_user_enabled(name, False),
    "end session": lambda store, name: store.owners.end_session("ann", name),
    "list users": lambda store, name: store.owners.list_users(after=name),
    "list sessions": lambda store, name: store.owners.list_sessions(name),
}


async def test_lookup_of_an_invalid_id_raises_a_caller_error(store: Store) -> None:
    await store.timeline(ANN).add([new_message("m")])

    failures = {}
    for verb, lookup in READS.items():
        for name in (NUL, LONE_SURROGATE):
            (outcome,) = await asyncio.gather(lookup(store, name), return_exceptions=True)
            if isinstance(outcome, Exception) and not isinstance(outcome, CallerError):
                failures[verb, name] = type(outcome).__name__

    assert failures == {}


async def test_invalid_actor_is_refused(store: Store) -> None:
    for actor in (NUL, LONE_SURROGATE):
        with pytest.raises(InvalidArgument):
            await store.memories(ANN).add(
                [NewMemory(content="likes tea")], origin=Origin.USER, actor=actor
            )

    assert (await store.count())["users"] == 0


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab界😀 ", max_size=3), inner)
    ),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text("ab界", max_size=2), JSON_VALUES), min_size=1, max_size=4))
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_metadata_round_trips(store: Store, values: list[dict[str, Any]]) -> None:
    names = [new_id("m") for _ in values]
    await store.timeline(ANN).add(
        [new_message(name, metadata=value) for name, value in zip(names, values, strict=True)]
    )

    metadata_by_id = {m.message_id: m.metadata for m in await store.timeline(ANN).get_many(names)}

    assert [metadata_by_id[name] for name in names] == values


async def test_numbers_in_metadata_keep_value_and_type(store: Store) -> None:
    numbers = [1e23, 1.5e300, -1e16, 5e-324, 2**63, -(2**80), 0.1, 1.0]
    await store.timeline(ANN).add([new_message("m", metadata={"n": numbers})])
    await add_memory(store, "k", metadata={"n": numbers})

    for record in (await store.timeline(ANN).get("m"), await store.memories(ANN).get("k")):
        assert record.metadata == {"n": numbers}
        assert [type(number) for number in record.metadata["n"]] == [type(n) for n in numbers]


async def test_number_too_long_for_json_is_refused(store: Store) -> None:
    with pytest.raises((ValidationError, CallerError)):
        await store.timeline(ANN).add([new_message("m", metadata={"n": 10**5000})])
