"""Reading memories one by one and in lists, and finding out whose an id is."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.memory.display import MemoryResult, SearchResults
from memrecall.messages import Redact, redact_text
from memrecall.scope import DEFAULT_NAME, Permission, Scope
from memrecall.search import Hit
from memrecall.store import (
    EDITABLE_FIELDS,
    MemoryQuery,
    MessageFilter,
    PlanOutcome,
    Revision,
    Store,
)
from memrecall.types import MemoryRecord, Message, NewMemory, describe_validation_error, format_time


@dataclass(frozen=True, slots=True)
class Binding:
    """The scope that trusted code has fixed; a call may add to it and never change it."""

    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    permissions: frozenset[Permission] = frozenset()

    @classmethod
    def of(
        cls,
        user_id: str | None,
        agent_id: str | None,
        session_id: str | None,
        permissions: Iterable[Permission],
    ) -> "Binding":
        """A binding whose names are checked now, not at the first call."""
        Scope(user_id or DEFAULT_NAME, agent_id, session_id)
        return cls(user_id, agent_id, session_id, frozenset(map(Permission, permissions)))

    def scope(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
    ) -> Scope:
        """The scope of a call. Nobody named at all is an error; else the user may be `default`."""
        user = self._join("user_id", self.user_id, user_id)
        agent = self._join("agent_id", self.agent_id, agent_id)
        session = self._join("session_id", self.session_id, _one(session_id, run_id))
        if user is None and agent is None and session is None:
            raise InvalidArgument(
                "whose memory? user_id, agent_id and session_id are all missing",
                hint="Pass user_id, or bind one: Memory(user_id=…)",
            )
        return Scope(DEFAULT_NAME if user is None else user, agent, session, self.permissions)

    def narrowed(
        self,
        user_id: str | None,
        agent_id: str | None,
        session_id: str | None,
        permissions: Iterable[Permission] | None,
    ) -> "Binding":
        """The same with more bound, and no permission that this one has not."""
        joined = (
            self._join("user_id", self.user_id, user_id),
            self._join("agent_id", self.agent_id, agent_id),
            self._join("session_id", self.session_id, session_id),
        )
        wanted = (
            self.permissions if permissions is None else frozenset(map(Permission, permissions))
        )
        if extra := sorted(wanted - self.permissions):
            raise InvalidArgument(
                f"this memory has not the permission {extra[0].value!r} that is to be bound",
                hint="Make it with that permission",
            )
        return Binding.of(*joined, wanted)

    @property
    def has_user(self) -> bool:
        """Whether calls need not name a user."""
        return self.user_id is not None

    def _join(self, name: str, bound: str | None, given: str | None) -> str | None:
        if bound is not None and given is not None and given != bound:
            raise InvalidArgument(
                f"this memory is bound to {name} {bound!r} and cannot serve {given!r}",
                hint="Make another Memory for it",
            )
        return given if bound is None else bound


def _one(session_id: str | None, run_id: str | None) -> str | None:
    if session_id is not None and run_id is not None and session_id != run_id:
        raise InvalidArgument(
            f"session_id {session_id!r} and run_id {run_id!r} differ",
            hint="They mean the same: give one",
        )
    return run_id if session_id is None else session_id


_NAMES = {"memory": "content", "text": "content", "data": "content"}


def read_correction(
    data: object, fields: Mapping[str, Any], redact: Redact | None
) -> dict[str, Any]:
    """The fields to be changed, checked as those of a new memory are."""
    given: dict[str, Any] = dict(fields)
    if isinstance(data, Mapping):
        given = {**data, **given}
    elif data is not None:
        given = {"content": data, **given}
    given = {_NAMES.get(name, name): value for name, value in given.items()}
    unknown = sorted(set(given) - set(EDITABLE_FIELDS))
    if unknown:
        raise InvalidArgument(
            f"{unknown[0]!r} of a memory cannot be changed",
            hint=f"Use {', '.join(sorted(EDITABLE_FIELDS))}",
        )
    if not given:
        raise InvalidArgument("nothing is to be changed", hint="Give the new text, or a field")
    for name in ("content", "summary", "metadata"):
        if name in given:
            given[name] = redact_text(given[name], redact)
    try:
        checked = NewMemory.model_validate({"content": "-", **given})
    except ValidationError as error:
        raise InvalidArgument(describe_validation_error(error)) from None
    return {name: getattr(checked, name) for name in given}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)


def memory_item(record: MemoryRecord) -> dict[str, Any]:
    """A memory."""
    return {
        "id": record.memory_key,
        "memory": record.content,
        "kind": "memory",
        "user_id": record.user_id,
        "agent_id": record.agent_id,
        "session_id": record.session_id,
        "run_id": record.session_id,
        "metadata": record.metadata,
        "memory_type": record.memory_type,
        "layer": record.layer,
        "summary": record.summary,
        "keywords": [keyword.keyword for keyword in record.keywords],
        "subject": record.subject,
        "speaker": record.speaker,
        "field": record.field,
        "sensitive": record.sensitive,
        "pinned": record.pinned,
        "origin": record.provenance.origin.value,
        "actor": record.provenance.actor,
        "source_message_ids": list(record.source_message_ids),
        "valid_from": _time(record.valid_from),
        "valid_to": _time(record.valid_to),
        "expires_at": _time(record.expires_at),
        "supersedes": record.supersedes,
        "superseded_by": record.superseded_by,
        "superseded_reason": record.superseded_reason,
        "created_at": format_time(record.created_at),
        "updated_at": format_time(record.updated_at),
    }


def message_item(message: Message) -> dict[str, Any]:
    """A message, in the same shape."""
    return {
        "id": message.message_id,
        "memory": message.content,
        "kind": "message",
        "role": message.role.value,
        "user_id": message.user_id,
        "agent_id": message.agent_id,
        "session_id": message.session_id,
        "run_id": message.session_id,
        "metadata": message.metadata,
        "memory_type": "message",
        "speaker": message.speaker,
        "created_at": format_time(message.ts),
        "updated_at": format_time(message.create_time),
    }


def hit_item(hit: Hit, record: MemoryRecord | None, user_id: str) -> dict[str, Any]:
    """Something that a search found."""
    if record is not None:
        item = memory_item(record)
    else:
        item = {
            "id": hit.key,
            "memory": hit.content,
            "kind": hit.kind,
            "role": hit.role,
            "user_id": user_id,
            "session_id": hit.session_id,
            "run_id": hit.session_id,
            "metadata": hit.metadata,
            "memory_type": hit.memory_type,
            "speaker": hit.speaker,
            "created_at": format_time(hit.ts),
        }
    return {**item, "score": hit.score, "probability": hit.probability}


def outcome_item(outcome: PlanOutcome) -> dict[str, Any]:
    """What a write did."""
    item: dict[str, Any] = {
        "id": outcome.memory_key,
        "memory": outcome.text,
        "event": outcome.event,
    }
    if outcome.previous_key is not None:
        item["previous_id"] = outcome.previous_key
        item["previous_memory"] = outcome.previous_text
    if outcome.reason:
        item["reason"] = outcome.reason
    return item


def revision_item(revision: Revision) -> dict[str, Any]:
    """One step of a history."""
    return {
        "id": f"{revision.memory_key}#{revision.number}",
        "memory_id": revision.memory_key,
        "old_memory": revision.old_text,
        "new_memory": revision.new_text,
        "event": revision.event,
        "created_at": format_time(revision.at),
        "actor_id": revision.actor,
        "reason": revision.reason,
        "other_id": revision.other_key,
        "undone": revision.undone,
        "is_deleted": revision.event == "DELETE" and not revision.undone,
    }


LARGEST_LIMIT = 1_000
_MESSAGES_A_PAGE = 200
_USERS_A_PAGE = 200


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which memories, or messages, are to be listed."""

    wanted: MemoryQuery
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
        for user, agent in await store.find_owners(memory_id)
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
) -> MemoryResult | None:
    """A memory, or a message of a user who is known, by its id; None if there is none."""
    try:
        scope = await find_owner(store, binding, memory_id, user_id)
    except NotFound:
        return None
    found = await store.memories(scope).get_many([memory_id])
    if found:
        return MemoryResult(memory_item(found[0]))
    said = await store.timeline(scope).get_many([memory_id])
    return MemoryResult(message_item(said[0])) if said else None


async def list_items(store: Store, scope: Scope, request: ListRequest) -> SearchResults:
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
    return SearchResults(results=items, next_cursor=page.next_cursor)


async def _list_messages(store: Store, scope: Scope, request: ListRequest) -> SearchResults:
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
    return SearchResults(results=items, next_cursor=cursor)
