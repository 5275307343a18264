"""Supported clients: their events and payloads, settings files and output format.

Every entry follows the public page that its `docs` name.
"""

import json
from collections.abc import Mapping
from math import ceil
from typing import Any, Literal, NamedTuple

_MIN_TIMEOUT, _MARGIN = 10, 5  # seconds

TurnRole = Literal["user", "assistant"]
Output = Literal["hookSpecificOutput", "additional_context", ""]


class HookEvent(NamedTuple):
    """An event of a client, and the payload fields that hold messages."""

    name: str
    texts: tuple[tuple[TurnRole, str], ...] = ()
    recalls: bool = False  # the first text is recalled for before the model sees it
    briefs: bool = False  # the model gets a brief of the project
    compacts: bool = False  # the client is about to replace the conversation by a summary


class McpFile(NamedTuple):
    """Where a client keeps its MCP servers, and the form of an entry."""

    user_file: str
    project_file: str  # "": the user's file has an object `projects` with the folders
    keys: tuple[str, ...] = ("mcpServers",)
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
    required: tuple[tuple[str, int], ...] = ()  # other settings that the file must have
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


_PROMPT: tuple[tuple[TurnRole, str], ...] = (("user", "prompt"),)
_STOP = HookEvent("Stop", (("assistant", "last_assistant_message"),))
_SESSION_EVENTS = (HookEvent("SessionStart", briefs=True), HookEvent("PreCompact", compacts=True))

CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="claude-code",
            title="Claude Code",
            docs="https://code.claude.com/docs/en/hooks",
            program="claude",
            events=(HookEvent("UserPromptSubmit", _PROMPT, recalls=True), _STOP, *_SESSION_EVENTS),
            user_file=".claude/settings.json",
            project_file=".claude/settings.local.json",  # not committed: the command is local
            mcp=McpFile(".claude.json", ""),  # .mcp.json would be committed
            home_variable="CLAUDE_CONFIG_DIR",
        ),
        Client(
            name="codex",
            title="Codex",
            docs="https://developers.openai.com/codex/hooks",
            program="codex",
            events=(HookEvent("UserPromptSubmit", _PROMPT, recalls=True), _STOP, *_SESSION_EVENTS),
            user_file=".codex/hooks.json",
            project_file=".codex/hooks.json",
            mcp=McpFile(".codex/config.toml", ".codex/config.toml", ("mcp_servers",)),
            turn="turn_id",
            home_variable="CODEX_HOME",
            note="Codex runs new hooks only after you have reviewed and trusted them in Codex.",
        ),
        Client(
            name="cursor",
            title="Cursor",
            docs="https://cursor.com/docs/hooks",
            program="cursor",
            events=(
                HookEvent("beforeSubmitPrompt", _PROMPT, recalls=True),
                HookEvent("afterAgentResponse", (("assistant", "text"),)),
                HookEvent("sessionStart", briefs=True),
                HookEvent("preCompact", compacts=True),
            ),
            user_file=".cursor/hooks.json",
            project_file=".cursor/hooks.json",
            mcp=McpFile(".cursor/mcp.json", ".cursor/mcp.json", folder="${workspaceFolder}"),
            session="conversation_id",
            turn="generation_id",
            folder="workspace_roots",
            output="additional_context",
            timeout_unit=None,
            is_grouped=False,
            required=(("version", 1),),
            note="Cursor's documentation lists additional_context for sessionStart, but not for"
            " beforeSubmitPrompt: versions that ignore it there store turns without recalling.",
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            docs="https://geminicli.com/docs/hooks/reference",
            program="gemini",
            events=(
                HookEvent("BeforeAgent", _PROMPT, recalls=True),
                HookEvent("AfterAgent", (("assistant", "prompt_response"),)),
                HookEvent("SessionStart", briefs=True),
                HookEvent("PreCompress", compacts=True),
            ),
            user_file=".gemini/settings.json",
            project_file=".gemini/settings.json",
            mcp=McpFile(".gemini/settings.json", ".gemini/settings.json"),
            timeout_unit=1_000,
        ),
        Client(
            name="opencode",
            title="OpenCode",
            docs="https://opencode.ai/docs/mcp-servers",
            program="opencode",
            mcp=McpFile(".config/opencode/opencode.json", "opencode.json", ("mcp",), is_list=True),
            output="",
            note="OpenCode has plugins in place of hooks: it gets the tools of the MCP server, but"
            " nothing is recalled or stored by itself.",
        ),
    )
}
