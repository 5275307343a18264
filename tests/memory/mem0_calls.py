"""mem0's documented calls, made to mem0 and to memrecall, and their answers compared.

    pip install -e '.[peers]'
    python -m tests.memory.mem0_calls FILE       write mem0's signatures and answers

Compares the signatures of all methods and the shape of every answer: the fields, their types, the
errors, and which memories a filter finds. mem0 runs offline: its vectors are hashes, and a script
answers for its model. Differences that are meant to stay are in `DIFFERENCES`, with the reason.
"""

import asyncio
import hashlib
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from memrecall import AsyncMemory, Memory
from memrecall.settings import Settings
from tests.cases import read_rows
from tests.extractors import SentenceExtractor

Json = dict[str, Any]
Call = Callable[[Any, Json], Any]

RECORD = Path(__file__).parents[2] / "fixtures" / "mem0" / "calls.json"
METHODS = ("add", "get", "get_all", "search", "update", "delete", "delete_all", "history",
           "reset", "close", "from_config", "chat")  # fmt: skip
_DIMENSIONS = 8
_ANN = {"user_id": "ann"}
_NO_ID = "00000000-0000-0000-0000-000000000000"

# By the beginning of a difference: why it stays.
DIFFERENCES: dict[str, str] = dict(read_rows("names", "differences from mem0"))


class Literal(list[str]):
    """Texts that are compared by value, not by shape."""


def _texts(page: Any) -> Any:
    async def later() -> Literal:
        return Literal(sorted(item["memory"] for item in (await page)["results"]))

    if inspect.isawaitable(page):
        return later()
    return Literal(sorted(item["memory"] for item in page["results"]))


def _filter_calls() -> Iterator[tuple[str, Call]]:
    filters: dict[str, Json] = {
        "equality": {"k": "v"},
        "list": {"k": ["v", "w"]},
        "wildcard": {"k": "*"},
        "contains": {"k": {"contains": "v"}},
        "icontains": {"k": {"icontains": "V"}},
        "comparison": {"n": {"gte": 3, "lt": 9}},
        "ne": {"k": {"ne": "v"}},
        "in": {"k": {"in": ["v"]}},
        "AND": {"AND": [{"k": "v"}, {"n": {"gte": 3}}]},
        "OR": {"OR": [{"k": "v"}, {"n": 9}]},
        "NOT": {"NOT": [{"k": "v"}]},
        "unknown operator": {"n": {"near": 3}},
    }
    for name, condition in filters.items():
        both = {**_ANN, **condition}
        yield f"filter {name}, listed", partial(_list_texts, filters=both)
        yield f"filter {name}, searched", partial(_search_texts, filters=both)


def _list_texts(memory: Any, _: Json, filters: Json) -> Any:
    return _texts(memory.get_all(filters=filters))


def _search_texts(memory: Any, _: Json, filters: Json) -> Any:
    return _texts(memory.search("tea", filters=filters, top_k=9, threshold=0.0))


