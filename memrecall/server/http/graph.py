"""The graph and the profile of a user: read, extract and correct."""

from datetime import datetime
from typing import Annotated

from fastapi import Query, Response
from pydantic import BaseModel, Field

from memrecall.extraction.protocol import USER
from memrecall.memory.results import DEEPEST
from memrecall.server.http.context import Context
from memrecall.server.http.memories import describe_problems
from memrecall.server.http.models import (
    MAX_BATCH,
    AgentRequest,
    AsOf,
    Digits,
    EntityName,
    InputMessages,
    ListCursor,
    ListLimit,
    SessionRequest,
    ToldRelation,
    accept_messages,
)
from memrecall.server.http.openapi import CONTRIBUTOR, READER, OperationRouter
from memrecall.server.http.responses import JsonResponse

router = OperationRouter("graph")


class GraphQuery(AgentRequest):
    """The query parameters of a graph read."""

    entity: Annotated[
        EntityName | None, Field(description="Return its relations; without it, the entities.")
    ] = None
    depth: Annotated[int, Field(ge=1, le=DEEPEST), Digits] = 1
    as_of: AsOf = None
    limit: ListLimit = 100
    cursor: Annotated[
        ListCursor | None, Field(description="`next_cursor` of the previous page of entities.")
    ] = None


class ExtractRequest(SessionRequest):
    """Messages to read for entities and relations; without any, the last ones of the session."""

    messages: Annotated[
        InputMessages | None, Field(max_length=MAX_BATCH), accept_messages(MAX_BATCH)
    ] = None


class ProfileQuery(AgentRequest):
    """The query parameters of a profile."""

    subject: Annotated[EntityName, Field(description="The person; by default the user.")] = USER


class GraphEntity(BaseModel):
    """An entity and its names."""

    name: str
    type: str
    aliases: list[str]


class GraphRelation(BaseModel):
    """A relation between two entities, and its source messages."""

    id: str
    source: str
    relationship: str
    destination: str
    valid_from: datetime | None
    valid_to: datetime | None
    source_message_ids: list[str]
    agent_id: str


class GraphAnswer(BaseModel):
    """The requested entities, or relations of an entity."""

    entities: list[GraphEntity] | None = None
    relations: list[GraphRelation] | None = None
    next_cursor: str | None = None


class ExtractedEntity(BaseModel):
    """An entity found in messages."""

    name: str
    type: str


class ExtractedGraph(BaseModel):
    """The entities and relations found in messages."""

    entities: list[ExtractedEntity]
    relations: list[ToldRelation]
    problems: list[str]


class ProfileValue(BaseModel):
    """A value of a profile field, and the messages it comes from."""

    value: str
    memory_id: str
    since: datetime
    evidence: list[str]
    author: Annotated[str | None, Field(description="The member who wrote it to a space.")] = None


class Profile(BaseModel):
    """What is known about a person: the values of each field, the latest first."""

    fields: dict[str, list[ProfileValue]]


@router.operation("GET", "/graph", GraphAnswer, READER)
async def read_graph(query: Annotated[GraphQuery, Query()], context: Context) -> Response:
    """Read an entity's relations, or all entities."""
    memory = await context.active_memory(query.user_id, query.agent_id, query.project)
    return JsonResponse(await memory.graph(**query.arguments()))


@router.operation("POST", "/graph/extract", ExtractedGraph, CONTRIBUTOR)
async def extract_relations(body: ExtractRequest, context: Context) -> Response:
    """Extract entities and relations from messages, which are not stored, or from the last ones of
    a session, and add them to the graph.
    """
    memory = await context.writable_memory(body.user_id, body.agent_id, body.project)
    async with context.service.recall_slot(context.principal):
        report = await memory.extract(**body.arguments())
    return JsonResponse({**report, "problems": describe_problems(report["problems"])})


@router.operation("GET", "/profile", Profile, READER)
async def read_profile(query: Annotated[ProfileQuery, Query()], context: Context) -> Response:
    """Read what is known about the user, or another person, by field, with its evidence."""
    memory = await context.active_memory(query.user_id, query.agent_id, query.project)
    long_term = await memory.long_term()
    return JsonResponse({"fields": await long_term.user_info.profile(query.subject)})
