"""Shared spaces: the verbs of a space, keys of its rows, and copies of a user's memories in it."""

import hashlib
import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from memrecall.errors import Forbidden, NotFound
from memrecall.library.library import Library
from memrecall.scope import KEY_MEMBER, Permission, Scope, SpaceRole, qualify_key
from memrecall.store import Key, MemoryQuery
from memrecall.types import USER, MemoryRecord, Message, NewMemory, NewMessage

if TYPE_CHECKING:
    from memrecall.memory.memory import AsyncMemory

AnyMemory = TypeVar("AnyMemory", bound="AsyncMemory")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_COPY = "pro_"  # how the keys of promoted memories begin
_MESSAGE_COPY = "pm_"  # how the keys of their messages begin
_PROMOTED = "promoted"  # the session of messages that came with promoted memories
_THE_USER = re.compile(r"^(?:The )?[Uu]ser(?=\b)|^用户")  # how extracted memories begin
_COPIED = {
    "content",
    "summary",
    "memory_type",
    "layer",
    "keywords",
    "sensitive",
    "valid_from",
    "valid_to",
    "subject",
    "speaker",
    "field",
    "expires_at",
}
# What may be called on a space, and the role that it needs; anything else is refused.
ROLE_OF_VERB = {
    **dict.fromkeys(
        (
            "get",
            "get_all",
            "search",
            "retrieve",
            "history",
            "recall",
            "graph",
            "job",
            "jobs",
            "extractions",
            "space_info",
            "members",
            "grants",
            "audit",
            "leave",
            "who_can_see",
            "why_seen",
        ),
        SpaceRole.READER,
    ),
    **dict.fromkeys(
        (
            "add",
            "write",
            "update",
            "delete",
            "forget",
            "undo",
            "purge",
            "delete_message",
            "process",
            "extract",
            "summarize",
            "extract_stored",
            "undo_extraction",
        ),
        SpaceRole.CONTRIBUTOR,
    ),
    **dict.fromkeys(
        (
            "set_member",
            "remove_member",
            "delete_space",
            "delete_all",
            "sweep",
            "export",
            "import_",
            "erase_project",
            "end_session",
        ),
        SpaceRole.ADMIN,
    ),
}


