"""The HTTP API has every verb of the Memory class, with its parameters."""

import inspect
from typing import Any

from memrecall.memory import AsyncMemory, Memory

from ..cases import read_rows
from .http_service import HttpService

OPERATIONS: dict[str, str] = dict(read_rows("names", "operations"))
WITHOUT_OPERATION: dict[str, str] = dict(read_rows("names", "without operation"))
WITHOUT_PARAMETER = {
    "job": {"wait": "a client asks again"},
    "extract_stored": {
        "background": "it is a job",
        "confirm": "a client sends a dry run first",
        "progress": "that of the job",
    },
    "sweep": {
        "policy": "its fields are those of the request",
        "all_users": "the settings of the service sweep all users",
        "now": "the clock of the service counts",
    },
    "import_": {"lines": "the body", "invite": "all but operators do"},
    "set_member": {"invite": "all but operators do"},
    "recall": {
        "options": "limits, language and block are fields",
        "observer": "a stream of events",
        "clock": "a Python function; `as_of` is a field",
        "agent_id": "the key's",
    },
    "why_seen": {"key": "the path calls it memory_id"},
    "update": {"fields": "the other fields of the request"},
}


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def schema_names(document: dict[str, Any], operation: dict[str, Any]) -> set[str]:
    """Return the parameters of an operation, and the fields of its JSON body."""
    names = {parameter["name"] for parameter in operation.get("parameters", [])}
    media = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if media:
        schema = document["components"]["schemas"][media["schema"]["$ref"].rpartition("/")[2]]
        names |= schema["properties"].keys()
    return names


async def operations(service: HttpService) -> tuple[dict[str, Any], dict[str, Any]]:
    document = (await service.client().get("/openapi.json")).json()
    return document, {
        operation["operationId"]: operation
        for item in document["paths"].values()
        for operation in item.values()
    }


async def test_every_verb_of_memory_has_an_operation(sqlite_service: HttpService) -> None:
    _, known = await operations(sqlite_service)
    names = public_names(AsyncMemory) | public_names(Memory)
    assert names == OPERATIONS.keys() | WITHOUT_OPERATION.keys()
    assert not OPERATIONS.keys() & WITHOUT_OPERATION.keys()
    assert set(OPERATIONS.values()) <= known.keys()


async def test_every_parameter_of_a_verb_is_in_its_operation(sqlite_service: HttpService) -> None:
    document, known = await operations(sqlite_service)
    missing = {}
    for verb, name in OPERATIONS.items():
        method = getattr(AsyncMemory, verb, None) or getattr(Memory, verb)
        parameters = inspect.signature(method).parameters.keys() - {"self"}
        absent = parameters - schema_names(document, known[name])
        reasons = WITHOUT_PARAMETER.get(verb, {})
        assert reasons.keys() <= absent, f"{verb} has {reasons.keys() - absent} by now"
        if absent - reasons.keys():
            missing[verb] = sorted(absent - reasons.keys())
    assert missing == {}
