"""The sample data: what it stores, and that the chats say so."""

import json
from pathlib import Path
from typing import Any

import pytest

from memrecall.dashboard.sample import SAMPLE_CASSETTE, add_sample_chats, load_sample
from memrecall.model.cassette import read_cassette
from memrecall.model.prompts import load_prompt
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import MemoryQuery, StoredRelation
from memrecall.testing import ScriptedClient, say
from memrecall.types import MemoryRecord
from tests.server.http_service import open_library

from .record_sample import ANSWERS, answer, record

CONTENT: dict[str, Any] = json.loads(SAMPLE_CASSETTE.with_name("sample.json").read_text("utf-8"))
HINT = "run `make cassettes` if the prompt was changed, and compare fixtures/demo/answers.json"
OUTDATED = {
    "林晓用的编辑器是 VS Code。": "林晓从 VS Code 换到了 Neovim。",
    "Maya has been vegetarian since university.": "Maya eats fish again, but no meat.",
    "Fergus Baird, landlord in Marchmont, is not sure about a dog.": (
        "Maya got the Marchmont flat: Fergus Baird said yes to her and to Biscuit."
    ),
    "Maya has to give Mr Pryce two months' notice by the end of April.": (
        "Maya sent Mr Pryce her notice on 18 April 2026, by post and by mail."
    ),
}
ENDED = {
    ("林晓", "uses", "VS Code"),
    ("赵磊", "on_duty_for", "监控"),
    ("Maya", "follows_diet", "vegetarian"),
}


def test_cassette_has_the_current_prompts() -> None:
    header, calls = read_cassette(SAMPLE_CASSETTE)
    assert len(calls) == len(ANSWERS), HINT
    assert header.about == {"now": "2026-04-21T09:00:00Z"}
    prompts = {message["content"] for call in calls for message in call.messages}
    assert {load_prompt("extract", "en"), load_prompt("extract", "zh")} < prompts, HINT


async def test_cassette_is_what_answers_record(tmp_path: Path) -> None:
    assert await record(ScriptedClient([answer] * len(ANSWERS)), tmp_path / "new.jsonl")
    assert (tmp_path / "new.jsonl").read_text("utf-8") == SAMPLE_CASSETTE.read_text("utf-8"), HINT


async def test_sample_is_loaded_once_with_sources_and_history(
    location: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_library(location, tmp_path) as library:
        for _ in range(2):
            assert await load_sample(library) == {"lin", "maya"}
        store = library.store
        memories: list[MemoryRecord] = []
        relations: list[StoredRelation] = []
        for user in ("lin", "maya"):
            scope = Scope(user)
            page = await store.memories(scope).page(MemoryQuery(superseded=True), limit=100)
            memories += page.items
            relations += await store.graph(scope).latest(100)
            changes = (await store.audit(scope).page(limit=10)).items
            assert [(entry.action, entry.actor) for entry in changes] == [("update", "sample")]
            recalls = (await store.traces(scope).page()).items
            assert {recall.query for recall in recalls} == set(CONTENT["requests"][user])
        entries = await store.knowledge(Scope("lin", DEFAULT_NAME)).page()
    assert "incomplete" not in caplog.text, HINT
    written = [fact for each in ANSWERS.values() for fact in each["facts"]]
    stored = {m.content: (set(m.source_message_ids), m.memory_type) for m in memories}
    assert stored == {fact["text"]: (set(fact["sources"]), fact["type"]) for fact in written}
    assert len(memories) == len(written)
    assert [m.content for m in memories if not m.checked] == []
    assert {m.content for m in memories if m.pinned} == set(CONTENT["pinned"])
    texts = {m.memory_key: m.content for m in memories}
    assert {m.content: texts[m.superseded_by] for m in memories if m.superseded_by} == OUTDATED
    assert all(m.valid_to is None or m.content in OUTDATED for m in memories)
    stated = {
        (relation["source"], relation["relationship"], relation["destination"])
        for each in ANSWERS.values()
        for relation in each["relations"]
    }
    triples = {(r.source, r.relationship, r.destination) for r in relations}
    assert triples == stated - ENDED
    assert all(relation.source_message_ids for relation in relations)
    assert {entry.knowledge_key for entry in entries} == {e["key"] for e in CONTENT["knowledge"]}


async def test_sample_without_its_cassette_says_so(
    location: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_library(location, tmp_path) as library:
        results = await add_sample_chats(library, ScriptedClient([say("no")] * 44))
        assert not any(result["results"] for result in results)
        assert len(await library.store.timeline(Scope("lin")).get_many(["lin-001"])) == 1
    assert "the sample is incomplete" in caplog.text
