"""Extraction of stored messages: after an import, or after a time without a model."""

import asyncio
import json
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.extraction.protocol import Extracted, Utterance
from memrecall.memory import AsyncMemory, Memory
from memrecall.scope import Scope
from memrecall.types import NewMessage, Role
from tests.extractors import SentenceExtractor
from tests.model.openai_server import Reply, serve
from tests.model.openai_server import text as completion
from tests.server.server_process import command_line, make_environment
from tests.waiting import wait_until

from .conftest import make_settings

START = datetime(2026, 1, 1, tzinfo=UTC)
NO_COUNTS = {"messages": 0, "calls": 0, "tokens": 0}


class CountingExtractor(SentenceExtractor):
    """Counts what it is asked to read, and fails, waits or acts before some calls."""

    def __init__(self) -> None:
        self.read: list[list[str]] = []
        self.context: list[list[str]] = []
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def extract(self, utterances: Sequence[Utterance], **options: Any) -> Extracted:
        self.asked.set()
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the model is not there")
        self.read.append([utterance.text for utterance in utterances])
        self.context.append([utterance.text for utterance in options["context"]])
        return await super().extract(utterances, **options)

    @property
    def texts(self) -> list[str]:
        return [text for part in self.read for text in part]


@pytest.fixture
def extractor() -> CountingExtractor:
    return CountingExtractor()


@pytest.fixture
async def memory(location: str, extractor: CountingExtractor) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as opened:
        yield opened


def said(text: str, minute: int, role: Role = Role.USER, **fields: Any) -> NewMessage:
    return NewMessage(content=text, role=role, ts=START + timedelta(minutes=minute), **fields)


async def keep(memory: AsyncMemory, user: str, session: str, *messages: NewMessage) -> None:
    """Store messages as an import does."""
    library = (await memory._open()).library
    await library.add_messages(Scope(user, session_id=session), messages)


async def keep_moves(memory: AsyncMemory, user: str = "ann") -> None:
    await keep(
        memory,
        user,
        "later",
        said("I live in Rome.", 50),
        said("Nice!", 51, Role.ASSISTANT),
    )
    await keep(memory, user, "first", said("I live in Ulm.", 0), said("I like tea.", 1))


async def facts(memory: AsyncMemory, user: str = "ann", **options: Any) -> list[str]:
    page = await memory.get_all(user, **options)
    return sorted(item["memory"] for item in page["results"])


async def test_reads_what_no_model_has_read_in_the_order_of_time(
    memory: AsyncMemory, extractor: CountingExtractor
) -> None:
    await keep_moves(memory)
    dry = await memory.extract_stored("ann", dry_run=True)
    assert (dry["run"], dry["dry_run"], dry["messages"], dry["calls"]) == (None, True, 3, 2)
    assert dry["tokens"] > 100
    assert extractor.read == []

    steps: list[int] = []
    report = await memory.extract_stored("ann", progress=steps.append)
    assert extractor.read == [["I live in Ulm.", "I like tea."], ["I live in Rome.", "Nice!"]]
    assert steps == [2, 1]
    counts = {name: report[name] for name in ("messages", "calls", "tokens")}
    assert counts == {name: dry[name] for name in counts}
    assert (report["read"], report["unread"], report["problems"]) == (3, 0, [])
    assert (report["added"], report["updated"], report["ended"]) == (2, 1, 0)
    assert await facts(memory) == ["User likes tea.", "User lives in Rome."]
    (item,) = (await memory.get_all("ann", session_id="later"))["results"]
    assert item["session_id"] == "later"
    assert item["valid_from"] == "2026-01-01T00:50:00Z"

    again = await memory.extract_stored("ann")
    assert again == {"run": None, "dry_run": False, **NO_COUNTS}
    assert len(extractor.read) == 2


