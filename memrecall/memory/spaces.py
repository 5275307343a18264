"""Shared spaces of `AsyncMemory`: making, entering and managing them."""

import hashlib
import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, replace
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from memrecall.errors import Forbidden, InvalidArgument, NotFound
from memrecall.memory.base import MemoryBase
from memrecall.scope import KEY_MEMBER, Permission, Scope, SpaceRole, qualify_key, space_owner
from memrecall.store import Key, MemoryQuery, Store
from memrecall.types import USER, MemoryRecord, Message, NewMemory, NewMessage, format_time

AnyMemory = TypeVar("AnyMemory", bound="SpacesMixin")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_AUDIT_PAGE = 100
_COPY = "pro_"  # how the keys of promoted memories begin
_MESSAGE_COPY = "pm_"  # and those of their messages
_PROMOTED = "promoted"  # the session of messages that came with promoted memories
_THE_USER = re.compile(r"^(?:The )?[Uu]ser(?=\b)|^用户")  # how extracted memories begin
_COPIED = {
    *("content", "summary", "memory_type", "layer", "keywords", "sensitive", "valid_from"),
    *("valid_to", "subject", "speaker", "field", "expires_at"),
}
# What may be called on a space, and the role that it needs; anything else is refused.
_READER = (
    *("get", "get_all", "search", "retrieve", "history", "recall", "graph", "job", "jobs"),
    *(
        "extractions",
        "space_info",
        "members",
        "grants",
        "audit",
        "leave",
        "who_can_see",
        "why_seen",
    ),
)
_CONTRIBUTOR = (
    *("add", "write", "update", "delete", "forget", "undo", "purge", "delete_message"),
    *("process", "extract", "summarize", "extract_stored", "undo_extraction"),
)
_ADMIN = (
    *("set_member", "remove_member", "delete_space", "delete_all", "sweep", "export", "import_"),
    *("erase_project", "end_session"),
)
ROLE_OF_VERB = {
    name: role
    for role, names in zip(SpaceRole, (_READER, _CONTRIBUTOR, _ADMIN), strict=True)
    for name in names
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


def _copy_message(scope: Scope, message: Message) -> NewMessage:
    names = {"content", "role", "ts", "speaker", "content_type", "metadata"}
    key = _copy_key(scope, _MESSAGE_COPY, message.message_id)
    return NewMessage(message_id=key, **message.model_dump(include=names))


def _copy_memory(scope: Scope, record: MemoryRecord, name: str | None) -> NewMemory:
    """Return the copy; what is known about "the user" is about the member in a space."""
    key = _copy_key(scope, _COPY, record.memory_key)
    fields = record.model_dump(include=_COPIED)
    if record.subject in (None, USER):
        fields |= {"subject": name if record.subject else None, "speaker": record.speaker or name}
    if record.subject == USER and name:
        fields |= {text: _THE_USER.sub(name, fields[text]) for text in ("content", "summary")}
    return NewMemory(memory_key=key, **fields, metadata=record.metadata)


class SpacesMixin(MemoryBase):
    """The spaces of a user, and the members of the space that a memory is bound to."""

    async def create_space(
        self, space_id: str, *, name: str = "", description: str = ""
    ) -> dict[str, Any]:
        """Create a space whose first admin is the bound user or key; Conflict if it is taken."""
        store = (await self._open()).library.store
        space = await store.spaces.create(
            space_id, name=name or space_id, description=description, admin=self._own_member()
        )
        return space.as_dict()

    async def spaces(self) -> list[dict[str, Any]]:
        """Return the spaces of the bound user or key by id, with the role in each."""
        store = (await self._open()).library.store
        return [space.as_dict() for space in await store.spaces.list_of(self._own_member())]

    async def invitations(self) -> list[dict[str, Any]]:
        """Return the spaces that the bound user is invited to: name, role, by whom and when."""
        store = (await self._open()).library.store
        return [each.as_dict() for each in await store.spaces.invitations_of(self._own_user())]

    async def accept_invitation(self, space_id: str) -> dict[str, Any]:
        """Join a space that the bound user is invited to; NotFound if they are not."""
        store = (await self._open()).library.store
        return (await store.spaces.accept(self._own_user(), space_id)).as_dict()

    async def decline_invitation(self, space_id: str) -> None:
        """Decline to join a space that the bound user is invited to; NotFound if they are not."""
        store = (await self._open()).library.store
        await store.spaces.decline(self._own_user(), space_id)

    def space(self, space_id: str) -> "SpaceMemory":
        """Return a space of the bound user; each call on it checks the membership."""
        space_owner(space_id)
        self._own_member()
        return SpaceMemory(self, space_id)

    async def enter(self, space_id: str, least: SpaceRole = SpaceRole.READER) -> Self:
        """Return a memory bound to a space, for one request.

        NotFound if the bound user is not a member, Forbidden if their role is below `least`.
        """
        self._own_member()
        store = (await self._open()).library.store
        scope = await store.spaces.enter(self._scope(), space_id)
        scope.require_role(least)
        binding = replace(
            self._binding,
            user_id=scope.user_id,
            agent_id=None,
            spaces=(),
            member=scope.member,
            role=scope.role,
        )
        return self._with(binding, str(scope.member))

    @accepts_space_keys
    async def who_can_see(self, memory_id: str) -> dict[str, Any]:
        """Return who can read a memory or message: its owner, and the members or keys with roles.

        NotFound if the caller cannot read it themselves.
        """
        scope, store = self._scope(), await self._store()
        row = await self._find_row(scope, memory_id)
        needed = {Permission.SENSITIVE} if getattr(row, "sensitive", False) else set()

        def can_read(key: Key | None) -> bool:
            is_of_agent = key and (scope.space or key.agent_id in (None, row.agent_id))
            return bool(is_of_agent and key and key.permissions >= needed)

        owner = {"kind": "space" if scope.space else "user", "id": scope.space or scope.user_id}
        members = await store.spaces.members(scope) if scope.space else []
        bots = {m: m.member.removeprefix(KEY_MEMBER) for m in members if m.kind == "key"}
        blind = {m for m, key in bots.items() if not can_read(await store.keys.find_valid(key))}
        users = [member.member for member in members] or [scope.user_id]
        keys = {key.key_id: key for user in users for key in await store.keys.of_user(user)}
        fields = [
            {"key_id": key.key_id, "name": key.name, "read_only": key.read_only}
            for key in filter(can_read, keys.values())
        ]
        readers = [member.as_dict() for member in members if member not in blind]
        return {"id": memory_id, "owner": owner, "members": readers, "keys": fields}

    async def why_seen(self, key: str) -> list[dict[str, Any]]:
        """Return why the caller can read a hit, or each item of a recall by its trace id."""
        scope, store = self._scope(), await self._store()
        try:
            trace = await store.traces(scope.personal() or scope).get(key)
        except NotFound:
            return [await self._why_seen(scope, key)]
        reasons = []
        for item in trace.body.get("memories", ()):
            name = str(item["memory_key"])
            reasons.append({"id": name, "space": None, "reason": "no longer readable"})
            with suppress(NotFound):
                reasons[-1] = await self._why_seen(scope, name)
        return reasons

    async def _why_seen(self, scope: Scope, key: str) -> dict[str, Any]:
        store = await self._store()
        inside, plain = await (await self._open()).library.resolve_key(scope, key)
        row = await self._find_row(inside, plain)
        if inside.space is None:
            return {"id": key, "space": None, "reason": "it is the user's own"}
        grants = {member.member: member for member in await store.spaces.members(inside)}
        names = {name: grant.name or name for name, grant in grants.items()}
        grant = grants[str(inside.member)].as_dict()
        reason = f"{grant['member']} is a member of the space ({grant['role']})"
        fields = {name: grant[name] for name in ("member", "role", "since", "granted_by")}
        author = names.get(row.author or "", row.author)
        return {"id": key, "space": inside.space, "reason": reason, **fields, "author": author}

    async def _find_row(self, scope: Scope, key: str) -> MemoryRecord | Message:
        store = await self._store()
        rows: list[Any] = await store.memories(scope).get_many([key])
        rows = rows or await store.timeline(scope).get_many([key])
        if not rows:
            raise NotFound(f"there is no memory {key!r}", hint="Check the id")
        return cast(MemoryRecord | Message, rows[0])

    async def promote(self, memory_id: str, space_id: str) -> dict[str, Any]:
        """Copy a memory of the bound user, with its messages, to a space.

        Promoting it again returns the same copy. `demote` takes it back.
        """
        library, own = (await self._open()).library, self._scope().own
        record = await library.store.memories(own).get(memory_id)
        messages = await library.store.timeline(own).get_many(record.source_message_ids)
        inside = await library.store.spaces.enter(self._scope(), space_id)
        copies = [_copy_message(own, message) for message in messages]
        signed = await library.store.spaces.sign(inside, copies)
        names = await library.store.spaces.names(inside.user_id)
        copy = _copy_memory(own, record, names.get(inside.author or ""))
        changes = library.store.changes(inside.with_session(_PROMOTED))
        is_new = await changes.promote(copy, signed, record.provenance.origin)
        if is_new:
            library.vectors.expect({inside.user_id: 1 + len(signed)})
        key = qualify_key(space_id, str(copy.memory_key))
        fields = {"space": space_id, "promoted_from": memory_id, "is_new": is_new}
        stored = await library.store.memories(inside).get_any(str(copy.memory_key))
        return {"id": key, "memory": stored.content, "event": "PROMOTE", **fields}

    async def demote(self, memory_id: str, space_id: str) -> dict[str, Any]:
        """Erase a copy that the bound user promoted to a space, with messages only it names.

        `memory_id` is that of the copy, or of the original.
        """
        library = (await self._open()).library
        inside = await library.store.spaces.enter(self._scope(), space_id)
        key = memory_id.removeprefix(qualify_key(space_id, ""))
        if not key.startswith(_COPY):
            key = _copy_key(self._scope().own, _COPY, key)
        try:
            record = await library.store.memories(inside).get_any(key)
        except NotFound:  # it was purged, and its messages may be left
            if not await self._take_messages_back(inside, key):
                hint = "Check the id and the space"
                raise NotFound(f"{space_id!r} has no copy of {memory_id!r}", hint=hint) from None
        else:
            citing = await library.store.memories(inside).citing(record.source_message_ids)
            is_alone = all(other.memory_key == key for other in citing)
            if record.author != inside.author:
                hint = "Only its author can take it back"
                raise Forbidden("another member promoted this", hint=hint)
            await library.purge(inside, [key], sources=is_alone, actor=str(inside.member))
        await library.store.spaces.log(inside, "demote", key)
        return {"id": qualify_key(space_id, key), "event": "DEMOTE", "space": space_id}

    async def _take_messages_back(self, inside: Scope, key: str) -> bool:
        """Erase the messages that came with a purged copy, unless another memory names them."""
        library, own = (await self._open()).library, self._scope().own
        originals, shared = library.store.memories(own), library.store.memories(inside)
        queries = (MemoryQuery(superseded=True), MemoryQuery(deleted=True))
        names = [name for query in queries for name in await originals.keys(query)]
        copied = [name for name in names if _copy_key(own, _COPY, name) == key]
        if not copied:
            return False
        sources = (await originals.get_any(copied[0])).source_message_ids
        copies = [_copy_key(own, _MESSAGE_COPY, source) for source in sources]
        cited = {name for m in await shared.citing(copies) for name in m.source_message_ids}
        stored = await library.store.timeline(inside).get_many(copies)
        left = [m.message_id for m in stored if m.author == inside.author]
        for message_id in (uncited := [name for name in left if name not in cited]):
            await library.purge_message(inside, message_id, str(inside.member))
        return bool(uncited)

    async def space_info(self) -> dict[str, Any]:
        """Return the space that this memory is bound to, with the caller's role."""
        return (await (await self._store()).spaces.get(self._space_scope())).as_dict()

    async def members(self) -> list[dict[str, Any]]:
        """Return the members of the space, oldest first: id, role, name, since, granted_by.

        To an admin also those who are invited, whose `status` is "invited" instead of "member".
        """
        scope, spaces = self._space_scope(), (await self._store()).spaces
        found = [*await spaces.members(scope), *await spaces.invited(scope)]
        return [member.as_dict() for member in found]

    grants = members

    async def set_member(
        self, member: str, role: SpaceRole | str, *, name: str | None = None, invite: bool = False
    ) -> dict[str, Any]:
        """Add a user or key (`key:` and its id) to the space, or change their role or name.

        With `invite`, a user who is not a member is one only when they accept. Pass it for whoever
        cannot speak for that user; without it, the application does.
        """
        scope, store = self._space_scope(), await self._store()
        kind, _, key_id = member.partition(":")
        if f"{kind}:" == KEY_MEMBER and await store.keys.find_valid(key_id) is None:
            raise NotFound(f"there is no valid key {key_id!r}", hint="See `memrecall keys list`")
        stored = await store.spaces.set_member(scope, member, role, name, invite=invite)
        return stored.as_dict()

    async def remove_member(self, member: str) -> None:
        """Remove a member, or withdraw an invitation; what they wrote stays.

        Conflict for the last admin.
        """
        await (await self._store()).spaces.remove_member(self._space_scope(), member)

    async def leave(self) -> None:
        """Leave the space; what the caller wrote stays. Conflict for the last admin."""
        scope = self._space_scope()
        await (await self._store()).spaces.remove_member(scope, str(scope.member))

    async def audit(
        self, *, limit: int = _AUDIT_PAGE, after: str | None = None
    ) -> list[dict[str, Any]]:
        """Return who changed what in the space, latest first, without contents."""
        page = await (await self._store()).audit(self._space_scope()).page(limit=limit, after=after)
        return [asdict(entry) | {"at": entry.at and format_time(entry.at)} for entry in page.items]

    async def delete_space(self, *, name: str) -> dict[str, int]:
        """Erase the space with everything in it; `name` must be its name."""
        scope, library = self._space_scope(), (await self._open()).library
        await library.store.spaces.require_name(scope, name)
        return (await library.erase_user(scope.user_id)).as_dict()

    async def _store(self) -> Store:
        return (await self._open()).library.store

    def _own_member(self) -> str:
        """Return the member that the bound user is in spaces."""
        scope = self._scope() if self._binding.has_user else None
        if scope is None or scope.space is not None:
            raise InvalidArgument(
                "spaces need a memory that is bound to a user", hint="Pass user_id to Memory"
            )
        return scope.member or scope.user_id

    def _own_user(self) -> str:
        """Return the bound user: a key answers no invitation of its own."""
        self._own_member()
        return self._scope().user_id

    def _space_scope(self) -> Scope:
        scope = self._scope() if self._binding.has_user else None
        if scope is None or scope.space is None:
            raise InvalidArgument("this memory is not bound to a space", hint="memory.space(…)")
        return scope


class SpaceMemory:
    """A space as one of its members sees it: the verbs of `AsyncMemory`, bound to the space.

    Each call enters the space first, so that a lost membership or role counts from the next call
    on.
    """

    def __init__(self, memory: SpacesMixin, space_id: str) -> None:
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
