"""One table of tools: every interface renders the same schemas and runs the same handlers."""

import ast
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken, FunctionCall

import memrecall
from memrecall.agent import MEMRECALL_TOOLS, Recaller, memory_tools
from memrecall.agent import tools as names
from memrecall.agent.tools import models, table
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.models import ToolErrorCode, ToolFailure, ToolInput, ToolOutput
from memrecall.agent.tools.table import (
    TOOLS,
    Interface,
    Tool,
    function_schemas,
    parse_arguments,
    tools_for,
)
from memrecall.chat.turn import ChatOptions, TextAnswer, TurnRecalls, TurnTools
from memrecall.errors import Disabled, InvalidArgument
from memrecall.memory import Library
from memrecall.model import prompts
from memrecall.scope import Permission, Scope
from memrecall.server.mcp.server import describe_tool, make_context
from memrecall.server.rpc import dispatcher
from memrecall.testing import call

from . import tool_schemas
from .recall_helpers import ANN, hand_off, run_recall, search, tool_results

# `python -m tests.agent.tool_schemas` records it again.
SNAPSHOT = json.loads(tool_schemas.FILE.read_text("utf-8"))
PROMPTS = Path(__file__).parents[2] / "prompts"


@pytest.mark.parametrize("interface", SNAPSHOT)
def test_schemas_match_the_snapshot(library: Library, interface: str) -> None:
    current = tool_schemas.all_schemas(library)
    assert current.keys() == SNAPSHOT.keys()
    assert json.dumps(current[interface], indent=1) == json.dumps(SNAPSHOT[interface], indent=1)


