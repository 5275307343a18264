"""MCP in two repositories of one user: nothing of the one is read in the other."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from .mcp_clients import call_failing_tool, call_tool, over_stdio

pytestmark = pytest.mark.concurrent
SECRET = "zephyr"


def make_repository(folder: Path, remote: str) -> str:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {remote}\n')
    (folder / "src").mkdir()
    return str(folder / "src")


async def read_everything(client: Client) -> str:
    """Return all that the tools and resources of a server tell."""
    found: list[Any] = [
        await call_tool(client, "recall", query="which release is deployed"),
        await call_tool(client, "search_messages", query="release deployed noon"),
        await call_tool(client, "list_memories"),
    ]
    for resource in (await client.list_resources()).resources:
        read = await client.read_resource(str(resource.uri))
        found.append([content.model_dump(mode="json") for content in read.contents])
        if str(resource.uri).endswith("traces"):
            for item in json.loads(read.contents[0].text):  # type: ignore[union-attr]
                trace = await client.read_resource(f"memrecall://traces/{item['trace_id']}")
                found.append([content.model_dump(mode="json") for content in trace.contents])
    return json.dumps(found)


async def test_servers_are_bound_to_the_project_of_a_folder(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop", "git@github.com:acme/shop.git")
    clone = make_repository(tmp_path / "clone", "https://github.com/acme/shop")
    blog = make_repository(tmp_path / "blog", "git@github.com:acme/blog.git")

    async with over_stdio(tmp_path, "--user", "ann", "--project", shop) as client:
        text = f"the {SECRET} release is deployed at noon"
        added = await call_tool(client, "remember", content=text)
        assert SECRET in await read_everything(client)
        key = added["memory_key"]
    async with over_stdio(tmp_path, "--user", "ann", "--project", blog) as client:
        assert SECRET not in await read_everything(client)
        for tool, more in (("read_memory", {}), ("correct", {"text": "x"}), ("forget", {})):
            assert SECRET not in await call_failing_tool(client, tool, memory_key=key, **more)
        refused = await call_failing_tool(client, "recall", query="tea", project="x")
        assert "cannot be given" in refused
    async with over_stdio(tmp_path, "--user", "ann", "--project", clone) as client:
        assert SECRET in await read_everything(client)
    async with over_stdio(tmp_path, "--user", "ann", "--project", blog, "--all-projects") as client:
        assert SECRET in await read_everything(client)
