"""The table of the memory tools. A new tool is a row here, and its models and function."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from memrecall.errors import Disabled, InvalidArgument
from memrecall.server.tools import knowledge, models, overview, workspaces
from memrecall.server.tools.desk import ToolService


class Needs(StrEnum):
    """What a principal must be allowed."""

    NOTHING = "nothing"
    KNOWLEDGE = "knowledge"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: what it is for, what it takes and gives, and who may use it."""

    name: str
    title: str
    description: str
    params: type[BaseModel]
    result: type[BaseModel]
    run: Callable[[ToolService, Any], Awaitable[BaseModel]]
    needs: Needs = Needs.OPERATOR
    writes: bool = False
    destroys: bool = False

    def may(self, desk: ToolService) -> bool:
        """Whether a principal may use it, with some parameters at least."""
        if self.writes and not desk.may_write:
            return False
        if self.needs is Needs.OPERATOR:
            return desk.is_operator
        return self.needs is Needs.NOTHING or desk.may_change_knowledge or desk.is_operator


TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "memory_init_workspace",
            "Make a workspace",
            "Create a fresh, isolated directory for a task's files and state, usually the first"
            " step of a task. A task that has one already is an error.",
            models.TaskParams,
            models.Workspace,
            workspaces.init_workspace,
            writes=True,
        ),
        Tool(
            "memory_add",
            "Add knowledge",
            "Add an entry to the knowledge base that all users of this agent share: its content, a"
            " short summary, and tags.",
            models.AddParams,
            models.StoredEntry,
            knowledge.add,
            Needs.KNOWLEDGE,
            writes=True,
        ),
        Tool(
            "memory_query",
            "Query knowledge",
            "Find the entries of the knowledge base that best match a question, by words and by"
            " meaning. An empty list means that nothing is relevant.",
            models.QueryParams,
            models.EntryMatches,
            knowledge.query,
            Needs.NOTHING,
        ),
        Tool(
            "memory_delete",
            "Delete knowledge",
            "Delete one entry of the knowledge base. An unknown id is an error.",
            models.DeleteParams,
            models.Deleted,
            knowledge.delete,
            Needs.KNOWLEDGE,
            writes=True,
            destroys=True,
        ),
        Tool(
            "memory_cleanup",
            "Remove a workspace",
            "Permanently remove a task's workspace with everything in it.",
            models.TaskParams,
            models.Cleaned,
            workspaces.cleanup,
            writes=True,
            destroys=True,
        ),
        Tool(
            "memory_get_status",
            "Status",
            "Tell whether the knowledge base is loaded and whether any task has a workspace.",
            models.NoParams,
            models.Status,
            overview.get_status,
            Needs.NOTHING,
        ),
        Tool(
            "memory_dump",
            "Dump",
            "Export the knowledge base, all workspaces with their files, or both; for debugging."
            " What there is no room for is counted in left_out.",
            models.DumpParams,
            models.Dump,
            overview.dump,
        ),
        Tool(
            "memory_search",
            "Search everywhere",
            "Search the knowledge base (by words and meaning) and the text files of all workspaces"
            " (files that have every word). Looking into workspaces needs an operator.",
            models.SearchParams,
            models.ToolHits,
            overview.search,
            Needs.NOTHING,
        ),
        Tool(
            "memory_backup",
            "Back up",
            "Save the whole state, knowledge base and workspaces, to a file with a time stamp.",
            models.NoParams,
            models.BackedUp,
            workspaces.backup,
            writes=True,
        ),
        Tool(
            "memory_restore",
            "Restore",
            "Replace the knowledge base and all workspaces by those of a backup. The state before"
            " is kept as a backup of its own.",
            models.RestoreParams,
            models.Restored,
            workspaces.restore,
            writes=True,
            destroys=True,
        ),
    )
}


async def call(
    desk: ToolService, tool: Tool, params: dict[str, Any] | list[Any] | None
) -> dict[str, Any]:
    """Run a tool with named or positional parameters, if the principal may; its result as JSON."""
    given = read_params(tool, params)
    _require(desk, tool, given)
    result = (await tool.run(desk, given)).model_dump(mode="json")
    return {name: value for name, value in result.items() if value is not None}


class _Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def params(self) -> type[BaseModel]: ...


def read_params(tool: _Named, params: dict[str, Any] | list[Any] | None) -> BaseModel:
    """The parameters of a call; InvalidArgument names what is wrong with them."""
    names = list(tool.params.model_fields)
    if isinstance(params, list):
        if len(params) > len(names):
            raise InvalidArgument(
                f"{tool.name} takes up to {len(names)} parameters, not {len(params)}"
            )
        params = dict(zip(names, params, strict=False))
    try:
        return tool.params.model_validate(params or {})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))[:100]
        raise InvalidArgument(f"{where}: {fault['msg']}") from None


def _require(desk: ToolService, tool: Tool, given: BaseModel) -> None:
    if tool.writes and not desk.may_write:
        raise Disabled(f"{tool.name} writes, and this key may only read")
    if not tool.may(desk):
        raise Disabled(f"{tool.name} needs the permission `{tool.needs.value}`")
    if isinstance(given, models.SearchParams) and given.level != "kb" and not desk.is_operator:
        raise Disabled(
            "searching workspaces needs the permission `operator`", hint='Ask with level "kb"'
        )