async def test_what_add_has_read_is_not_read_again(
    memory: AsyncMemory, extractor: CountingExtractor
) -> None:
    await memory.add("I live in Rome.", "ann")
    await memory.add("Good morning.", "ann")  # it states nothing
    assert (await memory.extract_stored("ann"))["messages"] == 0
    await memory.add("I like tea.", "ann", infer=False)
    extractor.failures = 1
    assert (await memory.add("I work at Siemens.", "ann"))["problems"]
    report = await memory.extract_stored("ann")
    assert extractor.read[2:] == [["I like tea.", "I work at Siemens."]]
    assert extractor.context[2] == ["I live in Rome.", "Good morning."]
    assert report["read"] == 2


async def test_hidden_expired_and_forgotten_messages_are_never_read(
    memory: AsyncMemory, extractor: CountingExtractor
) -> None:
    await keep(memory, "ann", "s", said("I live in Rome.", 0, message_id="m1"))
    await memory.delete_message("m1", user_id="ann")
    await memory.add("I like tea.", "ann", infer=False, expires_at="2020-01-01T00:00:00Z")
    added = await memory.add("I like jazz.", "ann", infer=False)
    await memory.delete(added["results"][0]["id"], user_id="ann", sources=False)
    assert (await memory.extract_stored("ann"))["messages"] == 0
    await memory.undo("m1", user_id="ann")
    assert (await memory.extract_stored("ann"))["read"] == 1
    assert extractor.texts == ["I live in Rome."]


async def test_since_session_and_user_restrict_what_is_read(
    memory: AsyncMemory, extractor: CountingExtractor
) -> None:
    await keep_moves(memory)
    await keep_moves(memory, "ben")
    since = START + timedelta(minutes=1)
    assert (await memory.extract_stored("ann", since=since, dry_run=True))["messages"] == 2
    await memory.extract_stored("ann", since=since, session_id="first")
    assert extractor.texts == ["I like tea."]
    assert extractor.context == [["I live in Ulm."]]
    assert await facts(memory, "ben") == []
    bound = memory.bind(user_id="ben")
    with pytest.raises(InvalidArgument, match="bound to user_id 'ben'"):
        await bound.extract_stored("ann")
    run = (await bound.extract_stored())["run"]
    with pytest.raises(NotFound, match="there is no extraction"):
        await memory.undo_extraction(run, user_id="ann")


async def test_agents_and_projects_stay_apart(memory: AsyncMemory) -> None:
    scopes = (Scope("ann", "a", "s"), Scope("ann", "b", "t", project="p"))
    library = (await memory._open()).library
    for scope, text in zip(scopes, ("I like tea.", "I live in Ulm."), strict=True):
        await library.add_messages(scope, [said(text, 0)])
    assert (await memory.extract_stored("ann", "a", dry_run=True))["messages"] == 1
    assert (await memory.extract_stored("ann", project="q", dry_run=True))["messages"] == 1
    await memory.extract_stored("ann")
    items = (await memory.get_all("ann"))["results"]
    assert sorted((i["agent_id"], i["session_id"]) for i in items) == [("a", "s"), ("b", "t")]


async def test_session_that_has_ended_is_read(memory: AsyncMemory) -> None:
    await keep(memory, "ann", "s", said("I live in Ulm.", 0))
    await memory.end_session("ann", session_id="s")
    report = await memory.extract_stored("ann")
    assert (report["added"], report["problems"]) == (1, [])


async def test_without_a_model_the_error_says_what_to_set(location: str) -> None:
    async with AsyncMemory(settings=make_settings(location)) as memory:
        await keep_moves(memory)
        with pytest.raises(InvalidArgument, match="Set MEMRECALL_MODEL"):
            await memory.extract_stored("ann")
        assert (await memory.extract_stored("ann", dry_run=True))["messages"] == 3


async def test_messages_of_a_time_without_a_model_are_read(
    location: str, extractor: CountingExtractor
) -> None:
    async with AsyncMemory(settings=make_settings(location)) as memory:
        await memory.add("I live in Rome.", "ann")
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as memory:
        assert (await memory.extract_stored("ann"))["added"] == 1