def calls() -> Iterator[tuple[str, Call]]:
    """Yield the calls in order; each gets the memory and the keys that earlier ones stored."""
    turn = [
        {"role": "user", "content": "tea in the morning", "name": "Ann"},
        {"role": "assistant", "content": "tea it is"},
    ]
    scope: Json = {**_ANN, "agent_id": "cook", "run_id": "r1"}
    past = str((datetime.now(UTC) - timedelta(days=9)).date())

    yield "add", lambda m, _: m.add(turn, **scope, metadata={"k": "v", "n": 3}, infer=False)
    yield "add a text", lambda m, _: m.add("tea alone", **_ANN, infer=False)
    yield (
        "add with inference",
        lambda m, _: m.add("I live in Paris.", user_id="ben", metadata={"k": 1}),
    )
    yield "add by agent", lambda m, _: m.add("tea of nobody", agent_id="cook", infer=False)
    yield (
        "add a procedure",
        lambda m, _: m.add(turn, user_id="cleo", agent_id="baker", memory_type="procedural_memory"),
    )
    yield "add without a scope", lambda m, _: m.add("tea", infer=False)
    yield "add a number", lambda m, _: m.add(5, **_ANN)
    yield "a number as an id", lambda m, _: m.add("tea", user_id=7, infer=False)
    yield "a timestamp", lambda m, _: m.add("tea", user_id="dora", timestamp=1, infer=False)
    yield "get", lambda m, keys: m.get(keys["id"])
    yield "get a missing memory", lambda m, _: m.get(_NO_ID)
    yield "list", lambda m, _: m.get_all(filters=_ANN, top_k=9)
    yield "list by agent", lambda m, _: _texts(m.get_all(filters={"agent_id": "cook"}))
    yield "list by run", lambda m, _: _texts(m.get_all(filters={"run_id": "r1"}))
    yield "list without a scope", lambda m, _: m.get_all()
    yield "list at most one", lambda m, _: _texts(m.get_all(filters={**_ANN, "k": {"eq": 1}}))
    yield "search", lambda m, _: m.search("tea", filters=_ANN, top_k=2, threshold=0.0)
    yield (
        "explained search",
        lambda m, _: m.search("tea", filters=_ANN, explain=True, rerank=True, threshold=0.0),
    )
    yield "search without a scope", lambda m, _: m.search("tea")
    yield "a search with user_id", lambda m, _: m.search("tea", user_id="ann", threshold=0.0)
    yield "a search by agent alone", lambda m, _: m.search("tea", filters={"agent_id": "cook"})
    yield (
        "a reference date",
        lambda m, _: m.search("tea", filters=_ANN, reference_date="2026-01-01", threshold=0.0),
    )
    yield "a blank query", lambda m, _: m.search(" ", filters=_ANN)
    yield "a threshold of 2", lambda m, _: m.search("tea", filters=_ANN, threshold=2)
    yield "top_k of 0", lambda m, _: m.search("tea", filters=_ANN, top_k=0)
    yield from _filter_calls()
    yield "update", lambda m, keys: m.update(keys["id"], "tea at noon", {"a": 1})
    yield "update metadata", lambda m, keys: m.update(keys["id"], metadata={"b": 2})
    yield "updated memory", lambda m, keys: m.get(keys["id"])
    yield "update by name", lambda m, keys: m.update(memory_id=keys["id"], text="tea at night")
    yield "update nothing", lambda m, keys: m.update(keys["id"])
    yield "update a missing memory", lambda m, _: m.update(_NO_ID, "tea")
    yield "expire", lambda m, keys: m.update(keys["id"], expiration_date=past)
    yield "expired memory", lambda m, keys: m.get(keys["id"])
    yield "list after expiry", lambda m, _: _texts(m.get_all(filters=_ANN))
    yield "list expired", lambda m, _: _texts(m.get_all(filters=_ANN, show_expired=True))
    yield (
        "search expired",
        lambda m, _: _texts(m.search("tea", filters=_ANN, show_expired=True, threshold=0.0)),
    )
    yield "an expiry that is no date", lambda m, keys: m.update(keys["id"], expiration_date="soon")
    yield "changes", lambda m, keys: m.history(keys["id"])
    yield "changes of a missing memory", lambda m, _: m.history(_NO_ID)
    yield "delete", lambda m, keys: m.delete(keys["id"])
    yield "delete a missing memory", lambda m, _: m.delete(_NO_ID)
    yield "delete all", lambda m, _: m.delete_all(user_id="ann")
    yield "delete all without a scope", lambda m, _: m.delete_all()
    yield "list after deletion", lambda m, _: _texts(m.get_all(filters=_ANN))
    yield "reset", lambda m, _: m.reset()
    yield "list after reset", lambda m, _: _texts(m.get_all(filters={"agent_id": "cook"}))


def signatures(memory_class: type) -> Json:
    """Return the parameters of each method, and whether it is a coroutine."""
    found: Json = {}
    for name in METHODS:
        method = getattr(memory_class, name, None)
        if method is not None:
            parameters = inspect.signature(method).parameters.values()
            named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
            found[name] = {
                "parameters": [parameter for parameter in named if parameter != "self"],
                "others": any(p.kind is p.VAR_KEYWORD for p in parameters),
                "coroutine": inspect.iscoroutinefunction(method),
            }
    return found


async def answers(memory: Any) -> Json:
    """Return the shape of the answer to each call."""
    shapes: Json = {}
    keys: Json = {}
    for name, call in calls():
        try:
            result = call(memory, keys)
            if inspect.isawaitable(result):
                result = await result
        except Exception as error:  # errors are answers, and mem0's have no common base
            kind = "ValueError" if isinstance(error, ValueError) else type(error).__name__
            shapes[name] = {"raises": kind}
            continue
        if name == "add a text":
            keys["id"] = result["results"][0]["id"]
        shapes[name] = shape_of(result)
    return shapes


def shape_of(value: Any) -> Any:
    """Return the names and types of a JSON value; lists have the shape of all their items."""
    if isinstance(value, Literal):
        return {"texts": list(value)}
    if isinstance(value, dict):
        return {str(name): shape_of(item) for name, item in sorted(value.items())}
    if isinstance(value, list | tuple):
        merged: Any = None
        for item in value:
            merged = shape_of(item) if merged is None else _merge(merged, shape_of(item))
        return [] if merged is None else [merged]
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "number", float: "number", str: "text"}
    return kinds.get(type(value), type(value).__name__)


