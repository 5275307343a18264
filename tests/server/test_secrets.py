"""No byte of a secret is left on the disk, whatever way it came."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.store import Store
from tests.hooks.hook_process import bind
from tests.hooks.payloads import samples
from tests.server.server_process import TIMEOUT, WITHOUT_DASHBOARD, run_command, run_server
from tests.store.samples import read_tables
from tests.text.secret_forms import FORMS

FORMULATIONS = [form for forms in FORMS.values() for form in forms.split(" | ")]
_PART = re.compile(r"[a-z0-9]{6,}")
_BY_CHANCE = re.compile(r"[0-9a-f]{1,9}")  # a part of an id, a checksum or a time
_AT_ONCE = 4
_TOGETHER = 4  # forms in one request, each on a line of its own
TEXTS = [
    "\n".join(FORMULATIONS[start : start + _TOGETHER]).replace("§", "")
    for start in range(0, len(FORMULATIONS), _TOGETHER)
]


def parts_of(form: str) -> Iterator[str]:
    """Yield what is left of the secrets of a form where words were cut from it."""
    for value in form.split("§")[1::2]:
        for part in _PART.findall(value.lower()):
            # A word in a secret, such as the name of its kind, is also elsewhere.
            is_word = part.isalpha() and len(part) < len(value)
            if not is_word and not _BY_CHANCE.fullmatch(part):
                yield part


def operations(text: str, number: int) -> list[tuple[str, dict[str, Any]]]:
    """Return a request for each way into a service."""
    said = {"role": "user", "content": text}
    tools = {
        "remember": {"content": text},
        "recall": {"query": text},
        "search": {"query": text},
    }
    calls = [
        ("/mcp?user=mcp", {"method": "tools/call", "params": {"name": name, "arguments": given}})
        for name, given in tools.items()
    ]
    prompt, answer = samples(text, text)[:2]
    return [
        ("/v1/users/http/messages", {"messages": [said]}),
        ("/v1/memories", {"user_id": "http", "messages": text}),
        ("/v1/memories", {"user_id": "http", "messages": text, "infer": False}),
        ("/v1/memories/search", {"user_id": "http", "query": text}),
        ("/v1/messages/lexical_search", {"user_id": "http", "query_text": text}),
        ("/v1/users/http/recall", {"query": text}),
        # A text is cut to what a trace may hold: also in the middle of a secret.
        ("/v1/users/http/recall", {"query": f"{'Well. ' * 165}{text}"}),
        ("/v1/users/chat/chat", {"message": text, "session_id": f"s{number}"}),
        (f"/v1/users/hooks/hooks/claude-code/{prompt.event}", prompt.payload),
        (f"/v1/users/hooks/hooks/claude-code/{answer.event}", answer.payload),
        *((path, {"jsonrpc": "2.0", "id": 1, **call}) for path, call in calls),
    ]


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files in a folder and those below, in lower case."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.read_bytes().lower() for path in files}


async def send_everything(url: str) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as client:

        async def send(path: str, body: dict[str, Any]) -> None:
            path, _, user = path.partition("?user=")
            headers = {"X-Memrecall-User": user} if user else {}
            headers["Accept"] = "application/json, text/event-stream"
            headers["X-Memrecall-Deadline"] = "60"  # a busy machine must not end a request
            async with slots:
                answer = await client.post(path, json=body, headers=headers)
            assert answer.status_code == 200, (path, answer.text)
            assert '"isError":true' not in answer.text, answer.text

        for number, text in enumerate(TEXTS):
            first, *others = operations(text, number)
            await send(*first)  # a search is for a user with something stored
            await asyncio.gather(*(send(*each) for each in others))


@pytest.mark.service
@pytest.mark.concurrent
async def test_no_secret_is_left_in_any_file(location: str, tmp_path: Path) -> None:
    with run_server(tmp_path, "--db", location, **WITHOUT_DASHBOARD) as server:
        await send_everything(server.url)
        hook = bind(tmp_path, url="http://127.0.0.1:9", db=str(tmp_path / "no" / "folder" / "a.db"))
        for number, text in enumerate(TEXTS[::4]):  # nothing is running: they stay pending
            prompt = samples(text, "")[0]
            await hook.run(prompt.event, {**prompt.payload, "session_id": f"s{number}"})
        assert hook.pending
        backup = run_command(tmp_path, "backup", tmp_path / "backup.db", "--db", location)
        assert backup.returncode == 0, backup.stderr
        assert server.stop() == 0
    async with await Store.open(location) as store:
        tables = json.dumps(await read_tables(store.database), default=str, ensure_ascii=False)
    contents = {**read_files(tmp_path), "tables": tables.lower().encode()}
    assert {".db", ".log", ".json"} <= {Path(name).suffix for name in contents}
    found = {
        (form, part, name)
        for form in FORMULATIONS
        for part in parts_of(form)
        for name, content in contents.items()
        if part.encode() in content
    }
    assert found == set()
