"""The synchronous `Memory`: mem0's interface, notebooks, the demo of the specification."""

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memrecall import AsyncMemory, Memory, deadline
from memrecall.errors import DeadlineExceeded, InvalidArgument
from memrecall.scope import Permission
from tests.extractors import SentenceExtractor

from ..model.openai_server import serve, text
from ..waiting import PROCESS_LIMIT
from .conftest import make_settings

pytestmark = pytest.mark.concurrent  # the synchronous Memory runs its event loop in a thread

ROOT = Path(__file__).parents[2]
ASYNC_ONLY = {"recaller", "tools", "resume", "bind_scope"}  # async objects, work after the call
# Called on what `space` returns.
OF_SPACES = {
    *("enter", "space_info", "members", "grants", "audit", "set_member", "remove_member"),
    *("leave", "delete_space"),
}


@pytest.fixture
def m(tmp_path: Path) -> Iterator[Memory]:
    settings, extractor = make_settings(str(tmp_path / "memrecall.db")), SentenceExtractor()
    with Memory(settings=settings, extractor=extractor) as memory:
        yield memory


class TestMem0Interface:
    """The calls of mem0's own quick start, with its arguments."""

    def test_add_search_get_all(self, m: Memory) -> None:
        messages = [
            {"role": "user", "content": "I'm allergic to peanuts and I live in Paris."},
            {"role": "assistant", "content": "Thanks, I will keep that in mind."},
        ]
        addition = m.add(messages, user_id="alice", metadata={"category": "profile"})
        assert {r["event"] for r in addition["results"]} == {"ADD"}
        assert all({"id", "memory", "event"} <= r.keys() for r in addition["results"])

        page = m.search("What is Alice allergic to?", user_id="alice", limit=3)
        assert "peanuts" in page["results"][0]["memory"]
        assert {"id", "memory", "score", "metadata", "created_at"} <= page["results"][0].keys()

        listing = m.get_all(user_id="alice")
        assert {r["id"] for r in listing["results"]} == {r["id"] for r in addition["results"]}
        filtered = m.get_all(user_id="alice", filters={"category": "profile"}, limit=1)
        assert len(filtered["results"]) == 1

    def test_recall(self, m: Memory) -> None:
        m.add("I always take a window seat on trains.", user_id="alice", infer=False)
        result = m.recall("Which seat do I take on trains?", user_id="alice")
        assert "window seat" in result.memories[0].content
        assert "confidence" in result._repr_html_()


def test_aliases_of_the_specification() -> None:
    for memory_class in (Memory, AsyncMemory):
        assert memory_class.write is memory_class.add
        assert memory_class.retrieve is memory_class.search
        assert memory_class.forget is memory_class.delete
    first_parameters = {
        "add": "messages user_id agent_id session_id metadata infer memory_type prompt",
        "get": "memory_id",
        "get_all": "user_id agent_id session_id filters limit",
        "search": "query user_id agent_id run_id limit filters threshold rerank",
        "delete": "memory_id",
        "delete_all": "user_id agent_id session_id filters",
    }
    for memory_class in (Memory, AsyncMemory):
        for name, expected in first_parameters.items():
            names = list(inspect.signature(getattr(memory_class, name)).parameters)[1:]
            assert names[: len(expected.split())] == expected.split()


def test_sync_memory_has_every_method() -> None:
    verbs = {
        name
        for home in AsyncMemory.__mro__[:-1]
        for name in vars(home)
        if not name.startswith("_") and name not in ASYNC_ONLY | OF_SPACES
    }
    assert verbs <= set(vars(Memory))
    for name in verbs:
        assert inspect.getdoc(getattr(Memory, name))


async def test_coroutines_run_in_the_loop_of_the_memory(tmp_path: Path) -> None:
    with Memory(settings=make_settings(str(tmp_path / "m.db")), user_id="ann") as memory:
        await memory.wait(memory.async_memory.add("likes tea", infer=False))
        tools = {tool.name: tool for tool in memory.run(memory.async_memory.tools())}
        assert list(tools) == ["remember", "recall", "correct", "forget"]
        recaller = memory.run(memory.async_memory.recaller())
        assert recaller.scope.user_id == "ann"
        result = await memory.wait(recaller.recall("What do I like? Tea?"))
        assert [found.content for found in result.memories] == ["likes tea"]


