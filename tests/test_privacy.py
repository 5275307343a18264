"""One privacy policy on every way in: nothing that is redacted is stored, whoever writes it."""

import json
from pathlib import Path
from typing import Any

import pytest

from memrecall.chat import SingleChat
from memrecall.errors import Conflict
from memrecall.importers.records import ReadOptions
from memrecall.integrations.hooks.bindings import read_binding
from memrecall.integrations.hooks.events import read_event
from memrecall.memory import AsyncMemory, Importer, Library
from memrecall.scope import Permission, Scope
from memrecall.server.http.hooks import store_event
from memrecall.server.mcp.server import make_context
from memrecall.settings import Settings
from memrecall.store import NewKnowledge, Store
from memrecall.store.database.engine import Database
from memrecall.testing import ScriptedClient, say
from memrecall.types import NewMemory, NewMessage, Origin, Role
from tests.hooks.hook_process import bind
from tests.hooks.payloads import samples
from tests.rpc.test_http import call_method
from tests.rpc.test_remember import call
from tests.server.http_service import serve_in_process
from tests.store.samples import read_tables

ANN = Scope("ann")
SECRET = "ghp_" + "a1" * 20
TEXT = f"My token is {SECRET}; my email is ann@example.com"
STORED = "My token is [redacted: token]; my email is ann@example.com"
LABELS = {"redacted": ["token"], "tagged": ["e-mail"]}


def message(content: str = TEXT, message_id: str = "m1") -> NewMessage:
    return NewMessage(content=content, role=Role.USER, message_id=message_id)


async def dump(database: Database) -> str:
    """Return everything that is stored, as text."""
    return json.dumps(await read_tables(database), default=str, ensure_ascii=False)


async def require_protected(library: Library, user: str = "ann") -> None:
    everything = await dump(library.store.database)
    assert SECRET not in everything
    assert "[redacted: token]" in everything
    for stored in (await library.store.timeline(Scope(user)).page()).items:
        if "[redacted" in stored.content:
            assert stored.metadata["sensitive_data"]["redacted"] == ["token"]


async def test_message_is_stored_and_compared_redacted(store: Store) -> None:
    timeline = store.timeline(ANN)
    first = await timeline.add([message()])
    again = await timeline.add([message(), message(STORED)])
    assert (*first.statuses, *again.statuses) == ("new", "same", "same")
    assert first.redacted == (("token",),)
    stored = await timeline.get("m1")
    assert (stored.content, stored.metadata) == (STORED, {"sensitive_data": LABELS})
    with pytest.raises(Conflict):
        await timeline.add([message("another text")])


async def test_memory_and_its_changes_are_stored_redacted(store: Store) -> None:
    memories = store.memories(ANN)
    new = NewMemory(memory_key="k", content=TEXT, summary=SECRET, speaker=SECRET)
    for status in ("new", "same"):
        assert (await memories.add([new], origin=Origin.USER)).statuses == (status,)
    await store.changes(ANN).update("k", {"content": f"new: {TEXT}"}, actor="x", reason=SECRET)
    record = await memories.get("k")
    assert (record.content, record.metadata["sensitive_data"]) == (f"new: {STORED}", LABELS)
    assert SECRET not in await dump(store.database)


@pytest.mark.parametrize(
    ("privacy", "kept"), [("off", {}), ("tag", {"tagged": ["token", "e-mail"]})]
)
async def test_other_policies_keep_the_text(location: str, privacy: str, kept: Any) -> None:
    async with await Store.open(location, privacy=privacy) as store:
        assert (await store.timeline(ANN).add([message()])).redacted == ((),)
        stored = await store.timeline(ANN).get("m1")
    assert (stored.content, stored.metadata.get("sensitive_data", {})) == (TEXT, kept)


