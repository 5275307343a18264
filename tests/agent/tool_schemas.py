"""The schemas of all tools as each interface shows them.

`python -m tests.agent.tool_schemas` writes them to `tool_schemas.json`, with which a test compares.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import memrecall.chat.turn  # noqa: F401 -- adds tools to the table
from memrecall.agent import memory_tools
from memrecall.agent.tools.table import Interface, function_schemas, tools_for
from memrecall.memory import Library
from memrecall.server.mcp.server import describe_tool

from ..libraries import open_library
from .recall_helpers import ANN

FILE = Path(__file__).with_name("tool_schemas.json")
FUNCTIONS = {
    "recall": Interface.RECALL,
    "chat_single": Interface.CHAT,
    "chat_group": Interface.GROUP_CHAT,
}


def all_schemas(library: Library) -> dict[str, Any]:
    """Return the schemas by interface, without the titles that repeat class and field names."""
    functions: dict[str, Any] = {
        name: {language: function_schemas(interface, language) for language in ("en", "zh")}
        for name, interface in FUNCTIONS.items()
    }
    autogen = [tool.schema for tool in memory_tools(library, ANN)]
    return _as_json({**functions, "autogen": autogen, "rpc": _rpc_schemas(), "mcp": _mcp_tools()})


def _rpc_schemas() -> dict[str, Any]:
    return {
        name: {
            "params": tool.arguments.model_json_schema(),
            "result": tool.result.model_json_schema(mode="serialization"),
        }
        for name, tool in tools_for(Interface.RPC).items()
    }


def _mcp_tools() -> list[dict[str, Any]]:
    tools = [describe_tool(tool) for tool in tools_for(Interface.MCP).values()]
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]


def _as_json(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return what a JSON file would hold; the titles of MCP tools are kept."""
    plain: dict[str, Any] = json.loads(json.dumps(schemas))
    titles = {tool["name"]: tool["title"] for tool in plain["mcp"]}
    plain = _without_titles(plain)
    for tool in plain["mcp"]:
        tool["title"] = titles[tool["name"]]
    return plain


def _without_titles(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_titles(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _without_titles(item)
        for name, item in value.items()
        if not (name == "title" and isinstance(item, str))
    }


async def _record() -> None:
    async with open_library(snapshots=False) as library:
        text = json.dumps(all_schemas(library), ensure_ascii=False, indent=1)
    FILE.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(_record())