def test_calls_end_at_the_deadline(tmp_path: Path) -> None:
    with Memory(settings=make_settings(str(tmp_path / "m.db")), user_id="ann") as memory:
        with deadline(0), pytest.raises(DeadlineExceeded):
            memory.add("likes tea", infer=False)
        assert memory.get_all()["results"] == []


async def test_cancelled_wait_ends_the_work(tmp_path: Path) -> None:
    started, ended = threading.Event(), threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with Memory(settings=make_settings(str(tmp_path / "m.db"))) as memory:
        waiting = asyncio.ensure_future(memory.wait(work()))
        assert await asyncio.to_thread(started.wait, PROCESS_LIMIT)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await asyncio.to_thread(ended.wait, PROCESS_LIMIT)


async def test_sync_memory_works_inside_a_running_loop(tmp_path: Path) -> None:
    """A notebook cell runs inside a loop."""
    with Memory(settings=make_settings(str(tmp_path / "m.db")), user_id="ann") as memory:
        memory.add("likes tea", infer=False)
        assert memory.search("tea")["results"][0]["memory"] == "likes tea"
        assert len(list(memory.export())) > 3
    with pytest.raises(InvalidArgument, match="closed"):
        memory.get_all()
    await asyncio.sleep(0)


def test_short_and_long_term_memory_block(tmp_path: Path) -> None:
    settings = make_settings(str(tmp_path / "m.db"))
    permissions = [Permission.KNOWLEDGE]
    with Memory(
        settings=settings, extractor=SentenceExtractor(), user_id="ann", permissions=permissions
    ) as memory:
        short_term = memory.short_term(session_id="s")
        memory.add("I live in Paris.", session_id="s")
        short_term.add(["a note"])
        short_term.scratch = {"step": 2}
        assert [item.text for item in short_term.search("note")] == ["a note"]
        assert short_term.checkpoint().number == 1
        assert memory.short_term(session_id="s").scratch == {"step": 2}
        assert "items" in dir(short_term)

        long_term = memory.long_term(agent_id="guide")
        assert [home["value"] for home in memory.long_term().user_info.profile()["home"]]
        key = long_term.knowledge.add("Museums close on Mondays.")["id"]
        assert [entry["id"] for entry in long_term.knowledge.search("museums")] == [key]
        memory.end_session(session_id="s", success=True)
        (lesson,) = memory.long_term().experience.get_all(success=True)
        assert lesson["memory_type"] == "experience"


DEMO = """
from memrecall import Memory
from openai import OpenAI

memory = Memory()
client = OpenAI()
USER_ID = "user_001"

def chat(user_message):
    memories = memory.search(user_message, user_id=USER_ID, limit=5)
    system_prompt = f"你是一个友好的助手。"
    system_prompt += f"\\n\\n关于用户的记忆: \\n{memories}"
    response = client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[
            {"role": "system", "content": system_prompt},
            {"role": "user", "content": user_message}
        ]
    )
    assistant_reply = response.choices[0].message.content
    memory.add([
        {"role": "user", "content": user_message},
        {"role": "assistant", "content": assistant_reply}
    ], user_id=USER_ID)
    return assistant_reply

print(chat("我叫李明，我对花生过敏。"))
print(chat("推荐一个零食？"))
"""


@pytest.mark.service
def test_demo_of_the_specification_runs(tmp_path: Path) -> None:
    """The second prompt contains the first message, and the process exits by itself."""
    fact = json.dumps({"facts": ["用户对花生过敏。"]})
    with serve() as server:
        server.play(text("你好，李明！"), text(fact), text("试试水果。"), text('{"facts": []}'))
        environment = {
            "PATH": "",
            "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": server.url,
            "MEMRECALL_DB": str(tmp_path / "memrecall.db"),
            "MEMRECALL_EMBEDDER": "hash",
            "MEMRECALL_MODEL": "gpt-4o-mini",
            "MEMRECALL_BASE_URL": server.url,
        }
        process = subprocess.run(
            [sys.executable, "-c", DEMO],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PROCESS_LIMIT,
            check=False,
        )

    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.split() == ["你好，李明！", "试试水果。"]
    assert "花生" not in _system_prompt(server.requests[0])
    assert "花生" in _system_prompt(server.requests[2])


def _system_prompt(request: Any) -> str:
    return str(request["messages"][0]["content"])
