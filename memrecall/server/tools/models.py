"""What each memory tool takes and gives, in the words of its specification."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["kb", "workspace", "all"]
MOST_RESULTS = 100

TaskId = Annotated[
    str, Field(description="Identifies one task: letters, digits, '.', '_' and '-', up to 64.")
]
LevelField = Annotated[
    Level,
    Field(description="What to look at: the knowledge base, the workspaces of all tasks, or both."),
]


class Params(BaseModel):
    """Parameters: nothing but what is named, and no guessing of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Result(BaseModel):
    """A result."""

    model_config = ConfigDict(frozen=True)


class NoParams(Params):
    """Nothing is to be said."""


class TaskParams(Params):
    """One task."""

    task_id: TaskId


class AddParams(Params):
    """An entry of the knowledge base."""

    content: Annotated[str, Field(description="What is known, in full; up to 100 KB are kept.")]
    summary: Annotated[str, Field(description="The content in one line.")]
    tags: Annotated[list[str], Field(description="Words by which it is classed and found.")] = (
        Field(default_factory=list)
    )


class QueryParams(Params):
    """A question to the knowledge base."""

    query: Annotated[str, Field(description="Words or a question, in any language.")]
    top_k: Annotated[
        int, Field(ge=1, le=MOST_RESULTS, description="How many of the best entries.")
    ] = 3


class DeleteParams(Params):
    """An entry by its id."""

    kb_id: Annotated[str, Field(description="The id that memory_add gave.")]


class DumpParams(Params):
    """What to export."""

    level: LevelField = "all"


class SearchParams(Params):
    """What to look for, and where."""

    query: Annotated[str, Field(description="Words to look for.")]
    level: LevelField = "all"


class RestoreParams(Params):
    """A backup."""

    backup_path: Annotated[
        str, Field(description="A file of the backup folder: the path that memory_backup gave.")
    ]


class Workspace(Result):
    """A workspace that was made."""

    path: str


class StoredEntry(Result):
    """An entry that was stored."""

    id: str
    summary: str


class EntryMatch(Result):
    """An entry that was found."""

    id: str
    summary: str
    content: str


class EntryMatches(Result):
    """The best entries, the best first; none if nothing has to do with the question."""

    results: list[EntryMatch]


class Deleted(Result):
    """An entry that is gone."""

    status: Literal["success"] = "success"
    id: str


class Cleaned(Result):
    """A workspace that is gone."""

    status: Literal["success"] = "success"
    path: str


class Status(Result):
    """Whether everything works."""

    status: Literal["ok", "degraded"]
    kb_status: Literal["loaded", "unloaded"]
    workspace_status: Literal["clean", "active", "unavailable"]


class Dump(Result):
    """Everything of a level, by ids and paths. `left_out` counts what there was no room for."""

    status: Literal["ok"] = "ok"
    data: dict[str, Any]
    left_out: dict[str, int] | None = None


class ToolHit(Result):
    """Something that was found: an entry by its id, or a file by its task and path."""

    source: Literal["kb", "workspace"]
    key: str
    value: dict[str, Any]


class ToolHits(Result):
    """What was found. `left_out` counts the files that were not looked into, by reason."""

    status: Literal["ok"] = "ok"
    results: list[ToolHit]
    left_out: dict[str, int] | None = None


class BackedUp(Result):
    """A backup that was made."""

    status: Literal["ok"] = "ok"
    message: str
    backup_path: str


class Restored(Result):
    """A state that was brought back; `former_state` is a backup of what it replaced."""

    status: Literal["ok"] = "ok"
    message: str
    former_state: str
