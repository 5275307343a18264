"""Work on long texts leaves the event loop to other requests."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

import memrecall.search.engine
import memrecall.search.messages
import memrecall.workers
from memrecall.errors import CallerError
from memrecall.extraction import ModelExtractor
from memrecall.extraction.protocol import Utterance
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import LexicalQuery, SearchRequest
from memrecall.testing import ScriptedClient, say
from memrecall.types import NewMessage, Role
from memrecall.workers import SMALL_TEXT

NOW = datetime(2026, 3, 1, tzinfo=UTC)
STATEMENT = "I moved to Rome last week and I work as a nurse. "
LONG_TEXT = STATEMENT * (SMALL_TEXT // len(STATEMENT) + 1)
QUERY_WORK = {"parse_query", "find_speakers"}  # in the event loop if the query is short
TEXT_WORK = {"parse_query", "rank", "find_speakers", "Highlighter", "mark_passages"}


class RecordingProcesses:
    """Worker processes that work in this one and remember what they were asked."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def belong_here(self) -> bool:
        return True

    async def run(self, function: Callable[..., Any], *args: Any, is_large: bool = False) -> Any:
        self.names.append(function.__name__)
        return function(*args)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> RecordingProcesses:
    recording = RecordingProcesses()
    monkeypatch.setattr(memrecall.workers, "_processes", recording)
    return recording


async def test_models_facts_of_long_texts_are_checked_in_worker_processes(
    processes: RecordingProcesses,
) -> None:
    answer = say(json.dumps({"facts": ["User moved to Rome."]}))
    extractor = ModelExtractor(ScriptedClient([answer, answer]))
    for text, work in ((STATEMENT, []), (LONG_TEXT, ["_mark"])):
        said = [Utterance("m1", None, Role.USER, text, NOW)]
        extracted = await extractor.extract(said, now=NOW, zone=UTC)
        assert [fact.text for fact in extracted.facts] == ["User moved to Rome."]
        assert processes.names == work


async def test_long_queries_are_searched_outside_the_event_loop(
    sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = Scope("ann", session_id="s")
    content = "We drank green tea in Kyoto."
    message = NewMessage(role=Role.USER, content=content, speaker="Ann")
    await sqlite_library.add_messages(scope, [message])
    in_loop: set[str] = set()
    elsewhere: set[str] = set()
    loop_thread = threading.get_ident()

    def record(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            is_loop = threading.get_ident() == loop_thread
            (in_loop if is_loop else elsewhere).add(function.__name__)
            return function(*args)

        return call

    for module in (memrecall.search.engine, memrecall.search.messages):
        for name in TEXT_WORK & set(vars(module)):
            monkeypatch.setattr(module, name, record(getattr(module, name)))

    async def search(query: str) -> None:
        for request in (SearchRequest(query), SearchRequest(query, syntax="query")):
            with suppress(CallerError):
                await sqlite_library.search(scope, request)
        assert (await sqlite_library.find_messages(scope, LexicalQuery(query))).items

    await search("tea")
    assert (in_loop, elsewhere) == (QUERY_WORK, TEXT_WORK - QUERY_WORK)
    in_loop.clear()
    await search(" OR ".join(["tea"] * SMALL_TEXT))
    assert not in_loop
