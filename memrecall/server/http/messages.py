"""The message query API: range read, search by words and by meaning, neighbours, writing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Response

from memrecall.errors import CallerError
from memrecall.scope import DEFAULT_NAME
from memrecall.search import LexicalQuery, ScoredMessage, SemanticQuery
from memrecall.server.errors import Problem, Refused, problem_of
from memrecall.server.http.message_models import (
    IncomingMessage,
    LexicalPage,
    LexicalSearchRequest,
    MessagePage,
    NearMessages,
    Neighbors,
    NeighborsQuery,
    PathId,
    RangeQuery,
    ReturnField,
    SemanticSearchRequest,
    WriteReceipt,
    WriteRequest,
)
from memrecall.server.http.openapi import documented
from memrecall.server.http.service import Asked
from memrecall.server.http.wire import Json, StrictRoute, page_response
from memrecall.store import ScopedMessage

router = APIRouter(prefix="/v1", tags=["messages"], route_class=StrictRoute)

FIELDS: tuple[str, ...] = get_args(ReturnField)


@router.get("/users/{user_id}/messages", **documented("read_messages", MessagePage, 400, 404))
async def read_messages(
    user_id: PathId, query: Annotated[RangeQuery, Query()], asked: Asked
) -> Response:
    """Read messages by time, the latest first; ties by `message_id`."""
    scope = await asked.known(user_id)
    page = await asked.library.store.timeline(scope).page(
        query.filter(), page_size=query.page_size, cursor=query.cursor
    )
    asked.service.metrics.count_search("range")
    return page_response(page.items, FIELDS, next_cursor=page.next_cursor)


@router.post(
    "/users/{user_id}/messages",
    **documented("write_messages", WriteReceipt, 400, 404, 409, 413, 415, 507),
)
async def write_messages(user_id: PathId, body: WriteRequest, asked: Asked) -> Response:
    """Store messages, all or none. The same again is no mistake; another content under a known
    `message_id` is. Answered when it is safely stored.
    """
    asked.principal.require_writing()
    entries = [
        ScopedMessage(asked.principal.scope(user_id, message.session_id), message)
        for message in body.messages
    ]
    asked.notes["messages"] = len(entries)
    _require_own_labels(entries, body.messages)
    try:
        written = await asked.library.add_entries(entries)
    except CallerError as error:
        raise _naming_ids(error, entries) from None
    asked.service.metrics.count_stored(written.stored)
    items = [
        {"message_id": message_id, "stored": fresh}
        for message_id, fresh in zip(written.ids, written.created, strict=True)
    ]
    return Json({"stored": written.stored, "items": items})


@router.get(
    "/users/{user_id}/messages/{message_id}/neighbors",
    **documented("read_neighbors", Neighbors, 400, 404),
)
async def read_neighbors(
    user_id: PathId, message_id: PathId, query: Annotated[NeighborsQuery, Query()], asked: Asked
) -> Response:
    """Read what was said just before and after a message, the earliest first."""
    scope = await asked.known(user_id)
    page = await asked.library.store.timeline(scope).neighbors(
        message_id, before=query.before, after=query.after
    )
    asked.service.metrics.count_search("neighbors")
    return page_response(page.items, FIELDS)


@router.post(
    "/messages/lexical_search",
    **documented("lexical_search", LexicalPage, 400, 404, 413, 415),
)
async def lexical_search(body: LexicalSearchRequest, asked: Asked) -> Response:
    """Search by words, the most relevant first; ties by time (the later first), `message_id`.

    All pages show the messages that were there at the first one.
    """
    scope = asked.principal.scope(body.user_id)
    asked.notes["query_chars"] = len(body.query_text)
    query = LexicalQuery(body.query_text, body.wanted(), body.page_size, body.cursor)
    page = await asked.library.find_messages(scope, query)
    asked.service.metrics.count_search("lexical")
    ids = [found.message.message_id for found in page.items]
    return page_response(
        [found.message for found in page.items],
        _asked_for(body.return_fields),
        next_cursor=page.next_cursor,
        highlights=[
            {"message_id": key, "snippets": found.snippets}
            for key, found in zip(ids, page.items, strict=True)
        ],
        scores=[
            {"message_id": key, "score": found.score}
            for key, found in zip(ids, page.items, strict=True)
        ],
    )


@router.post(
    "/messages/semantic_search",
    **documented("semantic_search", NearMessages, 400, 404, 413, 415),
)
async def semantic_search(body: SemanticSearchRequest, asked: Asked) -> Response:
    """Search by meaning: the messages with the largest cosine, ties as in the other search."""
    scope = asked.principal.scope(body.user_id)
    asked.notes["query_chars"] = len(body.query_text or "")
    query = SemanticQuery(
        body.query_text, body.query_embedding, body.wanted(), body.top_k, body.min_score
    )
    page = await asked.library.nearest_messages(scope, query)
    asked.service.metrics.count_search("semantic")
    fields = _asked_for(body.return_fields)
    return Json({"items": [_near(found, fields) for found in page.items]})


def _require_own_labels(
    entries: Sequence[ScopedMessage], messages: Sequence[IncomingMessage]
) -> None:
    """What a read gives can be written back; whose it is, the path and the key say alone."""
    for position, (entry, message) in enumerate(zip(entries, messages, strict=True)):
        owner, label = entry.scope.user_id, entry.scope.agent_id or DEFAULT_NAME
        if message.user_id not in (None, owner):
            raise _mislabelled(position, "user_id", "is not the path's")
        if message.agent_id not in (None, label):
            raise _mislabelled(position, "agent_id", f"is not {label!r}, which this key writes as")


def _mislabelled(position: int, name: str, why: str) -> Refused:
    where = f"messages.{position}.{name}"
    fault = {"field": where, "message": why}
    return Refused(Problem("INVALID_ARGUMENT", f"{where}: {why}", {"fields": [fault]}))


def _near(found: ScoredMessage, fields: Sequence[str]) -> dict[str, Any]:
    message = {name: getattr(found.message, name) for name in fields}
    return {**message, "semantic_score": found.score}


def _asked_for(return_fields: Sequence[str] | None) -> Sequence[str]:
    if return_fields is None:
        return FIELDS
    return [name for name in FIELDS if name == "message_id" or name in return_fields]


def _naming_ids(error: CallerError, entries: Sequence[ScopedMessage]) -> Refused:
    """The refusal of a batch, with the ids of the messages at fault beside their positions."""
    problem = problem_of(error)
    faults = problem.details.get("faults")
    if not faults:
        return Refused(problem)
    ids = [entries[int(position)].message.message_id for position in faults]
    return Refused(replace(problem, details={"message_ids": ids, "faults": faults}))