async def test_failed_calls_leave_their_messages_unread(
    memory: AsyncMemory, extractor: CountingExtractor
) -> None:
    for number in range(6):
        await keep(memory, "ann", f"s{number}", said("I like tea.", number))
    extractor.failures = 2
    report = await memory.extract_stored("ann")
    assert (report["read"], report["unread"]) == (4, 2)
    assert report["problems"] == ["memories: RuntimeError: the model is not there"]
    extractor.failures = 4  # One is left when the run gives up.
    await keep(memory, "ann", "s9", *(said(f"I like {n}.", n) for n in range(9)))
    report = await memory.extract_stored("ann")
    assert (report["read"], report["unread"], extractor.failures) == (0, 11, 1)


async def test_undo_takes_back_a_run_and_only_that(memory: AsyncMemory) -> None:
    await memory.add("I live in Oslo.", "ann", timestamp=START - timedelta(days=1))
    await memory.add("I like jazz.", "ann", timestamp=START - timedelta(days=1))
    before = await facts(memory)
    await keep(
        memory,
        "ann",
        "s",
        said("I live in Ulm.", 0),
        *(said("so what", 1) for _ in range(45)),
        said("I live in Rome and I like tea.", 2),
        said("Forget where I live.", 3),
    )
    report = await memory.extract_stored("ann")
    assert (report["calls"], report["read"]) == (2, 48)
    assert await facts(memory) != before
    assert await memory.extractions("ann") == [{"run": report["run"], "messages": 48}]

    undone = await memory.undo_extraction(report["run"], user_id="ann")
    assert undone["messages"] == 48
    assert await facts(memory) == before
    assert await memory.extractions("ann") == []
    (oslo,) = (i for i in (await memory.get_all("ann"))["results"] if "Oslo" in i["memory"])
    assert (oslo["superseded_by"], oslo["valid_to"]) == (None, None)
    graph = (await memory.graph("user", "ann"))["relations"]
    assert [r["destination"] for r in graph if r["valid_to"] is None] == ["Oslo", "jazz"]
    with pytest.raises(NotFound):
        await memory.undo_extraction(report["run"], user_id="ann")

    again = await memory.extract_stored("ann")
    assert (again["read"], again["added"] + again["updated"]) == (
        48,
        report["added"] + report["updated"],
    )
    assert again["run"] != report["run"]


async def test_undo_keeps_what_came_later(memory: AsyncMemory) -> None:
    await memory.add("I live in Oslo.", "ann", timestamp=START)
    await keep(memory, "ann", "s", said("I live in Ulm.", 1))
    run = (await memory.extract_stored("ann"))["run"]
    await memory.add("I live in Rome.", "ann", timestamp=START + timedelta(minutes=2))
    await memory.undo_extraction(run, user_id="ann")
    assert await facts(memory) == ["User lives in Rome."]
    (rome,) = (await memory.get_all("ann"))["results"]
    history = await memory.history(rome["id"])
    oslo = await memory.get(str(rome["supersedes"]), user_id="ann")
    assert oslo is not None
    assert (oslo["memory"], oslo["superseded_by"]) == ("User lives in Oslo.", rome["id"])
    assert not any("Ulm" in str(step["new_memory"]) for step in history if not step["undone"])


async def test_undo_of_what_was_said_earlier_keeps_the_later(memory: AsyncMemory) -> None:
    await memory.add("I live in Rome.", "ann", timestamp=START + timedelta(days=1))
    await keep(memory, "ann", "s", said("I live in Ulm.", 1))
    run = (await memory.extract_stored("ann"))["run"]
    assert await facts(memory, superseded=True) == ["User lives in Rome.", "User lives in Ulm."]
    await memory.undo_extraction(run, user_id="ann")
    (rome,) = (await memory.get_all("ann", superseded=True))["results"]
    assert (rome["memory"], rome["supersedes"]) == ("User lives in Rome.", None)


