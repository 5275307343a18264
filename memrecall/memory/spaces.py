"""Shared spaces of `AsyncMemory`: making, entering and managing them."""

import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import update_wrapper
from typing import Any, Self

from memrecall.errors import InvalidArgument
from memrecall.memory.base import APPLICATION, MemoryBase
from memrecall.scope import Scope, SpaceRole, space_owner
from memrecall.store import Store
from memrecall.types import format_time

_AUDIT_PAGE = 100
# What may be called on a space, and the role that it needs; anything else is refused.
_READER = (
    *("get", "get_all", "search", "retrieve", "history", "recall", "graph", "state", "job", "jobs"),
    *("space_info", "members", "grants", "audit", "leave", "who_can_see", "why_seen"),
    *("recaller", "long_term"),
)
_CONTRIBUTOR = (
    *("add", "write", "update", "merge", "delete", "forget", "undo", "purge", "delete_message"),
    *("process", "extract", "summarize", "checkpoint", "restore", "end_session", "short_term"),
)
_ADMIN = (
    *("set_member", "remove_member", "delete_space", "delete_all", "sweep", "export", "import_"),
    *("erase_project", "merge_entities", "split_entity", "correct_relation"),
)
ROLE_OF_VERB = {
    name: role
    for role, names in zip(SpaceRole, (_READER, _CONTRIBUTOR, _ADMIN), strict=True)
    for name in names
}


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
        actor = str(scope.member) if self._actor == APPLICATION else self._actor
        return self._with(binding, actor)

    async def space_info(self) -> dict[str, Any]:
        """Return the space that this memory is bound to, with the caller's role."""
        return (await (await self._store()).spaces.get(self._space_scope())).as_dict()

    async def members(self) -> list[dict[str, Any]]:
        """Return the members of the space, oldest first: id, role, name, since, granted_by."""
        found = await (await self._store()).spaces.members(self._space_scope())
        return [member.as_dict() for member in found]

    grants = members

    async def set_member(
        self, member: str, role: SpaceRole | str, *, name: str | None = None
    ) -> dict[str, Any]:
        """Add a user or key (`key:` and its id) to the space, or change their role or name."""
        store = await self._store()
        return (await store.spaces.set_member(self._space_scope(), member, role, name)).as_dict()

    async def remove_member(self, member: str) -> None:
        """Remove a member; what they wrote stays. Conflict for the last admin."""
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
        names = ("entry_id", "action", "actor", "target", "count")
        return [
            {name: getattr(entry, name) for name in names}
            | {"at": entry.at and format_time(entry.at)}
            for entry in page.items
        ]

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
