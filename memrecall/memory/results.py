"""Records as the plain dicts that `Memory` returns, and reading them by id and in lists."""

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, NotRequired, cast, get_args

from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from memrecall.errors import InvalidArgument
from memrecall.memory.mem0 import expiration_date
from memrecall.scope import Scope, space_of, space_owner
from memrecall.search import Hit
from memrecall.search.results import UserRow
from memrecall.store import (
    Graph,
    MemoryQuery,
    MessageFilter,
    PlanOutcome,
    Revision,
    Store,
    StoredEntity,
    StoredRelation,
)
from memrecall.store.database.cursors import LARGEST_LIST, require_limit
from memrecall.store.memories.records import NO_FILTER
from memrecall.types import (
    MemoryRecord,
    Message,
    NewMessage,
    format_time,
)

Kinds = Literal["all", "memories", "messages", "memory", "message"]
"""The singular means the same as the plural."""

DEEPEST = 6  # steps between entities
MOST_ENTITIES = 2_000  # that one query of the graph visits
_MESSAGES_PER_PAGE = 200
_USERS_PER_PAGE = 200
_IN_MESSAGES = "messages:"  # begins the cursor of a list that has reached the messages
_NOT_SHOWN = {"provenance", "deleted_at", "last_recalled_at", "author"}
_MESSAGE_FIELDS = {
    "role",
    "user_id",
    "agent_id",
    "session_id",
    "metadata",
    "speaker",
    "sequence_no",
    "project",
}


class QuotedSource(TypedDict):
    """A message that a memory, or a change of one, comes from."""

    id: str
    role: str
    speaker: str | None
    text: str
    created_at: str


class ConflictingClaim(TypedDict):
    """What the user said against a memory; `memory` is None if it is not visible any more."""

    id: str
    memory: NotRequired[str | None]
    space: NotRequired[str]
    author: NotRequired[str | None]


class StoredItem(TypedDict):
    """A memory, or a message in the same shape; a search adds scores. Times are texts."""

    id: str
    memory: str
    kind: Literal["memory", "message"]
    user_id: str
    agent_id: str
    session_id: str | None
    run_id: str | None
    project: str | None
    metadata: dict[str, Any]
    memory_type: str
    role: str | None
    speaker: str | None
    created_at: str
    updated_at: str
    # What belongs to a space.
    space: NotRequired[str]
    author: NotRequired[str | None]
    # Messages.
    sequence_no: NotRequired[int]
    # Memories; a message has `valid_to` if what it says was superseded.
    hash: NotRequired[str]
    actor_id: NotRequired[str | None]
    actor: NotRequired[str]
    origin: NotRequired[str]
    layer: NotRequired[str]
    summary: NotRequired[str]
    keywords: NotRequired[list[str]]
    subject: NotRequired[str | None]
    field: NotRequired[str | None]
    sensitive: NotRequired[bool]
    pinned: NotRequired[bool]
    truncated: NotRequired[bool]
    checked: NotRequired[bool]
    doubts: NotRequired[list[str]]
    conflicts_with: NotRequired[list[ConflictingClaim]]
    source_message_ids: NotRequired[list[str]]
    valid_from: NotRequired[str | None]
    valid_to: NotRequired[str | None]
    expires_at: NotRequired[str | None]
    expiration_date: NotRequired[str | None]
    supersedes: NotRequired[str | None]
    superseded_by: NotRequired[str | None]
    superseded_reason: NotRequired[str | None]
    # Results of a search.
    score: NotRequired[float]
    probability: NotRequired[float | None]
    below_threshold: NotRequired[bool]
    source: NotRequired[QuotedSource | None]
    score_details: NotRequired[dict[str, float]]


class UpdatedItem(StoredItem):
    """A memory after an update."""

    event: Literal["UPDATE"]
    message: str


class ItemPage(TypedDict):
    """A page of a list; without memories, `message` says how to list the `kept_messages`."""

    results: list[StoredItem]
    next_cursor: str | None
    kept_messages: NotRequired[int]
    message: NotRequired[str]


class FoundItems(TypedDict):
    """The results of a search, best first; `message` explains an empty or partial list."""

    results: list[StoredItem]
    total_found: int
    below_threshold: int
    message: str
    nearest: NotRequired[str]


class AddedChange(TypedDict):
    """What an `add` did to one memory."""

    id: str
    memory: str
    event: str
    actor_id: NotRequired[str | None]
    role: NotRequired[str]
    previous_id: NotRequired[str]
    previous_memory: NotRequired[str | None]
    reason: NotRequired[str]
    truncated: NotRequired[bool]
    conflicts_with: NotRequired[list[ConflictingClaim]]