async def test_large_run_is_undone_in_several_transactions(
    memory: AsyncMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.store.memories.changes._TAKEN_BACK", 2)
    await keep(memory, "ann", "s", *(said(f"I live in {n}.", i) for i, n in enumerate("ABCDE")))
    await keep(memory, "ann", "s", *(said(f"I like {n}.", 9) for n in "ABCDE"))
    run = (await memory.extract_stored("ann"))["run"]
    assert len(await facts(memory)) > 5
    assert (await memory.undo_extraction(run, user_id="ann"))["messages"] == 10
    assert await facts(memory, superseded=True) == []


async def test_job_shows_progress_and_one_user_does_not_block_others(
    memory: AsyncMemory, extractor: CountingExtractor
) -> None:
    await keep_moves(memory)
    extractor.gate.clear()
    started = await memory.extract_stored("ann", background=True)
    assert (started["state"], started["messages"]) == ("running", 3)
    ann = memory.bind(user_id="ann")
    await extractor.asked.wait()
    job = await ann.job(started["job_id"])
    assert (job["kind"], job["state"], job["read"], job["messages"]) == (
        "extraction",
        "running",
        0,
        3,
    )
    with pytest.raises(Conflict, match="running already"):
        await memory.extract_stored("ann", background=True)
    with pytest.raises(NotFound):
        await memory.bind(user_id="ben").job(started["job_id"])
    await memory.add("I like tea.", "ben", infer=False)
    extractor.gate.set()
    job = await ann.job(started["job_id"], wait=True)
    assert (job["state"], job["result"]["read"], job["read"]) == ("done", 3, 3)
    assert await ann.jobs() == [job]


async def test_run_that_was_stopped_is_continued_under_its_id(
    location: str, extractor: CountingExtractor
) -> None:
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as memory:
        await keep_moves(memory)
        extractor.gate.clear()
        run = (await memory.extract_stored("ann", background=True))["run"]
        await extractor.asked.wait()
    assert extractor.read == []
    extractor.gate.set()
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as memory:
        assert (await memory.jobs("ann"))[0]["state"] == "waiting"
        report = await memory.extract_stored("ann")
        assert (report["run"], report["read"]) == (run, 3)
        assert (await memory.extract_stored("ann"))["messages"] == 0


async def test_service_continues_what_it_left(location: str, extractor: CountingExtractor) -> None:
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as memory:
        await keep_moves(memory)
        extractor.gate.clear()
        run = (await memory.extract_stored("ann", background=True))["run"]
        await extractor.asked.wait()
    extractor.gate.set()
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as memory:
        await memory.resume()
        ann = memory.bind(user_id="ann")

        async def is_done() -> bool:
            return bool((await ann.job(run))["state"] == "done")

        await wait_until(is_done)
        assert (await ann.job(run))["result"]["read"] == 3


async def test_message_that_changes_meanwhile_gives_nothing(
    memory: AsyncMemory, extractor: CountingExtractor
) -> None:
    await keep(
        memory, "ann", "s", said("I live in Ulm.", 0, message_id="m1"), said("I like tea.", 1)
    )
    extractor.gate.clear()
    started = await memory.extract_stored("ann", background=True)
    await extractor.asked.wait()
    await memory.delete_message("m1", user_id="ann")
    extractor.gate.set()
    job = await memory.bind(user_id="ann").job(started["job_id"], wait=True)
    assert job["result"]["problems"] == []
    assert extractor.read[-1] == ["I like tea."]
    assert await facts(memory) == ["User likes tea."]


async def test_erasing_a_user_ends_their_run_alone(
    memory: AsyncMemory, extractor: CountingExtractor
) -> None:
    await keep_moves(memory)
    await keep_moves(memory, "ben")
    extractor.gate.clear()
    await memory.extract_stored("ann", background=True)
    bens = await memory.extract_stored("ben", background=True)
    await extractor.asked.wait()
    async with asyncio.timeout(60):
        await memory.erase("ann")
    extractor.gate.set()
    job = await memory.bind(user_id="ben").job(bens["job_id"], wait=True)
    assert job["result"]["read"] == 3
    assert await facts(memory, "ann") == []


async def test_member_reads_their_own_messages_of_a_space(
    location: str, extractor: CountingExtractor
) -> None:
    async with AsyncMemory(settings=make_settings(location)) as memory:
        ann, ben = memory.bind(user_id="ann"), memory.bind(user_id="ben")
        await ann.create_space("team")
        await ann.space("team").set_member("ben", "contributor")
        await ann.space("team").add("I like tea.", session_id="s")
        await ben.space("team").add("I like jazz.", session_id="s")
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as memory:
        ben = memory.bind(user_id="ben")
        report = await ben.space("team").extract_stored()
        assert extractor.read == [["I like jazz."]]
        assert extractor.context == [["I like tea."]]
        (item,) = (await ben.space("team").get_all())["results"]
        assert (item["memory"], item["author"]) == ("ben likes jazz.", "ben")
        with pytest.raises(NotFound):
            await memory.bind(user_id="ann").space("team").undo_extraction(report["run"])
        assert (await ben.space("team").undo_extraction(report["run"]))["messages"] == 1
        assert (await ben.space("team").get_all())["results"] == []


async def test_export_keeps_what_was_read(
    memory: AsyncMemory, extractor: CountingExtractor
) -> None:
    await keep_moves(memory)
    await memory.extract_stored("ann", session_id="first")
    lines = [line async for line in memory.export("ann")]
    await memory.import_(lines, "zoe")
    assert (await memory.extract_stored("zoe", dry_run=True))["messages"] == 1


def test_blocking_memory_has_the_same(location: str) -> None:
    with Memory(settings=make_settings(location), extractor=SentenceExtractor()) as memory:
        memory.add("I like tea.", "ann", infer=False)
        run = memory.extract_stored("ann")["run"]
        assert memory.extractions("ann") == [{"run": run, "messages": 1}]
        assert memory.undo_extraction(run, user_id="ann")["memories"] == 1


def answer_facts(request: dict[str, Any]) -> Reply:
    """Return what people like as facts of a model."""
    lines = [json.loads(line) for line in request["messages"][-1]["content"].split("\n")]
    said = [line for line in lines if line.get("role") == "user"]
    facts = [{"text": f"User says: {line['text']}", "sources": [line["id"]]} for line in said]
    return completion(json.dumps({"facts": facts}))


@pytest.mark.concurrent
async def test_run_that_was_killed_is_continued_and_undone_as_a_whole(
    location: str, tmp_path: Path
) -> None:
    async with AsyncMemory(settings=make_settings(location)) as memory:
        for number in range(5):
            await keep(memory, "ann", f"s{number}", said(f"I like {number}.", number))
    command = command_line("extract", "--user", "ann", "--db", location, "--yes", "--json")
    with serve() as server:
        model = {"MEMRECALL_MODEL": "deepseek-chat", "MEMRECALL_BASE_URL": server.url}
        environment = make_environment(tmp_path, **model, MEMRECALL_API_KEY="k")
        calls = count(1)

        def stop_at_third(request: dict[str, Any]) -> Reply:
            return replace(answer_facts(request), seconds=60.0 * (next(calls) >= 3))

        server.answer = stop_at_third
        start = partial(create_subprocess_exec, *command, env=environment, stdout=PIPE)
        process = await start()
        await wait_until(lambda: len(server.requests) == 3)
        process.kill()
        await process.wait()
        server.answer = answer_facts
        process = await start()
        out, _ = await process.communicate()
    assert process.returncode == 0
    report = json.loads(out)
    assert (report["read"], report["unread"], report["added"]) == (3, 0, 3)
    async with AsyncMemory(settings=make_settings(location)) as memory:
        assert await facts(memory) == [f"User says: I like {n}." for n in range(5)]
        assert await memory.extractions("ann") == [{"run": report["run"], "messages": 5}]
        undone = await memory.undo_extraction(report["run"], user_id="ann")
        assert (undone["memories"], undone["messages"]) == (5, 5)
        assert await facts(memory) == []
