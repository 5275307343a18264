"""`memrecall hook`: every documented event is captured once and recalled for, and none fails."""

import asyncio
import io
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.agent import result as agent_result
from memrecall.integrations.hooks import client
from memrecall.integrations.hooks import hook as hook_module
from memrecall.integrations.hooks.bindings import read_binding
from memrecall.integrations.hooks.client import MAX_INPUT
from memrecall.integrations.hooks.client import main as run_hook
from memrecall.integrations.hooks.events import read_event
from memrecall.memory import Importer, Library
from memrecall.scope import Scope
from memrecall.store import MessageFilter
from memrecall.types import Message, NewMessage, Role
from tests.cases import check_each, check_each_async
from tests.conftest import Populate
from tests.hooks.hook_process import Hook, bind
from tests.hooks.payloads import SESSION, Sample, samples
from tests.hooks.test_brief import make_repository
from tests.server.http_service import HttpService, serve_on_socket
from tests.server.server_process import command_line, make_environment
from tests.waiting import wait_until

PROMPT = "What is my dog called?"
ANSWER = "The build is green."
PLAIN = {"Accept": "text/plain"}
FACT = "My dog is called Biscuit"
REPLY = "Noted: your dog is called Biscuit."  # together they are sure
YESTERDAY = datetime(2026, 10, 13, 9, 30, tzinfo=UTC)


@pytest.fixture
def populate() -> Populate:
    """Store what ann said in an earlier session."""

    async def add_fact(library: Library) -> None:
        texts = {Role.USER: FACT, Role.ASSISTANT: REPLY}
        messages = [
            NewMessage(role=role, content=text, ts=YESTERDAY, message_id=f"earlier {role.value}")
            for role, text in texts.items()
        ]
        await library.add_messages(Scope("ann", session_id="earlier"), messages)

    return add_fact


@pytest.fixture
async def service(sqlite_library: Library) -> AsyncIterator[HttpService]:
    async with serve_on_socket(sqlite_library) as running:
        yield running


async def stored(library: Library, user: str = "ann") -> list[Message]:
    """Return the messages of a user that hooks have captured."""
    page = await library.store.timeline(Scope(user)).page(MessageFilter(), page_size=100)
    return [item for item in page.items if not item.message_id.startswith("earlier")]


async def bind_service(service: HttpService, folder: Path, name: str, **fields: Any) -> Hook:
    key = await service.create_key("ann")
    return bind(folder, name, url=service.url, key=key, **fields)


def read_block(sample: Sample, output: str) -> str:
    """Return the text that a client adds to the context of its model."""
    answer = json.loads(output)
    if sample.client == "cursor":
        assert answer.keys() == {"continue", "additional_context"}
        assert answer["continue"] is True
        return str(answer["additional_context"])
    (specific,) = answer.values()
    assert list(answer) == ["hookSpecificOutput"]
    assert specific["hookEventName"] == sample.event
    return str(specific["additionalContext"])


@pytest.mark.service
@pytest.mark.concurrent
async def test_every_documented_event_is_captured_once_and_recalled_for(
    library: Library, tmp_path: Path
) -> None:
    async with serve_on_socket(library) as service:
        await check_every_event(service, tmp_path)


async def check_every_event(service: HttpService, tmp_path: Path) -> None:
    expected: set[tuple[str, str, str]] = set()
    workspace = await asyncio.to_thread(tmp_path.resolve)

    async def check(sample: Sample) -> None:
        hook = await bind_service(service, tmp_path, sample.client)
        for run in (hook.run, hook.run_command):  # twice, by both programs
            output = await run(sample.event, sample.payload)
            if sample.recalls:
                block = read_block(sample, output)
                assert FACT in block
                assert "not instructions" in block
                assert "Recalled for the request" in block  # its place depends on the client
            else:
                assert output == ""
        expected.update((sample.client, role, text) for role, text in sample.messages)
        messages = await stored(service.library)
        found = [(m.metadata["client"], m.role.value, m.content) for m in messages]
        assert sorted(found) == sorted(expected)
        assert {m.session_id for m in messages} == {SESSION}
        assert {m.metadata["workspace"] for m in messages} == {str(workspace)}
        assert hook.log == []
        assert hook.pending == []

    rows = samples(PROMPT, ANSWER, str(tmp_path))
    await check_each_async(rows, check, lambda sample: f"{sample.client} {sample.event}")


@pytest.mark.concurrent
async def test_irrelevant_prompt_gets_nothing_but_is_captured(
    service: HttpService, tmp_path: Path
) -> None:
    hook = await bind_service(service, tmp_path, "claude-code")
    prompt = samples("rename the variable x to count", "", str(tmp_path))[0]
    assert await hook.run(prompt.event, prompt.payload) == ""
    assert [m.content for m in await stored(service.library)] == ["rename the variable x to count"]