class AddedItems(TypedDict):
    """The result of an `add`; of one in the background, the job and what was stored."""

    messages: list[str]
    stored: int
    statuses: list[str]
    redacted: NotRequired[list[list[str]]]
    results: NotRequired[list[AddedChange]]
    relations: NotRequired[list[dict[str, Any]]]
    problems: NotRequired[list[str]]
    message: NotRequired[str]
    processes: NotRequired[list[dict[str, Any]]]
    job_id: NotRequired[str]
    state: NotRequired[str]


class HistoryEntry(TypedDict):
    """One change of a memory, or of one that it took the place of."""

    id: str
    memory_id: str
    old_memory: str | None
    new_memory: str | None
    event: str
    created_at: str
    updated_at: str
    actor_id: str
    reason: str
    other_id: str | None
    undone: bool
    is_deleted: bool
    said: list[QuotedSource]


def covered_kinds(kinds: str) -> frozenset[str]:
    """Return the kinds that `kinds` covers: "memory", "message" or both."""
    if kinds not in get_args(Kinds):
        raise InvalidArgument(f"kinds {kinds!r} is not known", hint="Use memories, messages or all")
    if kinds == "all":
        return frozenset({"memory", "message"})
    return frozenset({"memory" if kinds in ("memory", "memories") else "message"})


def memory_item(record: MemoryRecord) -> StoredItem:
    """Return a memory as a dict, times as text."""
    fields = record.model_dump(mode="json", exclude=_NOT_SHOWN)
    role = record.metadata.get("role")
    item = {
        "id": fields.pop("memory_key"),
        "memory": fields.pop("content"),
        "kind": "memory",
        "hash": hashlib.md5(record.content.encode(), usedforsecurity=False).hexdigest(),
        **fields,
        "run_id": record.session_id,
        "actor_id": record.speaker,
        "role": role if isinstance(role, str) else None,
        "expiration_date": expiration_date(record.expires_at),
        "keywords": [keyword.keyword for keyword in record.keywords],
        "origin": record.provenance.origin.value,
        "actor": record.provenance.actor,
        "conflicts_with": [{"id": key} for key in record.provenance.conflicts_with],
        "checked": record.checked,
        **({} if record.checked else {"doubts": list(record.provenance.doubts)}),
        **_shared_fields(record),
    }
    return cast(StoredItem, item)


def _shared_fields(row: UserRow) -> dict[str, Any]:
    """Return what an item of a space says of its origin; nothing for a user's own."""
    space_id = space_of(row.user_id)
    return {} if space_id is None else {"space": space_id, "author": row.author}


async def name_authors(
    store: Store, items: Sequence[StoredItem] | Sequence[ConflictingClaim]
) -> None:
    """Replace the ids of authors by their names in the items of spaces."""
    shared = [item for item in items if item.get("author")]
    for space_id in {item["space"] for item in shared}:
        names = await store.spaces.names(space_owner(space_id))
        for item in shared:
            author = item["author"]
            if author is not None and item["space"] == space_id:
                item["author"] = names.get(author, author)


async def quote_conflicts(store: Store, scope: Scope, items: Sequence[StoredItem]) -> None:
    """Add what the user said to the items of claims that conflict with it."""
    conflicts = [conflict for item in items for conflict in item.get("conflicts_with", ())]
    if not conflicts:
        return
    records = await store.memories(scope).get_many([conflict["id"] for conflict in conflicts])
    by_key = {record.memory_key: record for record in records}
    for conflict in conflicts:
        record = by_key.get(conflict["id"])
        conflict["memory"] = record.content if record else None  # deleted, or not visible
        space_id = space_of(record.user_id) if record else None
        if record and space_id is not None:
            conflict["space"] = space_id
            conflict["author"] = record.author
    await name_authors(store, conflicts)


def message_item(message: Message) -> StoredItem:
    """Return a message as a dict of the same shape as a memory."""
    item = {
        "id": message.message_id,
        "memory": message.content,
        "kind": "message",
        **message.model_dump(mode="json", include=_MESSAGE_FIELDS),
        "run_id": message.session_id,
        "memory_type": "message",
        "created_at": format_time(message.ts),
        "updated_at": format_time(message.create_time),
        **_shared_fields(message),
    }
    return cast(StoredItem, item)


def hit_item(hit: Hit, row: UserRow) -> StoredItem:
    """Return a search hit, which is a memory or a message, as a dict."""
    item = message_item(row) if isinstance(row, Message) else memory_item(row)
    if hit.kind == "message" and hit.valid_to is not None:  # what it says was superseded
        item["valid_to"] = hit.valid_to.isoformat()
    if hit.kind == "memory":
        item["conflicts_with"] = [{"id": key} for key in hit.conflicts_with]
    if hit.space is not None:
        item["author"] = hit.author
    item["score"] = hit.score
    item["probability"] = hit.probability
    if hit.below_threshold:
        item["below_threshold"] = True
    return item