async def test_python_gives_a_model_contacts_but_no_secrets(library: Library) -> None:
    fact = {"text": f"Ann's email is ann@example.com, her token {SECRET}.", "sources": [1]}
    model = ScriptedClient([say(json.dumps({"facts": [fact]}))])
    with_model = AsyncMemory(library=library, user_id="ann", llm=model)
    result = await with_model.add([{"role": "user", "content": TEXT, "message_id": "m1"}])
    assert (result["redacted"], result["problems"]) == ([["token"]], [])
    assert STORED in str(model.requests[0].messages)
    (stored,) = (await with_model.get_all())["results"]
    assert stored["memory"] == "Ann's email is ann@example.com, her token [redacted: token]."
    memory = AsyncMemory(library=library, user_id="ann")
    (note,) = (await memory.add(f"Remember: {TEXT}"))["results"]
    assert note["memory"] == STORED
    await memory.add(TEXT, infer=False, metadata={"note": SECRET})
    await memory.recall(f"What is {SECRET}?", session_id="s")
    await library.store.session_state(ANN).save({"note": SECRET})
    await require_protected(library)


async def test_http_says_what_was_redacted(sqlite_library: Library) -> None:
    async with serve_in_process(sqlite_library) as service:
        client = service.client()
        body = {"messages": [{"role": "user", "content": TEXT, "message_id": "m1"}]}
        for status in ("new", "same"):
            answer = (await client.post("/v1/users/ann/messages", json=body)).json()
            assert (answer["items"][0]["status"], answer["items"][0]["redacted"]) == (
                status,
                ["token"],
            )
        added = await client.post("/v1/memories", json={"messages": TEXT, "user_id": "ann"})
        assert added.json()["redacted"] == [["token"]]
    await require_protected(sqlite_library)


async def test_chat_stores_question_and_answer_redacted(sqlite_library: Library) -> None:
    chat = SingleChat(sqlite_library, ANN, ScriptedClient([say(f"Your token is {SECRET}")]))
    await chat.answer(TEXT, message_id="m1")
    stored = (await sqlite_library.store.timeline(ANN).page()).items
    assert [each.metadata["sensitive_data"]["redacted"] for each in stored] == [
        ["token"],
        ["token"],
    ]
    await require_protected(sqlite_library)


async def test_json_rpc_and_mcp_store_redacted(sqlite_library: Library) -> None:
    library = sqlite_library
    async with serve_in_process(library) as service:
        client = await service.client_with_key("ann", permissions=frozenset(Permission))
        entry = (await call_method(client, "memory_add", [TEXT, SECRET]))["result"]
        updated = await call_method(client, "memory_update", [entry["id"], f"2 {TEXT}"])
        dumped = (await call_method(client, "memory_dump", ["kb"]))["result"]["data"]
        plain = (await call_method(client, "memory_add", ["tea", "tea"]))["result"]
    assert entry["redacted"] == updated["result"]["redacted"] == ["token"]
    assert dumped[entry["id"]]["sensitive_data"] == LABELS
    assert plain.keys() == {"id", "summary"}
    context = make_context(library, ANN)
    remembered = await call(context, "remember", content=TEXT)
    assert remembered["redacted"] == ["token"]
    assert (await call(context, "remember", content=TEXT))["redacted"] == ["token"]
    fact = await call(context, "remember", content="I like tea")
    assert "redacted" not in fact
    corrected = await call(context, "correct", memory_key=fact["memory_key"], text=f"Not {TEXT}")
    assert corrected["redacted"] == ["token"]
    record = await library.store.memories(ANN).get(remembered["memory_key"])
    assert (record.content, record.metadata["sensitive_data"]) == (STORED, LABELS)
    known = await library.store.knowledge(ANN).get(entry["id"])
    assert (known.content, known.metadata["sensitive_data"]) == (f"2 {STORED}", LABELS)
    await require_protected(library)