def string_constants(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules of a folder with their string constants."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.parent.name}/{path.name}", node.value


def test_tool_names_are_written_once() -> None:
    package = Path(memrecall.__file__).parent
    # "handoff" is also the kind of an event and a stop reason.
    tool_names = {names.SEARCH, names.DETAIL, names.KEYWORDS, names.EXPANSION, names.RECALL_MEMORY}
    for folder in ("agent", "chat", "cli"):
        modules = {
            module for module, text in string_constants(package / folder) if text in tool_names
        }
        assert modules == ({"tools/__init__.py"} if folder == "agent" else set())


def test_error_codes_are_part_of_the_wire_format() -> None:
    assert sorted(ToolErrorCode) == [
        *("embedder", "internal", "invalid_arguments", "no_permission", "not_found", "not_run"),
        *("refused", "repeated", "storage", "timeout", "too_many_searches", "unknown"),
        *("unknown_tool", "unreadable"),
    ]
    failure = ToolFailure(error=ToolErrorCode.STORAGE, message="m")
    assert failure.as_json() == {"success": False, "error": "storage", "message": "m"}


def mcp_context(library: Library, scope: Scope = ANN, *, can_write: bool = True) -> ToolContext:
    return make_context(library, scope, can_write=can_write)


async def run_mcp(context: ToolContext, name: str, **arguments: Any) -> dict[str, Any]:
    tool = tools_for(Interface.MCP)[name]
    result = await tool.run(context, parse_arguments(tool, arguments))
    assert isinstance(result, ToolOutput)
    return result.as_json()


async def run_autogen(library: Library, name: str, **arguments: Any) -> dict[str, Any]:
    (tool,) = (tool for tool in memory_tools(library, ANN) if tool.name == name)
    result = await tool.run_json(arguments, CancellationToken())
    answer: dict[str, Any] = json.loads(tool.return_value_as_string(result))
    return answer


class TestRemember:
    async def test_mcp_and_autogen_deduplicate_alike(self, library: Library) -> None:
        context = mcp_context(library)
        first = await run_autogen(library, "remember", text="Ann's cat is called Miso")
        second = await run_autogen(library, "remember", text="Ann's cat is called Miso")
        by_mcp = await run_mcp(context, "remember", content="Ann's cat is called Miso")
        assert first["memory_key"] == second["memory_key"] == by_mcp["memory_key"]
        new = await run_mcp(context, "remember", content="Ann's dog is called Udon")
        again = await run_mcp(context, "remember", content="Ann's dog is called Udon")
        assert new["memory_key"] == again["memory_key"]
        repeated = await run_autogen(library, "remember", text="Ann's dog is called Udon")
        assert repeated["memory_key"] == new["memory_key"]
        assert repeated["note"] == "This fact is already stored"

    async def test_mcp_refuses_a_text_that_cannot_be_stored(self, library: Library) -> None:
        with pytest.raises(InvalidArgument, match="cannot be stored"):
            await run_mcp(mcp_context(library), "remember", content="   ")


class TestFunc:
    """`MEMRECALL_TOOLS[name]["func"]` runs a tool outside of a recall."""

    async def test_search_and_detail(self, library: Library) -> None:
        output = await MEMRECALL_TOOLS["search_memories"]["func"](
            library, ANN, models.SearchMemoriesInput(query="database config port")
        )
        assert isinstance(output, models.SearchMemoriesOutput)
        assert output.success
        assert "a1" in [item.memory_key for item in output.results]
        detail = await MEMRECALL_TOOLS["get_memory_detail"]["func"](
            library, ANN, models.GetMemoryDetailInput(memory_key="a1")
        )
        assert isinstance(detail, models.GetMemoryDetailOutput)
        assert "5433" in str(detail.content)

    async def test_scope_is_kept(self, library: Library) -> None:
        detail = await MEMRECALL_TOOLS["get_memory_detail"]["func"](
            library, Scope("lin"), models.GetMemoryDetailInput(memory_key="a1")
        )
        assert isinstance(detail, models.GetMemoryDetailOutput)
        assert not detail.success

    async def test_unknown_user_has_no_results(self, library: Library) -> None:
        output = await MEMRECALL_TOOLS["search_memories"]["func"](
            library, Scope("nobody"), models.SearchMemoriesInput(query="anything")
        )
        assert isinstance(output, models.SearchMemoriesOutput)
        assert (output.success, output.results) == (True, [])

    async def test_keywords_window_and_handoff(self, library: Library) -> None:
        keywords = await MEMRECALL_TOOLS["extract_search_keywords"]["func"](
            library, ANN, models.ExtractKeywordsInput(query="the port of the database")
        )
        assert isinstance(keywords, models.ExtractKeywordsOutput)
        assert keywords.keywords
        arguments = models.ExpandContextWindowInput(reason="r", current_size=2, requested_size=4)
        expand = MEMRECALL_TOOLS["expand_context_window"]["func"]
        granted = await expand(library, ANN.with_session("talk"), arguments)
        assert isinstance(granted, models.ExpandContextWindowOutput)
        assert (granted.approved, granted.new_size, granted.iteration) == (True, 4, 2)
        refusal = await expand(library, ANN, arguments)
        assert isinstance(refusal, models.ExpandContextWindowOutput)
        assert not refusal.approved
        handoff = await MEMRECALL_TOOLS["handoff"]["func"](
            library,
            ANN,
            models.HandoffInput(
                reason="r", search_summary="s", relevant_memory_keys=["a1"], confidence=0.9
            ),
        )
        assert isinstance(handoff, models.HandoffOutput)
        assert "- a1" in handoff.message

    async def test_language_follows_the_arguments(self, library: Library) -> None:
        handoff = await MEMRECALL_TOOLS["handoff"]["func"](
            library, ANN, models.HandoffInput(reason="找到了", search_summary="好", confidence=1)
        )
        assert isinstance(handoff, models.HandoffOutput)
        assert handoff.message.startswith("## 记忆搜索完成")


class CountArguments(ToolInput):
    """Arguments of `count_letters`."""

    text: str


class CountOutput(ToolOutput):
    """Result of `count_letters`."""

    letters: int
    user: str


async def count_letters(context: ToolContext, arguments: CountArguments) -> CountOutput:
    return CountOutput(letters=len(arguments.text), user=context.scope.user_id)


SIXTH = Tool(
    name="count_letters", arguments=CountArguments, result=CountOutput, handler=count_letters
)


@pytest.fixture
def sixth_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A new tool: one entry in the table, and its texts in the prompt files."""
    folder = tmp_path / "prompts"
    shutil.copytree(PROMPTS, folder)
    for language in ("en", "zh"):
        file = folder / f"tools.{language}.md"
        section = "\n\n# count_letters\nCount the letters of a text.\n- text: the text\n"
        file.write_text(file.read_text("utf-8").rstrip("\n") + section, "utf-8")
    monkeypatch.setattr(prompts, "_folder", lambda: folder)
    monkeypatch.setitem(TOOLS, SIXTH.name, SIXTH)
    return SIXTH.name


class TestSixthTool:
    async def test_autogen(self, library: Library, sixth_tool: str) -> None:
        answer = await run_autogen(library, sixth_tool, text="tea")
        assert answer == {"letters": 3, "user": "ann"}

    async def test_recall_loop(self, library: Library, sixth_tool: str) -> None:
        assert function_schemas(Interface.RECALL, "zh")[-1]["name"] == sixth_tool
        recall = await run_recall(library, call(sixth_tool, text="tea"), hand_off())
        assert tool_results(recall)[0]["output"] == {"letters": 3, "user": "ann"}

    async def test_call_between_searches_allows_more_searches(
        self, library: Library, sixth_tool: str
    ) -> None:
        first, second, third, fourth = map(search, ("database", "dinner", "garden", "fence"))
        count = call(sixth_tool, text="tea")
        recall = await run_recall(library, first, second, third, count, fourth, hand_off())
        assert [result["error"] for result in tool_results(recall)] == [None] * 6

    async def test_rpc(self, library: Library, sixth_tool: str) -> None:
        assert sixth_tool in tools_for(Interface.RPC)
        context = ToolContext(library=library, scope=ANN)
        result = await dispatcher(context)(sixth_tool, ["tea"])
        assert result == {"letters": 3, "user": "ann"}

    async def test_mcp(self, library: Library, sixth_tool: str) -> None:
        description = describe_tool(tools_for(Interface.MCP)[sixth_tool])
        assert description.description == "Count the letters of a text."
        assert description.input_schema["properties"]["text"]["description"] == "the text"
        result = await run_mcp(mcp_context(library), sixth_tool, text="tea")
        assert result == {"letters": 3, "user": "ann"}

    @pytest.mark.parametrize("is_group", [False, True])
    async def test_chat(self, library: Library, sixth_tool: str, *, is_group: bool) -> None:
        recalls = TurnRecalls(Recaller(library, ANN), [], ChatOptions(), "en")
        answers = {"is_mentioned": TextAnswer(content="no")} if is_group else None
        toolbox = TurnTools(recalls, answers)
        assert sixth_tool in [schema["name"] for schema in toolbox.schemas]
        function_call = FunctionCall(id="1", name=sixth_tool, arguments='{"text": "tea"}')
        result = await toolbox.run(function_call)
        assert json.loads(result.content) == {"letters": 3, "user": "ann"}

    async def test_rights_hold_at_every_interface(
        self, library: Library, sixth_tool: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        protected = replace(SIXTH, permission=Permission.OPERATOR)
        monkeypatch.setitem(table.TOOLS, sixth_tool, protected)
        answer = await run_autogen(library, sixth_tool, text="tea")
        assert (answer["success"], answer["error"]) == (False, "no_permission")
        assert "permission `operator`" in answer["message"]
        with pytest.raises(Disabled, match="operator"):
            await run_mcp(mcp_context(library), sixth_tool, text="tea")
        operator = Scope("ann", permissions=frozenset({Permission.OPERATOR}))
        result = await run_mcp(mcp_context(library, operator), sixth_tool, text="tea")
        assert result["letters"] == 3
