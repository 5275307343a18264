"""`memrecall hook` as a client runs it: a process with JSON on its standard input."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from memrecall.integrations.hooks import client
from memrecall.integrations.hooks.bindings import Binding, Outbox, read_binding, write_binding
from tests.server.server_process import command_line, make_environment

NO_DEADLINE = 60.0  # seconds; a busy machine must not end a hook that a test waits for


class Hook(NamedTuple):
    """The hooks of one client, installed for one user."""

    folder: Path
    path: Path
    cwd: Path | None = None  # where the client runs the hook

    @property
    def log(self) -> list[dict[str, Any]]:
        """The problems in the log."""
        return [line for line in self.lines if "problem" in line]

    @property
    def receipts(self) -> list[dict[str, Any]]:
        """The receipts in the log."""
        return [line for line in self.lines if "milliseconds" in line]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All lines of the log."""
        file = self.path.with_name("hooks.log")
        text = file.read_text("utf-8") if file.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    @property
    def pending(self) -> list[str]:
        """The ids of messages that are not stored yet."""
        return Outbox(str(self.path), self.read()).pending_ids()

    def read(self) -> Binding:
        """Return the binding."""
        return read_binding(str(self.path))

    async def run(self, event: str, payload: object, **variables: str) -> str:
        """Run the installed command, check that it succeeds, and return what it prints."""
        program = [sys.executable, "-I", "-S", client.__file__]
        return await self._run(program, event, payload, variables)

    async def run_command(self, event: str, payload: object, **variables: str) -> str:
        """Run `memrecall hook`, check that it succeeds, and return what it prints."""
        return await self._run(command_line("hook"), event, payload, variables)

    async def _run(
        self, program: list[str], event: str, payload: object, variables: dict[str, str]
    ) -> str:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        arguments = [event, "--config", str(self.path)]
        process = await asyncio.create_subprocess_exec(
            *program,
            *arguments,
            env=make_environment(self.folder, **variables),
            cwd=self.cwd,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate(data)
        assert (process.returncode, errors) == (0, b""), errors
        return output.decode()


def bind(folder: Path, client_name: str = "claude-code", **fields: Any) -> Hook:
    """Return the hooks of a client for the user ann."""
    path = folder / "hooks" / f"{client_name}.json"
    values = {"client": client_name, "user": "ann", "url": "", "deadline": NO_DEADLINE, **fields}
    write_binding(str(path), Binding(**values))
    return Hook(folder, path)
