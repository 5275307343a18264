"""Clients that public generators write from the OpenAPI document: `make test-generated-clients`.

Each is compiled, and sends the recorded example of every operation to `memrecall serve`.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx
import pytest

from memrecall.server.auth import USER_HEADER
from memrecall.server.http.openapi import join_lines, load_examples

from ..server.http_service import open_library, write_messages
from ..server.record_examples import DENTIST, EXAMPLE_USER, run_job, store_memories
from ..server.server_process import WITHOUT_DASHBOARD, run_command, run_server

ROOT = Path(__file__).parents[2]
# Routes that generated clients are not called for; those of `service` are for operators' tools.
LEFT_OUT_TAGS = {"service"}
pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True)
class Call:
    """An operation, and the example that is sent to it."""

    name: str
    tag: str
    method: str
    path: str
    operation: dict[str, Any]
    parameters: dict[str, Any]
    body: Any

    @property
    def headers(self) -> dict[str, str]:
        """The user who acts in a space: the key is that of several."""
        is_shared = "/spaces" in self.path or "space:" in str(self.parameters)
        return {USER_HEADER: EXAMPLE_USER} if is_shared else {}

    @property
    def is_json(self) -> bool:
        """Whether the body, if any, and the response are JSON."""
        contents = (self.operation["responses"]["200"], self.operation.get("requestBody"))
        return all("application/json" in item["content"] for item in contents if item)


@dataclass(frozen=True, slots=True)
class Service:
    """A running service with the data of the examples."""

    url: str
    key: str
    document: Path
    calls: list[Call]


def tools() -> Path:
    """Return the folder with the generators."""
    return ROOT / os.environ["MEMRECALL_GENERATORS"]


def run(*command: object, cwd: Path) -> str:
    """Run a command, and return what it writes."""
    arguments = [str(part) for part in command]
    completed = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, check=False)
    output = completed.stdout + completed.stderr
    assert completed.returncode == 0, output[-8_000:]
    return output


@asynccontextmanager
async def serve_examples(folder: Path) -> AsyncIterator[Service]:
    """Run `memrecall serve` with what the requests of the examples expect to be stored."""
    db = folder / "a.db"
    async with open_library(str(db), folder) as library:
        await store_memories(library)
    users = ("--user", EXAMPLE_USER, "--user", "u_67890")
    key = run_command(folder, "keys", "create", *users, "--db", db).stdout.strip()
    headers = {"Authorization": f"Bearer {key}"}
    with run_server(folder, "--db", db, **WITHOUT_DASHBOARD) as server:
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
            text = (await client.get("/openapi.json")).text
            await write_messages(client, EXAMPLE_USER, DENTIST)
            calls = list(plan_calls(json.loads(text), await run_job(client)))
        document = folder / "openapi.json"
        document.write_text(text)
        yield Service(server.url, key, document, calls)


def plan_calls(document: dict[str, Any], job_id: str) -> Iterator[Call]:
    """Yield the calls in the order of the examples, which need what earlier ones have stored."""
    examples = load_examples()
    operations = {
        operation["operationId"]: (method, path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if not LEFT_OUT_TAGS & set(operation["tags"])
    }
    assert operations.keys() <= examples.keys(), "an operation without an example is not called"
    for name, example in examples.items():
        if name in operations:
            method, path, operation = operations[name]
            parameters = dict(example.parameters)
            if "job_id" in parameters:
                parameters["job_id"] = job_id
            tag = operation["tags"][0]
            yield Call(name, tag, method, path, operation, parameters, example.body)


async def test_openapi_python_client_calls_every_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_examples(tmp_path) as service:
        generator = tools() / "python" / "bin" / "openapi-python-client"
        config = tmp_path / "config.yaml"
        config.write_text("post_hooks: []\n")
        options = ("--path", service.document, "--config", config, "--meta", "none")
        output = run(
            generator, "generate", *options, "--output-path", "generated_client", cwd=tmp_path
        )
        assert "warning" not in output.lower(), output
        run(sys.executable, "-m", "mypy", "--strict", "generated_client", cwd=tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        client_class = import_module("generated_client").AuthenticatedClient
        for call in service.calls:
            module = import_module(f"generated_client.api.{call.tag}.{call.name}")
            with client_class(service.url, token=service.key, headers=call.headers) as client:
                response = module.sync_detailed(client=client, **python_arguments(call, module))
                assert response.status_code == 200, (call.name, response.content)
                assert_parsed(call, response)


def python_arguments(call: Call, module: Any) -> dict[str, Any]:
    """Return an example as the arguments of a generated function."""
    formats = {
        parameter["name"]: [kind.get("format") for kind in parameter["schema"].get("anyOf", ())]
        for parameter in call.operation.get("parameters", ())
    }
    arguments = {
        name: datetime.fromisoformat(value) if "date-time" in formats[name] else value
        for name, value in call.parameters.items()
    }
    if call.body is not None:
        hint = get_type_hints(module.sync_detailed)["body"]
        body_class: Any = (get_args(hint) or (hint,))[0]  # one that may be left out is a union
        lines = join_lines(call.body).encode() if isinstance(call.body, list) else b""
        arguments["body"] = body_class(BytesIO(lines)) if lines else body_class.from_dict(call.body)
    return arguments


def assert_parsed(call: Call, response: Any) -> None:
    """Check that the generated models have everything that the service sent."""
    text = response.content.decode()
    if not call.is_json and call.method == "get":
        assert response.parsed == text
    else:
        parsed, sent = json.dumps(response.parsed.to_dict()), json.dumps(json.loads(text))
        assert json.loads(in_utc(parsed)) == json.loads(in_utc(sent)), call.name


def in_utc(text: str) -> str:
    """Return JSON with one way to write the time zone, which is always the same."""
    return text.replace("+00:00", "Z")


async def test_openapi_typescript_calls_every_operation(tmp_path: Path) -> None:
    async with serve_examples(tmp_path) as service:
        (tmp_path / "node_modules").symlink_to(tools() / "node_modules")
        commands = tools() / "node_modules" / ".bin"
        generator = (commands / "openapi-typescript", service.document)
        run(*generator, "--default-non-nullable", "false", "-o", "schema.ts", cwd=tmp_path)
        (tmp_path / "package.json").write_text('{"type": "module"}')
        (tmp_path / "calls.ts").write_text(typescript_program(service.calls))
        options = ("--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck")
        run(commands / "tsc", *options, "calls.ts", cwd=tmp_path)
        output = run("node", "calls.js", service.url, service.key, cwd=tmp_path)
    statuses = dict(json.loads(line) for line in output.splitlines())
    assert statuses == {call.name: 200 for call in service.calls}


def typescript_program(calls: list[Call]) -> str:
    """Return a program that makes the calls with types, and prints the status of each."""
    lines = [
        'import createClient from "openapi-fetch";',
        'import type { paths } from "./schema.js";',
        "declare const process: { argv: string[] };",
        "const [, , baseUrl, key] = process.argv;",
        "const headers = { Authorization: `Bearer ${key}` };",
        "const client = createClient<paths>({ baseUrl, headers });",
        *map(typescript_call, calls),
    ]
    return "\n".join(lines)


def typescript_call(call: Call) -> str:
    """Return the statements of one call."""
    parts: dict[str, dict[str, Any]] = {}
    for parameter in call.operation.get("parameters", ()):
        if parameter["name"] in call.parameters:
            values = parts.setdefault(parameter["in"], {})
            values[parameter["name"]] = call.parameters[parameter["name"]]
    options: dict[str, Any] = {"params": parts, "headers": call.headers}
    functions = ""
    if isinstance(call.body, list):
        options["body"] = join_lines(call.body)
        options["headers"] = {"Content-Type": "application/octet-stream"}
        functions = "bodySerializer: (body) => body,"
    elif call.body is not None:
        options["body"] = call.body
    if "application/json" not in call.operation["responses"]["200"]["content"]:
        options["parseAs"] = "text"
    text = json.dumps(options, ensure_ascii=False)
    return (
        f"{{ const {{ data, response }} = await client.{call.method.upper()}("
        f"{json.dumps(call.path)}, {{ {functions} {text[1:]});\n"
        f"const isComplete = response.ok && data !== undefined;\n"
        f"console.log(JSON.stringify([{json.dumps(call.name)}, isComplete ? 200 : -1])); }}"
    )