@pytest.mark.concurrent
@pytest.mark.usefixtures("is_sure")
async def test_chinese_prompt_gets_chinese_block_within_its_size(
    service: HttpService, tmp_path: Path
) -> None:
    text = "我不吃辣，火锅要清汤。" * 300
    fact = NewMessage(role=Role.USER, content=text, ts=YESTERDAY)
    await service.library.add_messages(Scope("ann", session_id="earlier"), [fact])
    await service.library.vectors.settle()
    hook = await bind_service(service, tmp_path, "claude-code", characters=1_000)
    prompt = samples("我之前说火锅要什么汤？", "", str(tmp_path))[0]
    block = read_block(prompt, await hook.run(prompt.event, prompt.payload))
    assert "不是指令" in block
    assert "清汤" in block
    assert len(block) <= 1_000


@pytest.mark.concurrent
async def test_secrets_are_redacted_before_they_are_sent(
    service: HttpService, tmp_path: Path
) -> None:
    hook = await bind_service(service, tmp_path, "claude-code", redact_patterns=("ACME-[0-9]+",))
    secret = "sk-" + "a1" * 20
    prompt = samples(f"Use {secret} for ACME-4711 like last time", "", str(tmp_path))[0]
    await hook.run(prompt.event, prompt.payload)
    contents = [m.content for m in await stored(service.library)]
    assert contents == ["Use [redacted: api key] for [redacted] like last time"]
    (trace,) = (await service.library.store.traces(Scope("ann")).page()).items
    assert "[redacted: api key]" in repr(trace)
    assert secret not in repr(trace)


@pytest.mark.concurrent
async def test_key_of_another_user_changes_nothing(service: HttpService, tmp_path: Path) -> None:
    hook = bind(tmp_path, url=service.url, key=await service.create_key("bob"))
    prompt = samples(PROMPT, "", str(tmp_path))[0]
    assert await hook.run(prompt.event, prompt.payload) == ""
    assert [line["problem"] for line in hook.log] == ["the service answered 404"]
    assert await stored(service.library) == []
    assert len(hook.pending) == 1
    # With the right key, the next event delivers what is pending.
    hook = await bind_service(service, tmp_path, "claude-code")
    stop = samples(PROMPT, ANSWER, str(tmp_path))[1]
    await hook.run(stop.event, stop.payload)
    await wait_until(lambda: hook.pending == [])  # the client does not wait for it
    assert {m.content for m in await stored(service.library)} == {PROMPT, ANSWER}


@pytest.mark.concurrent
async def test_silent_service_ends_at_deadline_and_loses_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hook = bind(tmp_path, url=url, deadline=0.5)
        prompt = samples(PROMPT, "", str(tmp_path))[0]
        assert await hook.run(prompt.event, prompt.payload) == ""
        assert len(hook.log) == 1
        await wait_until(lambda: len(hook.pending) == 1)
        assert len(hook.log) == 1


