"""Supported clients: their events and payloads, settings files and output format.

Every entry of `clients.json` follows the public page that its `docs` name. The project's file of
Claude Code is the one that is not committed, because the command is local; its MCP servers are in
the user's file, because `.mcp.json` would be committed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, Literal, NamedTuple

_MIN_TIMEOUT, _MARGIN = 10, 5  # seconds

TurnRole = Literal["user", "assistant"]
Output = Literal["hookSpecificOutput", "additional_context", ""]


class HookEvent(NamedTuple):
    """An event of a client, and the payload fields that hold messages."""

    name: str
    texts: Sequence[tuple[TurnRole, str]] = ()
    recalls: bool = False  # the first text is recalled for before the model sees it
    briefs: bool = False  # the model gets a brief of the project
    compacts: bool = False  # the client is about to replace the conversation by a summary


class McpFile(NamedTuple):
    """Where a client keeps its MCP servers, and the form of an entry."""

    user_file: str
    project_file: str  # "": the user's file has an object `projects` with the folders
    keys: Sequence[str] = ("mcpServers",)
    is_list: bool = False  # the command and its arguments are one list
    folder: str = "."  # how an entry names the folder of the session

    def entry(self, command: list[str]) -> dict[str, Any]:
        """Return the entry of a server that a command starts."""
        if self.is_list:
            return {"type": "local", "command": command, "enabled": True}
        return {"command": command[0], "args": command[1:]}


class Client(NamedTuple):
    """A coding assistant with hooks, MCP servers or both."""

    name: str
    title: str
    docs: str
    program: str
    events: tuple[HookEvent, ...] = ()
    user_file: str = ""  # in the home folder, or in the folder that `home_variable` names
    project_file: str = ""  # in the project; "": the client has no such file
    mcp: McpFile | None = None
    session: str = "session_id"
    turn: str = ""  # an id that both events of a turn have; "": none
    folder: str = "cwd"
    output: Output = "hookSpecificOutput"  # "": the client ignores what a hook prints
    home_variable: str = ""
    timeout_unit: int | None = 1  # parts of a second; None: no timeout is set
    is_grouped: bool = True  # an entry of an event is a group of hooks
    required: Sequence[tuple[str, int]] = ()  # other settings that the file must have
    note: str = ""

    def event(self, name: str) -> HookEvent | None:
        """Return the event of this name, if memrecall uses it."""
        return next((event for event in self.events if event.name == name), None)

    @property
    def can_inject(self) -> bool:
        """Whether the client shows its model what a hook prints."""
        return bool(self.output)

    def timeout(self, deadline: float) -> int | None:
        """Return when the client ends a hook, in its unit: after the hook ends itself."""
        if self.timeout_unit is None:
            return None
        return max(_MIN_TIMEOUT, ceil(deadline) + _MARGIN) * self.timeout_unit

    def entry(self, command: str, deadline: float) -> dict[str, Any]:
        """Return the settings that make an event run a command."""
        hook: dict[str, Any] = {"command": command}
        if self.is_grouped:
            hook = {"type": "command", **hook}
        if (timeout := self.timeout(deadline)) is not None:
            hook["timeout"] = timeout
        return {"hooks": [hook]} if self.is_grouped else hook

    def format_output(self, event: str, block: str) -> str:
        """Return what the hook prints so that the client adds the block to the context."""
        if self.output == "additional_context":
            return json.dumps({"continue": True, "additional_context": block})
        return json.dumps({self.output: {"hookEventName": event, "additionalContext": block}})


def _read_clients() -> Iterator[Client]:
    for fields in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")):
        events = [HookEvent(**event) for event in fields.pop("events", ())]
        mcp = McpFile(**fields.pop("mcp"))
        yield Client(**fields, events=tuple(events), mcp=mcp)


CLIENTS: Mapping[str, Client] = {client.name: client for client in _read_clients()}
