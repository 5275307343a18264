"""The HTTP API has every verb of the Memory class, with its parameters."""

import inspect
from typing import Any

from memrecall.memory import AsyncMemory, Memory

from .http_service import HttpService

OPERATIONS = {
    "add": "add_memories",
    "write": "add_memories",
    "get": "get_memory",
    "get_all": "list_memories",
    "search": "search_memories",
    "retrieve": "search_memories",
    "update": "update_memory",
    "history": "read_history",
    "delete": "delete_memory",
    "forget": "delete_memory",
    "undo": "undo_memory",
    "purge": "purge_memory",
    "delete_all": "delete_memories",
    "delete_message": "delete_message",
    "job": "read_job",
    "jobs": "list_jobs",
    "sweep": "sweep_memories",
    "export": "export_user",
    "import_": "import_user",
    "erase": "erase_user",
    "erase_project": "erase_user",
    "recall": "recall_memories",
    "graph": "read_graph",
    "extract": "extract_relations",
    "long_term": "read_profile",  # experience is a memory type, knowledge has JSON-RPC tools
    "state": "read_state",
    "summarize": "summarize_session",
    "end_session": "end_session",
    "create_space": "create_space",
    "spaces": "list_spaces",
    "space_info": "read_space",
    "delete_space": "delete_space",
    "members": "list_members",
    "grants": "list_members",
    "set_member": "set_member",
    "remove_member": "remove_member",
    "leave": "remove_member",
    "promote": "promote_memory",
    "demote": "demote_memory",
    "audit": "read_space_audit",
    "who_can_see": "list_viewers",
    "why_seen": "explain_access",
}
WITHOUT_OPERATION = {
    "bind_scope": "the key of a request binds the user",
    "space": "the owner of a request: space: and its id",
    "enter": "every request in a space enters it",
    "bind": "the key of a request binds the user",
    "close": "the operator stops the service",
    "from_config": "a constructor",
    "async_memory": "the same memory for asyncio",
    "run": "calls a coroutine of Python",
    "wait": "calls a coroutine of Python",
    "register": "takes a Python function",
    "process": "runs a registered Python function",
    "tools": "returns objects of AutoGen",
    "recaller": "returns an object of Python",
    "resume": "the operator starts the service",
    "running_jobs": "a limit of the service, which it enforces itself",
    "schedule_sweeps": "the settings of the service",
    "reset": "erases all users: the operator's, `memrecall users erase`",
    "short_term": "lives in a process, and a client may talk to several",
    "checkpoint": "of the short-term memory of a process",
    "restore": "of the short-term memory of a process",
    "user_id": "the key",
    "agent_id": "the key",
    "session_id": "the request",
    "project": "the request",
}
WITHOUT_PARAMETER = {
    "get_all": {"messages": "messages have endpoints of their own"},
    "job": {"wait": "a client asks again"},
    "sweep": {
        "policy": "its fields are those of the request",
        "all_users": "the settings of the service sweep all users",
        "now": "the clock of the service counts",
    },
    "import_": {"lines": "the body"},
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