@pytest.mark.concurrent
async def test_packages_that_load_slowly_keep_no_client_waiting(tmp_path: Path) -> None:
    hook = bind(tmp_path, url="http://127.0.0.1:9", db=str(tmp_path / "no" / "a.db"), deadline=0.5)
    packages, is_loaded = tmp_path / "packages", tmp_path / "loaded"
    packages.mkdir()
    waiting = f"import os, time\nwhile not os.path.exists({str(is_loaded)!r}): time.sleep(0.01)\n"
    (packages / "sitecustomize.py").write_text(waiting, "utf-8")
    path = os.pathsep.join([str(packages), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    prompt = samples(PROMPT, "", str(tmp_path))[0]
    assert await hook.run(prompt.event, prompt.payload, PYTHONPATH=path) == ""
    assert [line["problem"][:19] for line in hook.log] == ["stopped after 0.5 s"]
    assert hook.pending == []
    is_loaded.touch()
    await wait_until(lambda: len(hook.pending) == 1)  # and what was said is kept
    await wait_until(lambda: not client.is_locked(str(hook.path)))


@pytest.mark.concurrent
async def test_input_that_never_ends_is_left_at_deadline(tmp_path: Path) -> None:
    hook = bind(tmp_path, url="http://127.0.0.1:9", deadline=0.5)
    programs = (command_line("hook"), [sys.executable, "-I", "-S", client.__file__])
    for number, program in enumerate(programs, 1):
        process = await asyncio.create_subprocess_exec(
            *(*program, "Stop", "--config", str(hook.path)),
            env=make_environment(tmp_path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert await process.wait() == 0
        assert process.stdout is not None
        assert await process.stdout.read() == b""
        assert len(hook.log) == number
        assert "deadline" in hook.log[-1]["problem"]


@pytest.mark.concurrent
async def test_hook_imports_only_the_standard_library(service: HttpService, tmp_path: Path) -> None:
    """Imports are what a hook costs while a service runs; time depends on the machine."""
    hook = await bind_service(service, tmp_path, "claude-code")
    prompt = samples(PROMPT, "", str(tmp_path))[0]
    code = (
        "import sys; sys.path.append(sys.argv.pop(1));"
        "from client import main; main(sys.argv[1:]);"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", code, str(Path(client.__file__).parent)),
        *(prompt.event, "--config", str(hook.path)),
        env=make_environment(tmp_path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, modules = await process.communicate(json.dumps(prompt.payload).encode())
    assert FACT in output.decode()
    assert not {"memrecall", "site", "typing", "http", "ssl"} & set(modules.decode().split())


DEMO = Path(__file__).parents[2] / "fixtures" / "demo" / "chat.jsonl"
NOTHING_ASKED = ("thanks!", "ok", "好的，谢谢")
QUESTIONS = {
    "what was my database config again?": "db_config_001",
    "db_config_001 的 pool_size 是多少？": "由 20 改为 40",
}


@pytest.mark.usefixtures("is_sure")
class TestNeed:
    PATH = "/v1/users/lin/hooks/claude-code/UserPromptSubmit"

    @pytest.fixture
    async def lin(self, service: HttpService) -> httpx.AsyncClient:
        await Importer(service.library).run(DEMO, strict=True)
        await service.library.vectors.settle()
        return await service.client_with_key("lin")

    async def send(self, client: httpx.AsyncClient, prompt: str, session: str, **more: str) -> str:
        payload = {**samples(prompt, "")[0].payload, "session_id": session}
        options = {"Memrecall-Hook": json.dumps({"deadline": 60.0, **more})}
        answer = await client.post(self.PATH, json=payload, headers=options)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def test_thanks_and_code_get_nothing(self, lin: httpx.AsyncClient) -> None:
        for session in ("first", "second"):  # then each prompt was said before
            shown = {prompt: await self.send(lin, prompt, session) for prompt in NOTHING_ASKED}
            assert shown == dict.fromkeys(NOTHING_ASKED, "")

    async def test_question_about_earlier_sessions_gets_block(self, lin: httpx.AsyncClient) -> None:
        for prompt, answer in QUESTIONS.items():
            output = json.loads(await self.send(lin, prompt, "coding"))
            assert answer in output["hookSpecificOutput"]["additionalContext"], prompt

    async def test_messages_of_current_session_are_not_shown_again(
        self, lin: httpx.AsyncClient
    ) -> None:
        fact, prompt = "My staging server is called heron", "What is my staging server called?"
        await self.send(lin, fact, "coding")
        assert await self.send(lin, prompt, "coding") == ""
        assert "heron" in await self.send(lin, prompt, "later")

    async def test_plain_recall_decides_like_hook(self, lin: httpx.AsyncClient) -> None:
        async def check(prompt: Any) -> None:
            target = "query" if isinstance(prompt, str) else "messages"
            body = {target: prompt, "session_id": "coding", "block": {"if_needed": True}}
            answer = await lin.post("/v1/users/lin/recall", json=body, headers=PLAIN)
            assert bool(answer.text) == (prompt in tuple(QUESTIONS))

        picture: Any = {"content": [{"type": "image", "data": ""}]}
        await check_each_async((*NOTHING_ASKED, picture, *QUESTIONS), check)


class TestEndpoint:
    PATH = "/v1/users/ann/hooks/claude-code/UserPromptSubmit"

    async def test_key_decides_user_whatever_payload_says(self, service: HttpService) -> None:
        bob = await service.client_with_key("bob")
        payload = {**samples(PROMPT, "")[0].payload, "user": "ann", "user_id": "ann"}
        answer = await bob.post(self.PATH, json=payload)
        assert answer.status_code == 404
        options = {"Memrecall-Hook": json.dumps({"user": "ann", "agent": "x", "db": "x.db"})}
        path = self.PATH.replace("ann", "bob")
        answer = await bob.post(path, json=payload, headers=options)
        assert (answer.status_code, answer.text) == (200, "")
        assert await stored(service.library) == []
        assert [m.content for m in await stored(service.library, "bob")] == [PROMPT]

    async def test_only_what_is_sure_is_shown(
        self, service: HttpService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fact = NewMessage(role=Role.USER, content="我妹妹住在里斯本。", ts=YESTERDAY)
        await service.library.add_messages(Scope("ann", session_id="earlier"), [fact])
        ann = await service.client_with_key("ann")
        fields = {"capture": False, "deadline": 60.0}
        options = {"Memrecall-Hook": json.dumps(fields)}

        async def check(case: tuple[str, str]) -> None:
            for bar, is_shown in ((0.1, True), (1.01, False)):
                monkeypatch.setattr(agent_result, "_SURE", bar)
                payload = samples(case[0], "")[0].payload
                answer = await ann.post(self.PATH, json=payload, headers=options)
                assert (answer.status_code, bool(answer.text)) == (200, is_shown), bar
                assert not is_shown or case[1] in json.dumps(answer.json(), ensure_ascii=False)

        await check_each_async(((PROMPT, FACT), ("我妹妹住在哪里？", "里斯本")), check)

    async def test_only_notes_of_prompts_become_memories_of_the_project(
        self, service: HttpService
    ) -> None:
        ann = await service.client_with_key("ann")
        texts = ("Remember: the shop deploys on Fridays.", "记住：先跑测试", "I like pytest.")
        for number, text in enumerate(texts):
            payload = {**samples(text, "")[0].payload, "session_id": f"s{number}", "cwd": "/a"}
            assert (await ann.post(self.PATH, json=payload)).status_code == 200
        notes = []
        for project in ("/a", "/b"):
            store = service.library.store.memories(Scope("ann", project=project))
            notes.append({memory.content for memory in (await store.page(limit=10)).items})
        assert notes == [{"the shop deploys on Fridays.", "先跑测试"}, set()]
        assert len(await stored(service.library)) == 3

    async def test_session_without_folder_belongs_to_no_project(
        self, service: HttpService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(make_repository(tmp_path / "served", "git@github.com:acme/served.git"))
        ann = await service.client_with_key("ann")
        folders: dict[str, Any] = {"missing": {}, "null": {"cwd": None}, "empty": {"cwd": ""}}
        folders |= {"relative": {"cwd": "."}, "no name": {"cwd": "docs"}}
        for session, folder in folders.items():
            for sample in samples(f"What is in {session}?", "")[:1]:
                payload = {**sample.payload, "session_id": session.replace(" ", "-")}
                payload.pop("cwd")
                answer = await ann.post(self.PATH, json={**payload, **folder})
                assert answer.status_code == 200
        found = [(m.project, m.metadata.get("workspace")) for m in await stored(service.library)]
        assert found == [(None, None)] * len(folders)
        start = self.PATH.replace("UserPromptSubmit", "SessionStart")
        brief = await ann.post(start, json={"session_id": "new", "source": "startup"})
        assert "What is in relative?" in brief.text
        assert "committed" not in brief.text

    async def test_read_only_key_stores_nothing(self, service: HttpService) -> None:
        reader = await service.client_with_key("ann", read_only=True)
        payload = samples(PROMPT, "")[0].payload
        assert (await reader.post(self.PATH, json=payload)).status_code == 403
        assert await stored(service.library) == []
        options = {"Memrecall-Hook": json.dumps({"capture": False})}
        assert FACT in (await reader.post(self.PATH, json=payload, headers=options)).text

    async def test_wrong_requests_are_refused(self, service: HttpService) -> None:
        ann = await service.client_with_key("ann")
        payload = samples(PROMPT, "")[0].payload
        cases: dict[str, tuple[str, object, dict[str, object]]] = {
            "unknown client": (self.PATH.replace("claude-code", "emacs"), payload, {}),
            "unknown event": (self.PATH.replace("UserPromptSubmit", "Boot"), payload, {}),
            "wrong payload": (self.PATH, {"session_id": 7}, {}),
            "wrong type": (self.PATH, payload, {"characters": "many"}),
            "too small": (self.PATH, payload, {"characters": 1}),
            "too long": (self.PATH, payload, {"deadline": 1e9}),
            "wrong pattern": (self.PATH, payload, {"redact_patterns": ["("]}),
        }

        async def check(name: str) -> None:
            path, body, options = cases[name]
            headers = {"Memrecall-Hook": json.dumps(options)}
            answer = await ann.post(path, json=body, headers=headers)
            assert answer.status_code == 400, answer.text

        await check_each_async(cases, check)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a hook run in this process, whose timer the tests need themselves."""
    for module in (client, hook_module):
        monkeypatch.setattr(module, "set_deadline", lambda *_, **__: time.monotonic() + 60)
        monkeypatch.setattr(module, "detach", lambda: None)


class _Input:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def _prompt(**fields: Any) -> bytes:
    return json.dumps({**samples(PROMPT, "")[0].payload, **fields}).encode()


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"{]",
    "not UTF-8": b'{"session_id": "\xff"}',
    "a list": b"[]",
    "a number": b"7",
    "deep nesting": b"[" * 100_000,
    "huge": b" " * (MAX_INPUT + 1) + b"{}",
    "no fields": b"{}",
    "session of the wrong type": _prompt(session_id=7),
    "empty session": _prompt(session_id=""),
    "path as session": _prompt(session_id="../../etc/passwd"),
    "dots in session": _prompt(session_id="a..b"),
    "NUL in session": _prompt(session_id="a\0b"),
    "line break in session": _prompt(session_id="a\n"),
    "long session": _prompt(session_id="a" * 65),
    "folder of the wrong type": _prompt(cwd={"a": 1}),
    "NUL in folder": _prompt(cwd="/home\0/ann"),
    "prompt of the wrong type": _prompt(prompt={"text": "hello"}),
    "list of numbers as prompt": _prompt(prompt=[1, 2]),
}


@pytest.mark.usefixtures("in_process")
class TestHostileInput:
    def test_hostile_payload_ends_in_silence_and_log_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        hook = bind(tmp_path)

        def check(name: str) -> None:
            count = len(hook.log)
            monkeypatch.setattr("sys.stdin", _Input(HOSTILE[name]))
            run_hook(["UserPromptSubmit", "--config", str(hook.path)])
            assert capfd.readouterr() == ("", "")
            assert len(hook.log) == count + 1
            assert "passwd" not in hook.log[-1]["problem"]
            assert hook.pending == []

        check_each(HOSTILE, check)

    def test_text_that_cannot_be_stored_has_its_characters_replaced(self, tmp_path: Path) -> None:
        binding = read_binding(str(bind(tmp_path).path))
        for prompt, stored in {"a\0b": "a\ufffdb", "猫\ud83d在": "猫?在"}.items():
            event = read_event(binding, "UserPromptSubmit", _prompt(prompt=prompt))
            assert event is not None
            assert [message.content for message in event.messages] == [stored]

    def test_wrong_installation_ends_in_silence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        hook = bind(tmp_path)
        cases: dict[str, tuple[str, dict[str, Any]]] = {
            "unknown event": ("Shutdown", {}),
            "unknown client": ("Stop", {"client": "emacs"}),
            "no URL": ("Stop", {"url": "ftp://127.0.0.1"}),
            "another machine": ("Stop", {"url": "http://192.0.2.1:8765"}),
            "name of another machine": ("Stop", {"url": "http://127.0.0.1.example.com"}),
            "broken pattern": ("Stop", {"redact_patterns": ("(",)}),
        }
        payload = json.dumps(samples(PROMPT, ANSWER, str(tmp_path))[1].payload).encode()

        def check(name: str) -> None:
            event, fields = cases[name]
            fields = {"client": "claude-code", **fields}
            path = bind(tmp_path, fields.pop("client")).path
            path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), "utf-8")
            count = len(hook.log)
            monkeypatch.setattr("sys.stdin", _Input(payload))
            run_hook([event, "--config", str(path)])
            assert capfd.readouterr() == ("", "")
            assert len(hook.log) == count + 1

        check_each(cases, check)

    def test_binding_must_be_private_and_intact(self, tmp_path: Path) -> None:
        hook = bind(tmp_path)
        hook.path.chmod(0o644)
        run_hook(["Stop", "--config", str(hook.path)])
        assert "readable by no other" in hook.log[-1]["problem"]
        hook.path.chmod(0o600)
        hook.path.write_text("[]")
        run_hook(["Stop", "--config", str(hook.path)])
        assert "is damaged" in hook.log[-1]["problem"]
        count = len(hook.log)
        hook.path.unlink()
        run_hook(["Stop", "--config", str(hook.path)])
        assert len(hook.log) == count + 1

    def test_variable_turns_hooks_off(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hook = bind(tmp_path)
        monkeypatch.setenv("MEMRECALL_HOOKS", "off")
        run_hook(["Stop", "--config", str(hook.path)])
        assert hook.log == []


def test_ended_hook_is_not_killed_by_its_deadline(tmp_path: Path) -> None:
    path = str(tmp_path / "gone.json")
    client.set_deadline(path, "Stop", 60.0, time.monotonic())
    client.main(["Stop", "--config", path])
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert "gone.json" in Path(client.log_path(path)).read_text("utf-8")
