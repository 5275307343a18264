"""What the memory endpoints take, as the OpenAPI document describes it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memrecall.memory.graph import DEEPEST
from memrecall.memory.graph import LARGEST_LIMIT as LARGEST_GRAPH
from memrecall.memory.records import LARGEST_LIMIT as LARGEST_LIST
from memrecall.memory.search import LARGEST_LIMIT as LARGEST_SEARCH
from memrecall.memory.search import Kinds
from memrecall.server.errors import Problem, Refused
from memrecall.server.http.message_models import LARGEST_BATCH, QueryText, SessionId, UserId
from memrecall.server.http.wire import parse_json
from memrecall.types import ID_LENGTH, LABEL_LENGTH, NAME_LENGTH, CleanText, Id, Moment

LONGEST_PROMPT = 20_000
LONGEST_FILTERS = 20_000
LONGEST_PLACE = 1_000
LARGEST_STATE = 100_000
STATE = 1_000

_bounds = {"minLength": 1, "maxLength": ID_LENGTH}
AgentId = Annotated[
    Id, Field(description="If the key has an agent, that one.", json_schema_extra=_bounds)
]
MemoryType = Annotated[CleanText, Field(min_length=1, max_length=LABEL_LENGTH)]
Name = Annotated[CleanText, Field(min_length=1, max_length=NAME_LENGTH)]
Flag = Annotated[bool, Field(strict=True)]
OwnUser = Annotated[
    UserId | None, Field(description="Whose data; a key of one user may leave it out.")
]
Filters = Annotated[
    dict[str, Any],
    Field(description='On fields and metadata: {"topic": "tea", "year": {"gte": 2024}}.'),
]
FiltersText = Annotated[
    str,
    Field(
        min_length=2,
        max_length=LONGEST_FILTERS,
        description='The same as JSON: {"topic": "tea"}.',
    ),
]
_PlaceCursor = Annotated[str, Field(min_length=1, max_length=LONGEST_PLACE)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToldMessage(BaseModel):
    """A message of a chat, in the form of OpenAI's API; fields that are not named here are let be.

    `content` is text or a list of content parts; a message without any words is left out.
    """

    model_config = ConfigDict(frozen=True)

    role: Annotated[str, Field(description="user, assistant, system, developer, tool …")] = "user"
    content: str | list[str | dict[str, Any]] | None = None
    name: Annotated[str | None, Field(description="Who speaks; `speaker` says the same.")] = None
    speaker: str | None = None
    ts: Moment | None = None
    message_id: Id | None = None
    metadata: dict[str, Any] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class AddRequest(_Request):
    """What is to be remembered: a text, a message or a list of messages."""

    messages: (
        Annotated[str, Field(min_length=1)]
        | ToldMessage
        | Annotated[list[ToldMessage], Field(min_length=1, max_length=LARGEST_BATCH)]
    )
    user_id: OwnUser = None
    agent_id: AgentId | None = None
    session_id: SessionId | None = None
    metadata: dict[str, Any] | None = None
    infer: Annotated[
        bool, Field(strict=True, description="False: every message is kept as it is.")
    ] = True
    memory_type: Annotated[
        MemoryType | None, Field(description="`short` and `long` choose the layer.")
    ] = None
    prompt: Annotated[
        CleanText | None,
        Field(max_length=LONGEST_PROMPT, description="Guides the model that finds facts."),
    ] = None
    sensitive: Flag = False
    expires_at: Moment | None = None
    background: Annotated[
        bool, Field(strict=True, description="Answer when the messages are stored.")
    ] = False

    def told(self) -> Any:
        """The messages as the memory takes them."""
        if isinstance(self.messages, str):
            return self.messages
        items = self.messages if isinstance(self.messages, list) else [self.messages]
        return [item.model_dump(exclude_none=True) for item in items]


class MemorySearchRequest(_Request):
    """A search of memories."""

    query: QueryText
    user_id: OwnUser = None
    agent_id: AgentId | None = None
    session_id: Annotated[SessionId | None, Field(description="Only of this session.")] = None
    limit: Annotated[int, Field(strict=True, ge=1, le=LARGEST_SEARCH)] = 100
    filters: Filters | None = None
    threshold: Annotated[float | None, Field(strict=True, ge=0.0, le=1.0)] = None
    rerank: Annotated[
        bool, Field(strict=True, description="False: the plain order of words and meaning.")
    ] = True
    as_of: Annotated[Moment | None, Field(description="As things stood then.")] = None
    kinds: Annotated[Kinds, Field(description="Memories, messages or both.")] = "memory"


class UpdateRequest(_Request):
    """What is to be changed of a memory; null takes a value away where it may be missing."""

    memory: Annotated[CleanText, Field(min_length=1, pattern=r"\S")] | None = None
    summary: CleanText | None = None
    memory_type: MemoryType | None = None
    layer: Literal["short", "long"] | None = None
    metadata: dict[str, Any] | None = None
    sensitive: Flag | None = None
    pinned: Flag | None = None
    subject: Name | None = None
    speaker: Name | None = None
    field: MemoryType | None = None
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    expires_at: Moment | None = None

    @model_validator(mode="after")
    def _something(self) -> "UpdateRequest":
        if not self.model_fields_set:
            raise ValueError("nothing is to be changed: give a field")
        return self


class OwnerQuery(_Request):
    """Whose memory is meant."""

    user_id: OwnUser = None


class _ScopeQuery(OwnerQuery):
    agent_id: AgentId | None = None
    session_id: Annotated[SessionId | None, Field(description="Only of this session.")] = None


class MemoryListQuery(_ScopeQuery):
    """The query parameters of a list of memories."""

    filters: FiltersText | None = None
    limit: Annotated[int, Field(ge=1, le=LARGEST_LIST)] = 100
    cursor: _PlaceCursor | None = None
    as_of: Annotated[Moment | None, Field(description="As things stood then.")] = None
    superseded: Annotated[bool, Field(description="Also those that hold no longer.")] = False
    deleted: Annotated[bool, Field(description="The hidden ones instead.")] = False


class DeleteAllQuery(_ScopeQuery):
    """The query parameters of a deletion. At least one of user, agent and session is named."""

    filters: FiltersText | None = None
    dry_run: Annotated[bool, Field(description="Count, and delete nothing.")] = False

    @model_validator(mode="after")
    def _somebody(self) -> "DeleteAllQuery":
        if self.user_id is None and self.agent_id is None and self.session_id is None:
            raise ValueError("whose memories? Name user_id, agent_id or session_id")
        return self


class GraphQuery(OwnerQuery):
    """The query parameters of a question to the graph."""

    agent_id: AgentId | None = None
    entity: Annotated[Name | None, Field(description="Its relations; else the entities.")] = None
    to: Annotated[Name | None, Field(description="The shortest ways from `entity` to it.")] = None
    depth: Annotated[int | None, Field(ge=1, le=DEEPEST)] = None
    as_of: Annotated[Moment | None, Field(description="As things stood then.")] = None
    limit: Annotated[int, Field(ge=1, le=LARGEST_GRAPH)] = 100
    cursor: Annotated[_PlaceCursor | None, Field(description="Goes on with the entities.")] = None

    @model_validator(mode="after")
    def _from_somewhere(self) -> "GraphQuery":
        if self.to is not None and self.entity is None:
            raise ValueError("to: a way begins at an entity")
        return self


class StateQuery(OwnerQuery):
    """The query parameters of a session's state."""

    agent_id: AgentId | None = None
    session_id: SessionId | None = None
    max_tokens: Annotated[int, Field(ge=1, le=LARGEST_STATE)] = STATE


def read_filters(text: str | None) -> dict[str, Any] | None:
    """Filters as a query parameter has them."""
    if text is None:
        return None
    try:
        found = parse_json(text.encode())
    except ValueError as error:
        raise _bad_filters(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _bad_filters("must be a JSON object")
    return found


def _bad_filters(why: str) -> Refused:
    fault = {"field": "filters", "message": why}
    return Refused(Problem("INVALID_ARGUMENT", f"filters: {why}", {"fields": [fault]}))
