"""docs/architecture.md names real code, and its walkthroughs match the order of calls."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from memrecall.agent import Recaller
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.types import NewMessage, Role

from .server.http_service import serve_in_process

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "architecture.md"
DOTTED = re.compile(r"`(memrecall(?:\.\w+)+)(?:\(\))?`")
STEP = re.compile(r"^\d+\. `(memrecall(?:\.\w+)+)`", re.M)
FILE = re.compile(r"`((?:memrecall|prompts|tests|docs|fixtures|benchmarks|examples)/[\w./-]+)`")

AUTOGEN_HOMES = ("memrecall.agent.autogen", "memrecall.model", "memrecall.testing")
# A package of another framework may be missing; its integration then cannot be imported.
IMPORT_WITHOUT_AUTOGEN = """
import importlib, sys
sys.modules.update(dict.fromkeys(("autogen_core", "autogen_agentchat", "autogen_ext")))
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        if (error.name or "autogen").startswith(("autogen", "memrecall")):
            print(name)
"""


def test_every_name_exists() -> None:
    names = DOTTED.findall(DOCUMENT.read_text("utf-8"))
    assert len(names) > 30
    assert [name for name in names if not _exists(name)] == []


def test_every_file_exists() -> None:
    files = FILE.findall(DOCUMENT.read_text("utf-8"))
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []


@pytest.mark.service
@pytest.mark.concurrent
def test_modules_load_without_autogen() -> None:
    modules = [name for name in _modules() if not name.startswith(AUTOGEN_HOMES)]
    assert len(modules) > 250
    command = [sys.executable, "-c", IMPORT_WITHOUT_AUTOGEN, *modules]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert outcome.stdout.split() == []


async def test_recall_goes_through_the_documented_functions(tmp_path: Path) -> None:
    async with await Library.open(_settings(tmp_path)) as library:
        await library.add_messages(Scope("ann"), [_message("the database is postgres on 5433")])
        with record_calls() as calls:
            # Only threads that start now are recorded.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
            recaller = Recaller(library, Scope("ann"))
            await recaller.recall("do it like my database config from before")
    _assert_in_order("One recall", calls)


async def test_add_goes_through_the_documented_functions(tmp_path: Path) -> None:
    async with AsyncMemory(settings=_settings(tmp_path)) as memory:
        with record_calls() as calls:
            await memory.add("I am allergic to peanuts.", user_id="ann")
    _assert_in_order("One add", calls)


async def test_http_search_goes_through_the_documented_functions(tmp_path: Path) -> None:
    async with (
        await Library.open(_settings(tmp_path)) as library,
        serve_in_process(library) as service,
    ):
        client = await service.client_with_key("ann")
        await library.add_messages(Scope("ann"), [_message("the database is postgres on 5433")])
        with record_calls() as calls:
            answer = await client.post(
                "/v1/messages/lexical_search", json={"user_id": "ann", "query_text": "postgres"}
            )
        assert answer.status_code == 200
    _assert_in_order("One HTTP search", calls)


@contextmanager
def record_calls() -> Iterator[list[CodeType]]:
    """Record the called functions, each once, in the order of their first call."""
    calls: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls.setdefault(frame.f_code)

    in_order: list[CodeType] = []
    previous = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield in_order
    finally:
        sys.setprofile(previous)
        threading.setprofile(None)
        in_order += calls


def _assert_in_order(section: str, calls: list[CodeType]) -> None:
    text = DOCUMENT.read_text("utf-8")
    match = re.search(rf"^## {section}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert match, f"no section {section!r}"
    steps = STEP.findall(match[1])
    assert len(steps) >= 5
    positions = {code: number for number, code in enumerate(calls)}
    order = [(positions.get(_code(step), -1), step) for step in steps]
    assert [step for position, step in order if position < 0] == []
    assert order == sorted(order)


def _modules() -> list[str]:
    paths = sorted((ROOT / "memrecall").rglob("*.py"))
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    return [name.removesuffix(".__init__") for name in names if not name.endswith(".__main__")]


def _exists(name: str) -> bool:
    try:
        _resolve(name)
    except AttributeError:
        return False
    return True


def _resolve(name: str) -> Any:
    """Resolve a dotted name: import the module part, then follow the attributes."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        if _is_module(module):
            value: Any = import_module(module)
            for part in parts[end:]:
                value = getattr(value, part)
            return value
    raise AttributeError(name)


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _code(name: str) -> CodeType:
    function: Callable[..., Any] = _resolve(name)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    assert isinstance(code, CodeType), f"{name} is not a function"
    return code


def _settings(folder: Path) -> Settings:
    return Settings(db=str(folder / "m.db"), embedder="hash", snapshots=False)


def _message(text: str) -> NewMessage:
    return NewMessage(role=Role.USER, content=text)
