"""Reading memories one by one and in lists, and finding out whose an id is."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.memory.binding import Binding
from memrecall.memory.display import Found, MemoryItem
from memrecall.memory.shapes import memory_item, message_item
from memrecall.scope import Scope
from memrecall.store import MessageFilter, Store, Wanted

LARGEST_LIMIT = 1_000
_MESSAGES_A_PAGE = 200
_USERS_A_PAGE = 200


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which memories, or messages, are to be listed."""

    wanted: Wanted
    limit: int = 100
    cursor: str | None = None
    messages: bool = False
    filtered: bool = False


async def find_owner(store: Store, binding: Binding, memory_id: str, user_id: str | None) -> Scope:
    """The scope of a memory: the user bound or given, or else its only owner."""
    if binding.has_user or user_id is not None:
        return binding.scope(user_id)
    owners = [
        user
        for user, agent in await store.owners_of(memory_id)
        if binding.agent_id in (None, agent)
    ]
    if not owners:
        raise NotFound(f"there is no memory {memory_id!r}", hint="Check the id")
    if len(owners) > 1:
        raise Conflict(
            f"{len(owners)} users have a memory {memory_id!r}", hint="Say whose: user_id=…"
        )
    return binding.scope(owners[0])


async def each_user(store: Store) -> AsyncIterator[str]:
    """Every user who is not disabled, by id: for operators, who go over owners one by one."""
    after: str | None = ""
    while after is not None:
        page = await store.owners.list_users(limit=_USERS_A_PAGE, after=after)
        for user in page.items:
            if user["status"]:
                yield str(user["user_id"])
        after = page.next_after


async def get_item(
    store: Store, binding: Binding, memory_id: str, user_id: str | None
) -> MemoryItem | None:
    """A memory, or a message of a user who is known, by its id; None if there is none."""
    try:
        scope = await find_owner(store, binding, memory_id, user_id)
    except NotFound:
        return None
    found = await store.memories(scope).get_many([memory_id])
    if found:
        return MemoryItem(memory_item(found[0]))
    said = await store.timeline(scope).get_many([memory_id])
    return MemoryItem(message_item(said[0])) if said else None


async def list_items(store: Store, scope: Scope, request: ListRequest) -> Found:
    """A page of memories or messages, the latest first."""
    if not 1 <= request.limit <= LARGEST_LIMIT:
        raise InvalidArgument(
            f"limit {request.limit} is out of range", hint=f"Use 1 to {LARGEST_LIMIT}"
        )
    if request.messages:
        return await _list_messages(store, scope, request)
    page = await store.memory_list(scope).page(
        request.wanted, limit=request.limit, cursor=request.cursor
    )
    items = [memory_item(record) for record in page.items]
    return Found(results=items, next_cursor=page.next_cursor)


async def _list_messages(store: Store, scope: Scope, request: ListRequest) -> Found:
    if request.filtered:
        raise InvalidArgument("filters are on memories", hint="Leave them out with messages=True")
    wanted = MessageFilter(session_id=request.wanted.session_id)
    items: list[dict[str, Any]] = []
    cursor = request.cursor
    while len(items) < request.limit:
        size = min(_MESSAGES_A_PAGE, request.limit - len(items))
        page = await store.timeline(scope).page(wanted, page_size=size, cursor=cursor)
        items += [message_item(message) for message in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    return Found(results=items, next_cursor=cursor)
