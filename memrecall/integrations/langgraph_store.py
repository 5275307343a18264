"""LangGraph's `BaseStore` over the memory of one user.

    graph = builder.compile(store=MemoryStore(Memory(user_id="ann")))

An item is a memory: its text is searched by words and meaning, recalled, exported and erased like
any other. Namespaces divide the memory of the bound user; none of them can name another user.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from memrecall.errors import InvalidArgument, NotFound
from memrecall.integrations.agent_memory import AgentMemory, framework_of
from memrecall.memory.memory import AsyncMemory
from memrecall.memory.sync import Memory
from memrecall.search.request import LARGEST_LIMIT
from memrecall.store.database.cursors import LARGEST_LIST
from memrecall.types import NewMemory, Origin

with framework_of("langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        PutOp,
        SearchItem,
        SearchOp,
        get_text_at_path,
    )

ITEM_TYPE = "langgraph_item"  # the memory_type of items
_VALUE = "value."  # prefix of the metadata keys that hold the fields of a value
_FIELDS = "fields"  # the names of those fields; others are of an earlier value
_LEVEL = "level_"  # level_2 is "users.ann" for every item below that namespace
_SEPARATOR = "."  # LangGraph refuses labels that contain it


class MemoryStore(BaseStore):
    """Items of LangGraph as memories of the bound user.

    Of a value, the fields that `index` names are its text, or all of them; `index=False` keeps them
    out of the text. A deleted item can be restored until it is purged. TTLs are not supported.
    A search with a query returns at most the best 200 items.
    """

    __slots__ = ("_memory",)

    def __init__(self, memory: Memory | AsyncMemory) -> None:
        self._memory = AgentMemory(memory)

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Run operations; reads do not see the writes of the same batch."""
        return self._memory.run(self._batch(list(ops)))

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """Like `batch`, from async code."""
        return await self._memory.wait(self._batch(list(ops)))

    async def _batch(self, ops: list[Any]) -> list[Any]:
        results = [await self._read(op) for op in ops]
        # As in LangGraph's own stores, the last write of an item counts.
        writes = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        for op in writes.values():
            await self._write(op)
        return results

    async def _read(self, op: Any) -> Any:
        match op:
            case GetOp():
                item = await self._memory.memory.get(self._key(op.namespace, op.key))
                return None if item is None else Item(**_item_fields(item))
            case SearchOp():
                return await self._search(op)
            case ListNamespacesOp():
                return await self._list_namespaces(op)
            case PutOp():
                return None
        raise InvalidArgument(f"a {type(op).__name__} is not an operation of a store")

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        filters = {**_namespace_filter(op.namespace_prefix), **_value_filter(op.filter or {})}
        count = op.offset + op.limit
        if op.query:
            _require_searchable(count)
            page = await self._memory.memory.search(
                op.query, filters=filters, limit=count, kinds="memory"
            )
            results = page["results"]
        else:
            results = await self._list(filters, count)
        return [
            SearchItem(**_item_fields(item), score=item.get("score"))
            for item in results[op.offset : count]
        ]

    async def _list(self, filters: Mapping[str, Any], count: int | None) -> list[dict[str, Any]]:
        """Return up to `count` items, newest first; all if it is None."""
        items: list[dict[str, Any]] = []
        cursor = None
        while count is None or len(items) < count:
            limit = LARGEST_LIST if count is None else min(count - len(items), LARGEST_LIST)
            page = await self._memory.memory.get_all(filters=filters, limit=limit, cursor=cursor)
            items += page["results"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        return items

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        items = await self._list(_namespace_filter(()), None)
        namespaces = {_namespace_of(item) for item in items}
        conditions = op.match_conditions or ()
        matching = {name for name in namespaces if all(_matches(c, name) for c in conditions)}
        return sorted({name[: op.max_depth] for name in matching})[op.offset : op.offset + op.limit]

    async def _write(self, op: PutOp) -> None:
        memory, key = self._memory.memory, self._key(op.namespace, op.key)
        recaller = await memory.recaller()
        try:
            stored = await recaller.library.store.memories(recaller.scope).get_any(key)
        except NotFound:
            if op.value is not None:
                fields = _memory_fields(op)
                new = NewMemory(memory_key=key, memory_type=ITEM_TYPE, **fields)
                await recaller.library.add_memories(
                    recaller.scope, [new], origin=Origin.ASSISTANT, actor="langgraph"
                )
            return
        if op.value is None:
            if stored.deleted_at is None:
                await memory.delete(key)
            return
        if stored.deleted_at is not None:
            await memory.undo(key)
        fields = _memory_fields(op)
        # An update merges metadata: what the new value lacks must not be found by its old value.
        old = {name: None for name in stored.metadata if name.startswith(_VALUE)}
        await memory.update(key, content=fields["content"], metadata={**old, **fields["metadata"]})

    def _key(self, namespace: tuple[str, ...], key: str) -> str:
        # Keys are unique per user, so those of two agents must differ.
        path = json.dumps([self._memory.memory.agent_id, namespace, key], ensure_ascii=False)
        return f"langgraph_{hashlib.sha256(path.encode()).hexdigest()[:32]}"


def _require_searchable(count: int) -> None:
    if count > LARGEST_LIMIT:
        raise InvalidArgument(
            f"a search with a query returns the best {LARGEST_LIMIT} items; offset and limit"
            f" ask for {count}",
            hint=f"Use at most {LARGEST_LIMIT}, or leave out the query to list all items",
        )


def _memory_fields(op: PutOp) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": _SEPARATOR.join(op.namespace), "key": op.key}
    metadata[_FIELDS] = list(op.value)
    for level in range(1, len(op.namespace) + 1):
        metadata[f"{_LEVEL}{level}"] = _SEPARATOR.join(op.namespace[:level])
    value = {f"{_VALUE}{name}": item for name, item in op.value.items()}
    return {"content": _text_of(op) or op.key, "metadata": {**metadata, **value}}


def _text_of(op: PutOp) -> str:
    if op.index is False:
        return ""
    if op.index:
        texts = [text for path in op.index for text in get_text_at_path(op.value, path)]
        return "\n".join(texts)
    fields = {name: value for name, value in op.value.items() if value not in (None, "", [], {})}
    if len(fields) == 1 and isinstance(text := next(iter(fields.values())), str):
        return text  # a sentence: its field's name says nothing
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in fields.items()
    )


def _item_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    metadata = item["metadata"]
    fields = metadata.get(_FIELDS, [name.removeprefix(_VALUE) for name in metadata])
    return {
        "namespace": _namespace_of(item),
        "key": metadata["key"],
        "value": {
            name.removeprefix(_VALUE): value
            for name, value in metadata.items()
            if name.startswith(_VALUE) and name.removeprefix(_VALUE) in fields
        },
        "created_at": item["created_at"],
        "updated_at": item["updated_at"],
    }


def _namespace_of(item: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(item["metadata"]["namespace"].split(_SEPARATOR))


def _namespace_filter(prefix: tuple[str, ...]) -> dict[str, Any]:
    level = {f"metadata.{_LEVEL}{len(prefix)}": _SEPARATOR.join(prefix)} if prefix else {}
    return {"memory_type": ITEM_TYPE, **level}


def _value_filter(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Return LangGraph's filter on fields of the value as a filter of memrecall."""
    return {
        f"metadata.{_VALUE}{name}": {symbol.removeprefix("$"): value for symbol, value in c.items()}
        if isinstance(c, Mapping)
        else c
        for name, c in conditions.items()
    }


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
