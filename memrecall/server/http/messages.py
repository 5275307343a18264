"""The message API: range reads, lexical and semantic search, neighbours, writes, deletion."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, get_args

from fastapi import Query, Response
from pydantic_core import to_json

from memrecall.errors import CallerError
from memrecall.scope import DEFAULT_NAME
from memrecall.search import LexicalQuery, ScoredPage, SemanticQuery
from memrecall.server.errors import RequestError, invalid_field, problem_from_error
from memrecall.server.http.context import Context
from memrecall.server.http.models import (
    ChatMessage,
    DeletedMessage,
    LexicalPage,
    LexicalSearchRequest,
    MessagePage,
    NearMessages,
    Neighbors,
    NeighborsQuery,
    PathId,
    RangeQuery,
    ReturnField,
    SearchFilter,
    SemanticSearchRequest,
    TimeRange,
    WriteReceipt,
    WriteRequest,
)
from memrecall.server.http.openapi import CONTRIBUTOR, READER, OperationRouter
from memrecall.server.http.responses import JsonResponse, items_response, page_response
from memrecall.store import MessageFilter, ScopedMessage, WriteStatus

router = OperationRouter("messages")

MESSAGE_FIELDS: tuple[str, ...] = get_args(ReturnField)


@router.operation("GET", "/users/{user_id}/messages", MessagePage, READER)
async def read_messages(
    user_id: PathId, query: Annotated[RangeQuery, Query()], context: Context
) -> Response:
    """Read messages by time, by default the latest first; ties are ordered by `message_id`."""
    scope = await context.readable_scope(user_id, query.project)
    page = await context.library.store.timeline(scope).page(
        MessageFilter(query.since, query.until, query.role, query.session_id),
        order=query.order,
        page_size=query.page_size,
        cursor=query.cursor,
    )
    context.service.metrics.searches.labels("range").inc()
    return await page_response(page.items, MESSAGE_FIELDS, next_cursor=page.next_cursor)


@router.operation("POST", "/users/{user_id}/messages", WriteReceipt, CONTRIBUTOR)
async def write_messages(user_id: PathId, body: WriteRequest, context: Context) -> Response:
    """Store messages, all or none. Storing the same message again is not an error; storing another
    content under a known `message_id` is. A `message_id` that was erased stays so: its `status` is
    `erased`, and nothing is stored. The response is sent when the messages are durable.
    """
    context.principal.require_write()
    principal = await context.enter(user_id)
    scope = principal.scope(user_id)
    signed = await context.library.store.spaces.sign(scope, body.messages)
    entries = [ScopedMessage(replace(scope, session_id=m.session_id), m) for m in signed]
    context.log_fields["messages"] = len(entries)
    # Messages that were read earlier and are written back have owners: the path and the key
    # decide who owns a message, and its own ids may only agree with them.
    agent_id = scope.agent_id or DEFAULT_NAME
    for position, message in enumerate(body.messages):
        if message.user_id not in (None, scope.user_id):
            raise invalid_field(f"messages.{position}.user_id", "must be the user_id of the path")
        if message.agent_id not in (None, agent_id):
            reason = f"must be {agent_id!r}, the agent of this key"
            raise invalid_field(f"messages.{position}.agent_id", reason)
    try:
        result = await context.library.add_entries(entries)
    except CallerError as error:
        raise _with_message_ids(error, entries) from None
    context.service.metrics.stored.inc(result.stored)
    items = [
        _receipt_item(*item)
        for item in zip(result.ids, result.statuses, result.redacted, strict=True)
    ]
    return JsonResponse({"stored": result.stored, "items": items})


@router.operation("GET", "/users/{user_id}/messages/{message_id}/neighbors", Neighbors, READER)
async def read_neighbors(
    user_id: PathId, message_id: PathId, query: Annotated[NeighborsQuery, Query()], context: Context
) -> Response:
    """Read a message with the messages before and after it, the earliest first."""
    scope = await context.readable_scope(user_id, query.project)
    page = await context.library.store.timeline(scope).neighbors(
        message_id, before=query.before, after=query.after
    )
    context.service.metrics.searches.labels("neighbors").inc()
    return await page_response(page.items, MESSAGE_FIELDS)


@router.operation("GET", "/users/{user_id}/messages/{message_id}", ChatMessage, READER)
async def read_message(user_id: PathId, message_id: PathId, context: Context) -> Response:
    """Read one message."""
    scope = await context.readable_scope(user_id)
    message = await context.library.store.timeline(scope).get(message_id)
    return JsonResponse(message.model_dump(include=set(MESSAGE_FIELDS)))


@router.operation("DELETE", "/users/{user_id}/messages/{message_id}", DeletedMessage, CONTRIBUTOR)
async def delete_message(user_id: PathId, message_id: PathId, context: Context) -> Response:
    """Hide a message and the memories that were derived from it alone. Its id is also one of
    `/v1/memories/{memory_id}`, where `undo` restores all and `purge` erases it. Deleting it again
    is not an error.
    """
    memory = await context.writable_memory(user_id)
    report = await memory.delete_message(message_id)
    context.log_fields["deleted"] = report["deleted"]
    return JsonResponse(report)


@router.operation("POST", "/messages/lexical_search", LexicalPage, READER)
async def search_messages_by_words(body: LexicalSearchRequest, context: Context) -> Response:
    """Search by words, the most relevant first; ties are ordered by time (the later first), then
    by `message_id`. All pages show the messages as of the first page.
    """
    scope = await context.scope(body.user_id, project=body.project)
    context.log_fields["query_chars"] = len(body.query_text)
    query = LexicalQuery(
        body.query_text, _message_filter(body), body.page_size, body.cursor, body.time
    )
    page = ScoredPage()
    async with context.tolerate_new_user(scope):
        page = await context.library.find_messages(scope, query)
    context.service.metrics.searches.labels("lexical").inc()
    return await page_response(
        [hit.message for hit in page.items],
        _select_fields(body.return_fields),
        next_cursor=page.next_cursor,
        highlights=[
            {
                "message_id": hit.message.message_id,
                "snippets": hit.snippets,
                "offsets": [{"start": start, "end": end} for start, end in hit.offsets],
            }
            for hit in page.items
        ],
        scores=[{"message_id": hit.message.message_id, "score": hit.score} for hit in page.items],
        **({"nearest": page.nearest} if page.nearest else {}),
    )


@router.operation("POST", "/messages/semantic_search", NearMessages, READER)
async def search_messages_by_meaning(body: SemanticSearchRequest, context: Context) -> Response:
    """Search by meaning: the messages with the highest cosine similarity; ties are ordered as in
    the lexical search.
    """
    scope = await context.scope(body.user_id, project=body.project)
    context.log_fields["query_chars"] = len(body.query_text or "")
    query = SemanticQuery(
        body.query_text,
        body.query_embedding,
        _message_filter(body),
        body.top_k,
        body.min_score,
        body.time,
    )
    page = ScoredPage()
    async with context.tolerate_new_user(scope):
        page = await context.library.nearest_messages(scope, query)
    context.service.metrics.searches.labels("semantic").inc()
    fields = _select_fields(body.return_fields)
    items = (
        to_json(
            {**{name: getattr(hit.message, name) for name in fields}, "semantic_score": hit.score}
        )
        for hit in page.items
    )
    return await items_response(
        items,
        **({"nearest": page.nearest} if page.nearest else {}),
        truncated=page.truncated,
        unembedded=page.unembedded,
    )


def _message_filter(body: LexicalSearchRequest | SemanticSearchRequest) -> MessageFilter:
    chosen = body.filter or SearchFilter()
    times = chosen.time_range or TimeRange()
    return MessageFilter(times.since, times.until, chosen.role)


def _select_fields(return_fields: Sequence[str] | None) -> Sequence[str]:
    if return_fields is None:
        return MESSAGE_FIELDS
    return [name for name in MESSAGE_FIELDS if name == "message_id" or name in return_fields]


def _with_message_ids(error: CallerError, entries: Sequence[ScopedMessage]) -> RequestError:
    """Return the error of a batch with the ids and positions of the rejected messages."""
    problem = problem_from_error(error)
    faults = problem.details.get("faults")
    if not faults:
        return RequestError(problem)
    ids = [entries[int(position)].message.message_id for position in faults]
    conflicts = problem.details.get("conflicts", ())
    items = [_receipt_item(message_id, WriteStatus.CONFLICT) for message_id in conflicts]
    details = {"message_ids": ids, "faults": faults} | ({"items": items} if items else {})
    return RequestError(replace(problem, details=details))


def _receipt_item(
    message_id: str, status: WriteStatus, redacted: Sequence[str] = ()
) -> dict[str, Any]:
    item = {"message_id": message_id, "stored": status is WriteStatus.NEW, "status": status}
    return {**item, "redacted": redacted} if redacted else item