def _merge(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({*one, *other})
        return {n: _merge(one.get(n, "null"), other.get(n, "null")) for n in names}
    if isinstance(one, str) and isinstance(other, str):
        return "|".join(sorted({*one.split("|"), *other.split("|")}))
    if isinstance(one, list) and isinstance(other, list):
        return [_merge(one[0], other[0])] if one and other else one or other
    return one if other == "null" else other if one == "null" else f"{one} or {other}"


def compare_shapes(path: str, expected: Any, actual: Any) -> Iterator[str]:
    """Yield what of mem0's answer another lacks; more fields are no difference."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if "raises" in expected or "raises" in actual or "texts" in expected:
            # Some of mem0's errors are no ValueError; ours all are.
            if expected != actual and not {"raises"} == expected.keys() == actual.keys():
                yield f"{path}: {json.dumps(expected)} and not {json.dumps(actual)}"
            return
        for name, item in expected.items():
            if name not in actual:
                yield f"{path}.{name} is missing"
            else:
                yield from compare_shapes(f"{path}.{name}", item, actual[name])
    elif isinstance(expected, list) and isinstance(actual, list):
        if expected and actual:
            yield from compare_shapes(f"{path}[]", expected[0], actual[0])
        elif expected:
            yield f"{path} is empty"
    elif "null" not in (expected, actual) and _kinds(expected).isdisjoint(_kinds(actual)):
        yield f"{path}: {json.dumps(expected)} and not {json.dumps(actual)}"


def _kinds(shape: Any) -> set[str]:
    return set(shape.split("|")) if isinstance(shape, str) else {type(shape).__name__}


def compare_signatures(name: str, expected: Json, actual: Json) -> Iterator[str]:
    """Yield the methods and parameters of mem0 that a class does not take."""
    for method, signature in expected.items():
        path = f"{name}.{method}"
        if method not in actual:
            yield f"{path} is missing"
            continue
        own = actual[method]
        for parameter in signature["parameters"]:
            names = {"config_dict": "config"}  # always passed by position
            if names.get(parameter, parameter) not in own["parameters"] and not own["others"]:
                yield f"{path} does not take {parameter}"
        if signature["coroutine"] != own["coroutine"]:
            yield f"{path} is {'' if own['coroutine'] else 'not '}a coroutine"


def compare(expected: Json, actual: Json) -> list[str]:
    """Return all differences between two records."""
    differences: list[str] = []
    for name in ("Memory", "AsyncMemory"):
        mem0, own = expected[name], actual[name]
        differences += compare_signatures(name, mem0["signatures"], own["signatures"])
        for call, shape in mem0["answers"].items():
            found = [d.lstrip(".") for d in compare_shapes("", shape, own["answers"][call])]
            differences += [f"{call}: {d.removeprefix(': ')}" for d in found]
    return list(dict.fromkeys(differences))


def unexpected(differences: Sequence[str]) -> list[str]:
    """Return the differences without a reason, and the reasons without a difference."""
    without = [d for d in differences if not any(d.startswith(known) for known in DIFFERENCES)]
    stale = [f"{known} no longer differs" for known in DIFFERENCES
             if not any(d.startswith(known) for d in differences)]  # fmt: skip
    return without + stale


class _Hashes:
    """An embedder for mem0 that needs no model."""

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        digest = hashlib.sha256(text.encode()).digest()
        return [byte / 255 for byte in digest[:_DIMENSIONS]]

    def embed_batch(self, texts: Sequence[str], memory_action: str = "add") -> list[list[float]]:
        return [self.embed(text) for text in texts]


class _Script:
    """A model for mem0 that extracts one fact, or describes one procedure."""

    def generate_response(self, messages: Any, **options: Any) -> str:
        if "response_format" in options:
            return json.dumps({"memory": [{"id": "0", "text": "User lives in Paris"}]})
        return "First tea, then breakfast."


def open_mem0(memory_class: Any, folder: Path) -> Any:
    """Open a class of mem0 in a folder, without a model."""
    unreachable = {"api_key": "none", "openai_base_url": "http://127.0.0.1:9"}
    store = {"path": str(folder / "qdrant"), "embedding_model_dims": _DIMENSIONS, "on_disk": True}
    memory = memory_class.from_config(
        {
            "llm": {"provider": "openai", "config": unreachable},
            "embedder": {"provider": "openai", "config": unreachable},
            "vector_store": {"provider": "qdrant", "config": store},
            "history_db_path": str(folder / "history.db"),
        }
    )
    memory.embedding_model, memory.llm = _Hashes(), _Script()
    return memory


def open_memrecall(memory_class: Any, folder: Path) -> Any:
    """Open a class of memrecall in a folder; an extractor stands in for a model."""
    settings = Settings(db=str(folder / "memrecall.db"), embedder="hash", snapshots=False)
    return memory_class(settings=settings, extractor=SentenceExtractor())


async def record(classes: Sequence[Any], open_memory: Callable[[Any, Path], Any]) -> Json:
    """Return the signatures and answers of a synchronous and an asynchronous class."""
    records: Json = {}
    for memory_class in classes:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            memory = open_memory(memory_class, Path(folder))
            shapes = await answers(memory)
            closing = memory.close()
            if inspect.isawaitable(closing):
                await closing
        name = memory_class.__name__
        records[name] = {"signatures": signatures(memory_class), "answers": shapes}
    return records


async def record_memrecall() -> Json:
    """Return the record of memrecall's classes."""
    return await record((Memory, AsyncMemory), open_memrecall)


def record_mem0() -> Json:
    """Return the record of mem0's classes; no connection leaves the machine."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=folder)
        import mem0

        found = asyncio.run(record((mem0.Memory, mem0.AsyncMemory), open_mem0))
    return {"version": version("mem0ai"), **found}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(
        json.dumps(record_mem0(), indent=1, ensure_ascii=False) + "\n", "utf-8"
    )