async def test_importers_store_redacted(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    line = {"user_id": "ann", "message_id": "m1", "role": "user", "content": TEXT}
    file.write_text(json.dumps(line))
    report = await Importer(library, ReadOptions(user="ann")).run(file)
    assert report.redacted == {"token": 1}
    records = [json.loads(json.dumps(row)) async for row in library.export_user("ann")]
    text = json.dumps(records).replace("[redacted: token]", SECRET)
    assert SECRET in text
    assert (await library.import_user("ben", json.loads(text))).redacted == {"token": 1}
    await require_protected(library)
    await require_protected(library, "ben")


async def test_hooks_store_redacted(library: Library, tmp_path: Path) -> None:
    binding = read_binding(str(bind(tmp_path).path))
    sample = next(each for each in samples(TEXT, "") if each.client == binding.client)
    event = read_event(binding, sample.event, json.dumps(sample.payload).encode())
    assert event is not None
    assert await store_event(library, ANN, event) == 1
    await require_protected(library)


async def test_scan_reports_and_redacts_what_is_stored(
    library_settings: Settings, location: str
) -> None:
    async with await Store.open(location, privacy="off") as store:
        await store.timeline(ANN).add([message(), message("no secrets here", "m2")])
        new = NewMemory(memory_key="k", content=TEXT, metadata={"a": SECRET})
        await store.memories(ANN).add([new], origin=Origin.USER)
        await store.changes(ANN).update("k", {"content": f"2 {TEXT}"}, actor="x", reason=TEXT)
        await store.session_state(ANN).save({"text": TEXT})
        everyone = Scope("x", permissions=frozenset(Permission))
        await store.knowledge(everyone).add(NewKnowledge(TEXT, key="kb-1"))
    async with await Library.open(library_settings) as library:
        database, steps = library.store.database, list[int]()
        memory = AsyncMemory(library=library, user_id="ann")
        await library.vectors.embed_all(lambda _: None)
        assert (await memory.search(SECRET))["results"]
        before = await dump(database)
        report = await library.scan(steps.append)
        assert await dump(database) == before
        assert sum(steps) == report["rows"]
        assert SECRET not in str(report)
        assert report["agents"] == {"default": {"token": 1, "e-mail": 1}}
        assert [*report["users"]] == ["ann"]
        assert report["kinds"]["token"] == report["users"]["ann"]["token"] + 1
        assert (report["tables"]["messages"], report["tables"]["memories"]) == (1, 1)
        assert sum(report["tables"].values()) == report["changed"]
        applied = await library.scan(steps.append, apply=True)
        assert (applied["kinds"], applied["changed"]) == (report["kinds"], report["changed"])
        await require_protected(library)
        tables = await read_tables(database, "vectors", "audit_log", "revisions")
        assert [row["key"] for row in tables["vectors"]] == ["m2"]
        assert {row["action"] for row in tables["audit_log"]} == {"update", "scan"}
        assert [row["new_text"] for row in tables["revisions"]] == [f"2 {STORED}"]
        assert not any(SECRET in str(item) for item in (await memory.search(SECRET))["results"])
        assert (await memory.search("redacted token"))["results"][0]["id"] in ("m1", "k")
        assert (await library.add_messages(ANN, [message()])).statuses == ("same",)
        assert (await library.scan(apply=True))["changed"] == 0


async def test_reads_by_an_admin_are_in_the_audit_log(sqlite_library: Library) -> None:
    await sqlite_library.add_messages(ANN, [message("hello")])
    async with serve_in_process(sqlite_library) as service:
        admin = await service.client_with_key(permissions=frozenset({Permission.OPERATOR}))
        # A back end reads for its users: that leaves no line.
        others = [await service.client_with_key(*names) for names in ((), ("ann", "ben"), ("ann",))]
        search = {"user_id": "ann", "query_text": "hello"}
        for client in (admin, *others):
            assert (await client.get("/v1/users/ann/messages")).status_code == 200
            await client.post("/v1/messages/lexical_search", json=search)
            await client.post("/v1/memories/search", json={"user_id": "ann", "query": "hello"})
            await client.post("/v1/users/ann/recall", json={"query": "hello"})
            await client.get("/v1/users/ann/messages/unknown")
        body = {"messages": [{"role": "user", "content": "x"}]}
        await admin.post("/v1/users/ann/messages", json=body)
    key = (await sqlite_library.store.keys.list()).items[0].key_id
    entries = (await sqlite_library.store.audit(ANN).page(limit=20)).items
    targets = ["messages", "lexical_search", "search", "recall"]
    assert [(e.action, e.actor, e.target) for e in reversed(entries)] == [
        ("read", f"key {key}", target) for target in targets
    ]