def score_details(hit: Hit, threshold: float) -> dict[str, float]:
    """Return the parts of a hit's score, with mem0's names for those that it has too."""
    named = {"semantic_score": hit.why.cosine, "final_score": hit.score, "threshold": threshold}
    return {**hit.why.as_dict(), **named}


def outcome_item(outcome: PlanOutcome, source: NewMessage | None = None) -> AddedChange:
    """Return the outcome of one write as a dict, with the author of the message it stored."""
    item: AddedChange = {
        "id": cast(str, outcome.memory_key),  # only what changed nothing has none
        "memory": outcome.text,
        "event": outcome.event,
    }
    if source is not None:
        item["actor_id"] = source.speaker
        item["role"] = source.role.value
    if outcome.previous_key is not None:
        item["previous_id"] = outcome.previous_key
        item["previous_memory"] = outcome.previous_text
    if outcome.reason:
        item["reason"] = outcome.reason
    if outcome.truncated:
        item["truncated"] = True
    if outcome.conflicts_with:
        item["conflicts_with"] = [{"id": key} for key in outcome.conflicts_with]
    return item


def revision_item(revision: Revision, messages: Mapping[str, Message]) -> HistoryEntry:
    """Return one entry of a change history as a dict, with the messages that it comes from."""
    stated = [messages[key] for key in revision.source_message_ids if key in messages]
    return {
        "id": f"{revision.memory_key}#{revision.number}",
        "memory_id": revision.memory_key,
        "old_memory": revision.old_text,
        "new_memory": revision.new_text,
        "event": revision.event,
        "created_at": format_time(revision.at),
        "updated_at": format_time(revision.at),
        "actor_id": revision.actor,
        "reason": revision.reason,
        "other_id": revision.other_key,
        "undone": revision.undone,
        "is_deleted": revision.new_text is None and not revision.undone,
        "said": [quote_message(message) for message in stated],
    }


def quote_message(message: Message) -> QuotedSource:
    """Return a message as what a memory or a change of one comes from."""
    return {
        "id": message.message_id,
        "role": message.role.value,
        "speaker": message.speaker,
        "text": message.content,
        "created_at": format_time(message.ts),
    }


async def list_kinds(
    store: Store,
    query: MemoryQuery,
    kinds: frozenset[str],
    scope: Scope,
    limit: int,
    cursor: str | None,
) -> ItemPage:
    """Return a page of memories, of messages, or of all memories and then all messages.

    A first page without memories has the number of messages.
    """
    is_in_messages, inner = "memory" not in kinds, cursor
    if len(kinds) > 1 and cursor is not None and cursor.startswith(_IN_MESSAGES):
        is_in_messages, inner = True, cursor.removeprefix(_IN_MESSAGES) or None
    if not is_in_messages:
        page = await _list_memories(store, query, scope, limit, inner)
        if "message" not in kinds:
            if not page["results"] and cursor is None and not query.deleted:
                page["kept_messages"] = await store.timeline(scope).count(query.session_id)
            return page
        left = limit - len(page["results"])
        if page["next_cursor"] is not None or not left:
            return {**page, "next_cursor": page["next_cursor"] or _IN_MESSAGES}
        rest = await _list_messages(store, query, scope, left, None)
        return _in_messages(rest, page["results"])
    page = await _list_messages(store, query, scope, limit, inner)
    return page if "memory" not in kinds else _in_messages(page, ())


def _in_messages(page: ItemPage, before: Sequence[StoredItem]) -> ItemPage:
    """Return a page of messages after memories, with a cursor that says so."""
    cursor = page["next_cursor"]
    following = None if cursor is None else _IN_MESSAGES + cursor
    return {"results": [*before, *page["results"]], "next_cursor": following}


def mention_messages(page: ItemPage) -> ItemPage:
    """Return a page that says how to list the messages, if it has none but they are kept."""
    if not page.get("kept_messages"):
        return page
    count = page["kept_messages"]
    kept = "1 message is kept" if count == 1 else f"{count} messages are kept"
    return {**page, "message": f'no memories; {kept}: list them with kinds="messages"'}


async def _list_memories(
    store: Store, query: MemoryQuery, scope: Scope, limit: int, cursor: str | None
) -> ItemPage:
    """Return a page of memories, newest first."""
    page = await store.memories(scope).page(query, limit=limit, cursor=cursor)
    items = [memory_item(record) for record in page.items]
    await name_authors(store, items)
    await quote_conflicts(store, scope, items)
    return {"results": items, "next_cursor": page.next_cursor}