def accepts_space_keys(
    method: Callable[Concatenate[AnyMemory, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[AnyMemory, Arguments], Coroutine[Any, Any, Result]]:
    """Let a method's first argument be the id of a space's row, as searches return it."""
    name = list(inspect.signature(method).parameters)[1]

    async def call(self: AnyMemory, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        key = str(args[0] if args else kwargs.get(name))
        space_id = self._scope().split_key(key)[0] if self._binding.spaces else None
        if space_id is None:
            return await method(self, *args, **kwargs)
        prefix = qualify_key(space_id, "")
        inside: Any = await self.enter(space_id)
        options: dict[str, Any] = {**kwargs, **dict(zip([name], args, strict=False))}
        self._scope(options.pop("user_id", None))  # refuses another user than the bound one
        rest = [_strip(value, prefix) for value in args[1:]]
        options = {n: _strip(value, prefix) for n, value in options.items()}
        plain = str(options.pop(name)).removeprefix(prefix)
        changed: Any = method  # its arguments are no longer those that it was called with
        result: Result = _qualify_ids(await changed(inside, plain, *rest, **options), prefix)
        return result

    return update_wrapper(call, method)


def _strip(value: Any, prefix: str) -> Any:
    """Return ids in a list as they are named in their space."""
    is_list = isinstance(value, list | tuple)
    return [str(key).removeprefix(prefix) for key in value] if is_list else value


def _qualify_ids(result: Any, prefix: str) -> Any:
    """Return items with ids that name their space."""
    if isinstance(result, list):
        return [_qualify_ids(item, prefix) for item in result]
    if not isinstance(result, dict):
        return result
    ids = {n: prefix + result[n] for n in ("id", "memory_id") if result.get(n)}
    conflicts = {n: _qualify_ids(result[n], prefix) for n in ("conflicts_with",) if n in result}
    return {**result, **ids, **conflicts}


def _copy_key(scope: Scope, prefix: str, key: str) -> str:
    """Return the key of a row's copy: the same one each time, and no hint at the original."""
    return prefix + hashlib.sha256(f"{scope.user_id}\n{key}".encode()).hexdigest()[:24]


def _copy_memory(scope: Scope, record: MemoryRecord, name: str | None) -> NewMemory:
    """Return the copy; what is known about "the user" is about the member in a space."""
    key = _copy_key(scope, _COPY, record.memory_key)
    fields = record.model_dump(include=_COPIED)
    if record.subject in (None, USER):
        fields |= {"subject": name if record.subject else None, "speaker": record.speaker or name}
    if record.subject == USER and name:
        fields |= {text: _THE_USER.sub(name, fields[text]) for text in ("content", "summary")}
    return NewMemory(memory_key=key, **fields, metadata=record.metadata)


class Sharing:
    """What a user shares with spaces: copies of memories, and who can read a row."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self._library = library
        self._store = library.store
        self._scope = scope

    async def who_can_see(self, memory_id: str) -> dict[str, Any]:
        """Return who can read a memory or message; NotFound if the caller cannot."""
        scope, store = self._scope, self._store
        row = await self._find_row(scope, memory_id)
        needed = {Permission.SENSITIVE} if getattr(row, "sensitive", False) else set()

        def can_read(key: Key | None) -> bool:
            if key is None:
                return False
            is_of_agent = bool(scope.space) or key.agent_id in (None, row.agent_id)
            return is_of_agent and key.permissions >= needed

        members = await store.spaces.members(scope) if scope.space else []
        readers = [
            member
            for member in members
            if member.kind != "key"
            or can_read(await store.keys.find_valid(member.member.removeprefix(KEY_MEMBER)))
        ]
        users = [member.member for member in members] or [scope.user_id]
        keys = {key.key_id: key for user in users for key in await store.keys.of_user(user)}
        return {
            "id": memory_id,
            "owner": {
                "kind": "space" if scope.space else "user",
                "id": scope.space or scope.user_id,
            },
            "members": [member.as_dict() for member in readers],
            "keys": [
                {"key_id": key.key_id, "name": key.name, "read_only": key.read_only}
                for key in filter(can_read, keys.values())
            ],
        }

    async def why_seen(self, key: str) -> list[dict[str, Any]]:
        """Return why the caller can read a hit, or each item of a recall by its trace id."""
        traces = self._store.traces(self._scope.personal() or self._scope)
        try:
            trace = await traces.get(key)
        except NotFound:
            return [await self._why_seen(key)]
        reasons = []
        for item in trace.body.get("memories", ()):
            name = str(item["memory_key"])
            reasons.append({"id": name, "space": None, "reason": "no longer readable"})
            with suppress(NotFound):
                reasons[-1] = await self._why_seen(name)
        return reasons

    async def _why_seen(self, key: str) -> dict[str, Any]:
        inside, plain = await self._library.resolve_key(self._scope, key)
        row = await self._find_row(inside, plain)
        if inside.space is None:
            return {"id": key, "space": None, "reason": "it is the user's own"}
        members = {member.member: member for member in await self._store.spaces.members(inside)}
        caller = members[str(inside.member)].as_dict()
        author = members.get(row.author or "")
        return {
            "id": key,
            "space": inside.space,
            "reason": f"{caller['member']} is a member of the space ({caller['role']})",
            **{name: caller[name] for name in ("member", "role", "since", "granted_by")},
            "author": (author.name or author.member) if author else row.author,
        }

    async def _find_row(self, scope: Scope, key: str) -> MemoryRecord | Message:
        for memory in await self._store.memories(scope).get_many([key]):
            return memory
        for message in await self._store.timeline(scope).get_many([key]):
            return message
        raise NotFound(f"there is no memory {key!r}", hint="Check the id")

    async def promote(self, memory_id: str, space_id: str) -> dict[str, Any]:
        """Copy a memory with its messages to a space; again, return the same copy."""
        store, own = self._store, self._scope.own
        record = await store.memories(own).get(memory_id)
        messages = await store.timeline(own).get_many(record.source_message_ids)
        inside = await store.spaces.enter(self._scope, space_id)
        copied = {"content", "role", "ts", "speaker", "content_type", "metadata"}
        copies = [
            NewMessage(
                message_id=_copy_key(own, _MESSAGE_COPY, message.message_id),
                **message.model_dump(include=copied),
            )
            for message in messages
        ]
        signed = await store.spaces.sign(inside, copies)
        names = await store.spaces.names(inside.user_id)
        copy = _copy_memory(own, record, names.get(inside.author or ""))
        changes = store.changes(inside.with_session(_PROMOTED))
        is_new = await changes.promote(copy, signed, record.provenance.origin)
        if is_new:
            self._library.vectors.expect({inside.user_id: 1 + len(signed)})
        copy_key = str(copy.memory_key)
        stored = await store.memories(inside).get_any(copy_key)
        return {
            "id": qualify_key(space_id, copy_key),
            "memory": stored.content,
            "event": "PROMOTE",
            "space": space_id,
            "promoted_from": memory_id,
            "is_new": is_new,
        }

    async def demote(self, memory_id: str, space_id: str) -> dict[str, Any]:
        """Erase a copy that the user promoted to a space, with messages only it names."""
        store = self._store
        inside = await store.spaces.enter(self._scope, space_id)
        key = memory_id.removeprefix(qualify_key(space_id, ""))
        if not key.startswith(_COPY):
            key = _copy_key(self._scope.own, _COPY, key)
        try:
            record = await store.memories(inside).get_any(key)
        except NotFound:  # it was purged, and its messages may be left
            if not await self._take_messages_back(inside, key):
                raise NotFound(
                    f"{space_id!r} has no copy of {memory_id!r}", hint="Check the id and the space"
                ) from None
        else:
            citing = await store.memories(inside).citing(record.source_message_ids)
            is_alone = all(other.memory_key == key for other in citing)
            if record.author != inside.author:
                raise Forbidden(
                    "another member promoted this", hint="Only its author can take it back"
                )
            await self._library.purge(inside, [key], sources=is_alone, actor=str(inside.member))
        await store.spaces.log(inside, "demote", key)
        return {"id": qualify_key(space_id, key), "event": "DEMOTE", "space": space_id}

    async def _take_messages_back(self, inside: Scope, key: str) -> bool:
        """Erase the messages that came with a purged copy, unless another memory names them."""
        own = self._scope.own
        originals, shared = self._store.memories(own), self._store.memories(inside)
        names = [
            *await originals.keys(MemoryQuery(superseded=True)),
            *await originals.keys(MemoryQuery(deleted=True)),
        ]
        original = next((name for name in names if _copy_key(own, _COPY, name) == key), None)
        if original is None:
            return False
        sources = (await originals.get_any(original)).source_message_ids
        copies = [_copy_key(own, _MESSAGE_COPY, source) for source in sources]
        cited = {name for m in await shared.citing(copies) for name in m.source_message_ids}
        uncited = [
            message.message_id
            for message in await self._store.timeline(inside).get_many(copies)
            if message.author == inside.author and message.message_id not in cited
        ]
        for message_id in uncited:
            await self._library.purge_message(inside, message_id, str(inside.member))
        return bool(uncited)


class SpaceMemory:
    """A space as one of its members sees it: the verbs of `AsyncMemory`, bound to the space.

    Each call enters the space first, so that a lost membership or role counts from the next call
    on.
    """

    def __init__(self, memory: "AsyncMemory", space_id: str) -> None:
        self._memory = memory
        self.space_id = space_id

    def bind(self, **scope: Any) -> "SpaceMemory":
        """Return the same space for a narrower scope, such as one session."""
        return SpaceMemory(self._memory.bind(**scope), self.space_id)

    def __getattr__(self, name: str) -> Any:
        role = ROLE_OF_VERB.get(name)
        if role is None:
            raise AttributeError(f"a space has no {name!r}", name=name, obj=self)
        method: Callable[..., Any] = getattr(type(self._memory), name)
        if inspect.isasyncgenfunction(method):

            async def iterate(*args: Any, **options: Any) -> AsyncIterator[Any]:
                inside = await self._memory.enter(self.space_id, role)
                async for item in method(inside, *args, **options):
                    yield item

            return update_wrapper(iterate, method)

        async def call(*args: Any, **options: Any) -> Any:
            least = role
            if name == "remove_member" and args == (self._memory._own_member(),):
                least = SpaceRole.READER  # who removes themselves leaves
            return await method(await self._memory.enter(self.space_id, least), *args, **options)

        return update_wrapper(call, method)
