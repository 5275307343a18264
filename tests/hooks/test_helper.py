"""The helper: hooks without a service leave one process behind, which answers the next ones."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from memrecall.integrations.hooks import client
from memrecall.integrations.hooks.helper import start_helper
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.server.runner import IDLE_SECONDS, PrivateAccess, ServerInfo, serve
from memrecall.settings import Settings
from memrecall.store import Grant, MessageFilter
from memrecall.types import NewMessage, Role
from tests.conftest import Populate
from tests.hooks.hook_process import Hook, bind
from tests.hooks.payloads import samples
from tests.waiting import LIMIT, wait_until

PROMPT, ANSWER, FACT = "What is my dog called?", "The build is green.", "My dog is called Biscuit"


@pytest.fixture
def populate() -> Populate:
    """Store what ann said in an earlier session."""

    async def add_fact(library: Library) -> None:
        fact = NewMessage(role=Role.USER, content=FACT)
        await library.add_messages(Scope("ann", session_id="earlier"), [fact])

    return add_fact


@pytest.fixture
async def hook(sqlite_library: Library, tmp_path: Path) -> AsyncIterator[Hook]:
    """Hooks of a database without a service; their helper ends with the test."""
    hook = bind(tmp_path, db=sqlite_library.store.location)
    yield hook
    path = str(hook.path)
    if address := client.find_helper(path, client.read_settings(path)):
        assert address["url"].startswith("http://127.0.0.1:")
        os.kill(helper_pid(hook), signal.SIGTERM)
    await wait_until(lambda: not client.is_locked(path))
    assert ".helper" not in os.listdir(hook.path.parent)


def helper_pid(hook: Hook) -> int:
    return int(json.loads(Path(client.helper_path(str(hook.path))).read_bytes())["pid"])


def starts(hook: Hook) -> list[int]:
    """Return the ids of the processes that have served, from their log."""
    log = Path(f"{client.helper_path(str(hook.path))}.log").read_text("utf-8")
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line["pid"] for line in lines if line["event"] == "helper"]


async def contents(library: Library) -> set[str]:
    page = await library.store.timeline(Scope("ann")).page(MessageFilter(), page_size=100)
    return {message.content for message in page.items} - {FACT}


@pytest.mark.service
@pytest.mark.concurrent
async def test_eight_prompts_at_once_leave_one_process(
    hook: Hook, sqlite_library: Library, tmp_path: Path
) -> None:
    prompt, stop = samples(PROMPT, ANSWER, str(tmp_path))[:2]
    payloads = [{**prompt.payload, "session_id": f"s{n}"} for n in range(8)]
    outputs = await asyncio.gather(*(hook.run(prompt.event, each) for each in payloads))
    assert all(FACT in output for output in outputs)
    assert starts(hook) == [helper_pid(hook)]
    assert not start_helper(str(hook.path))
    assert [line["recalled"] for line in hook.receipts] == [1] * 8
    assert [line["model_calls"] for line in hook.receipts] == [0] * 8
    assert await hook.run(stop.event, stop.payload) == ""
    assert await contents(sqlite_library) == {PROMPT, ANSWER}
    assert (hook.log, hook.pending) == ([], [])


@pytest.mark.service
@pytest.mark.concurrent
async def test_answer_starts_helper_that_stores_it_and_killed_one_is_replaced(
    hook: Hook, sqlite_library: Library, tmp_path: Path
) -> None:
    prompt, stop = samples(PROMPT, ANSWER, str(tmp_path))[:2]
    assert await hook.run(stop.event, stop.payload) == ""  # it does not wait for the helper
    await wait_until(lambda: not hook.pending)
    assert await contents(sqlite_library) == {ANSWER}
    first = helper_pid(hook)
    os.kill(first, signal.SIGKILL)
    path = str(hook.path)
    await wait_until(lambda: not client.is_locked(path))
    # Whatever listens at its address now is another program.
    assert client.find_helper(path, client.read_settings(path)) is None
    assert FACT in await hook.run(prompt.event, prompt.payload)
    assert starts(hook) == [first, helper_pid(hook)]
    assert hook.log == []


@pytest.mark.service
async def test_code_in_current_folder_is_never_run(hook: Hook, tmp_path: Path) -> None:
    repository, traces = tmp_path / "repository", tmp_path / "run"
    (repository / "memrecall").mkdir(parents=True)
    code = f"open({str(traces)!r}, 'a').write(__file__)\n"
    for name in ("memrecall/__init__.py", "memrecall/__main__.py", "sitecustomize.py"):
        (repository / name).write_text(code, "utf-8")
    hook = hook._replace(cwd=repository)
    prompt = samples(PROMPT, ANSWER, str(repository))[0]
    # An empty or relative entry of this variable also names the current folder.
    path = os.pathsep.join(["", ".", *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    assert FACT in await hook.run(prompt.event, prompt.payload, PYTHONPATH=path)
    assert not traces.exists()


async def test_helper_that_cannot_start_is_in_the_log(tmp_path: Path) -> None:
    hook = bind(tmp_path, db=str(tmp_path / "no" / "folder" / "chat.db"))
    prompt = samples(PROMPT, "", str(tmp_path))[0]
    assert await hook.run(prompt.event, prompt.payload) == ""
    assert ".helper.log" in hook.log[-1]["problem"]
    assert len(hook.pending) == 1


@pytest.mark.service
@pytest.mark.concurrent
async def test_helper_of_a_deleted_database_ends_and_says_why(tmp_path: Path) -> None:
    db = tmp_path / "chat.db"
    hook = bind(tmp_path, db=str(db))
    prompt = samples(PROMPT, "", str(tmp_path))[0]
    await hook.run(prompt.event, prompt.payload)
    assert client.is_locked(str(hook.path))
    db.unlink()
    await wait_until(lambda: not client.is_locked(str(hook.path)))
    assert hook.log[-1]["problem"] == f"{db} was deleted, so the helper has ended"
    assert ".helper" not in os.listdir(hook.path.parent)


class Clock:
    """The clock of an idle server, which reads it once in a second."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return self.now

    async def is_read_twice(self) -> None:
        after = self.reads + 2
        await wait_until(lambda: self.reads >= after)


async def test_private_server_takes_one_key_and_ends_when_idle(
    sqlite_library: Library, tmp_path: Path
) -> None:
    grant = Grant(frozenset({"ann"}))
    _, other_key = await sqlite_library.store.keys.create(grant, name="another program")
    clock = Clock()
    settings = replace(
        Settings(db=sqlite_library.store.location, embedder="hash", cache_dir=str(tmp_path)),
        port=0,
        dashboard=False,
        text_workers=0,
    )
    started: asyncio.Queue[ServerInfo] = asyncio.Queue()
    access = PrivateAccess("the key", clock)
    running = asyncio.create_task(serve(settings, started.put_nowait, private=access))
    async with httpx.AsyncClient(base_url=(await started.get()).url) as programs:

        async def ask(key: str | None) -> int:
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            answer = await programs.get("/v1/users/ann/messages", headers=headers)
            return answer.status_code

        assert [await ask(key) for key in ("the key", other_key, None)] == [200, 401, 401]
        for _ in range(2):  # asked in time each time, so it is never idle
            await clock.is_read_twice()
            clock.now += IDLE_SECONDS - 1
            assert await ask("the key") == 200
    await clock.is_read_twice()
    assert not running.done()
    clock.now += IDLE_SECONDS
    await asyncio.wait_for(running, LIMIT)