async def _list_messages(
    store: Store, query: MemoryQuery, scope: Scope, limit: int, cursor: str | None
) -> ItemPage:
    """Return a page of messages, newest first."""
    if query.filter != NO_FILTER:
        raise InvalidArgument(
            "a list of messages takes no filters", hint='Search with kinds="messages" instead'
        )
    message_filter = MessageFilter(session_id=query.session_id)
    items: list[StoredItem] = []
    while len(items) < limit:
        size = min(_MESSAGES_PER_PAGE, limit - len(items))
        page = await store.timeline(scope).page(
            message_filter, page_size=size, cursor=cursor, hidden=query.deleted
        )
        items += [message_item(message) for message in page.items]
        cursor = page.next_cursor
        if cursor is None or len(page.items) < size:  # the last page, or one of many bytes
            break
    await name_authors(store, items)
    return {"results": items, "next_cursor": cursor}


def relation_item(relation: StoredRelation) -> dict[str, Any]:
    """Return a relation as a dict, times as text."""
    fields = to_jsonable_python(relation)
    return {"id": fields.pop("relation_id"), **fields}


def entity_item(entity: StoredEntity) -> dict[str, Any]:
    """Return an entity as a dict, with the messages that gave it other names if there are any."""
    item = {"name": entity.name, "type": entity.type, "aliases": list(entity.aliases)}
    sources = {name: list(ids) for name, ids in entity.alias_sources.items()}
    return {**item, "alias_sources": sources} if sources else item


async def list_entities(graph: Graph, limit: int, cursor: str | None) -> dict[str, Any]:
    """Return a page of entities with their types and aliases, oldest first."""
    require_limit("limit", limit, LARGEST_LIST)
    page = await graph.page(limit=limit + 1, after=cursor)
    items = [entity_item(entity) for entity in page[:limit]]
    next_cursor = page[limit - 1].entity_id if len(page) > limit else None
    return {"entities": items, "next_cursor": next_cursor}


async def list_relations(
    graph: Graph, name: str, *, depth: int, as_of: datetime | None, limit: int
) -> dict[str, Any]:
    """Return the relations within `depth` steps of an entity, nearest first."""
    require_limit("depth", depth, DEEPEST)
    require_limit("limit", limit, LARGEST_LIST)
    frontier = {entity.entity_id for entity in await graph.entities([name])}
    visited = set(frontier)
    relations: dict[str, StoredRelation] = {}
    for _ in range(depth):
        if not frontier or len(visited) > MOST_ENTITIES or len(relations) >= limit:
            break
        edges = await graph.around(sorted(frontier), as_of)
        relations.update({relation.relation_id: relation for _, _, relation in edges})
        ends = {end for source, destination, _ in edges for end in (source, destination)}
        frontier = ends - visited
        visited |= ends
    return {"relations": [relation_item(item) for item in list(relations.values())[:limit]]}


async def list_of_users(
    list_page: Callable[[Scope, int, str | None], Awaitable[ItemPage]],
    scopes: AsyncIterator[Scope],
    limit: int,
    cursor: str | None,
) -> ItemPage:
    """Return a page that goes from user to user; its cursor names the last user."""
    last_user, inner = ("", None) if cursor is None else _parse_user_cursor(cursor)
    items: list[StoredItem] = []
    kept = 0
    async for scope in scopes:
        is_last_user = scope.user_id == last_user  # may have been erased since the last page
        if scope.user_id < last_user or (is_last_user and inner is None):
            continue
        page = await list_page(scope, limit - len(items), inner if is_last_user else None)
        items += page["results"]
        kept += page.get("kept_messages", 0)
        if len(items) == limit or page["next_cursor"]:
            position = [scope.user_id, page["next_cursor"]]
            return {"results": items, "next_cursor": json.dumps(position)}
    whole: ItemPage = {"results": items, "next_cursor": None}
    if kept and not items and cursor is None:
        whole["kept_messages"] = kept
    return whole


def _parse_user_cursor(cursor: str) -> tuple[str, str | None]:
    with suppress(ValueError):
        match json.loads(cursor):
            case [str(user_id), str() | None as inner]:
                return user_id, inner
    raise InvalidArgument("the cursor is not valid", hint="Pass the next_cursor of the last page")


async def iterate_users(
    store: Store, *, disabled: bool = False, spaces: bool = False
) -> AsyncIterator[str]:
    """Yield the ids of all users in order; disabled ones and owner ids of spaces if requested."""
    async for page in store.owners.pages(_USERS_PER_PAGE, disabled=disabled):
        for user_id in page:
            if spaces or space_of(user_id) is None:
                yield user_id
