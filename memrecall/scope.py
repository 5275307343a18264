"""The scope of a request, set by trusted code and never by a tool or a model."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from memrecall.errors import Forbidden, InvalidArgument, NotFound
from memrecall.text_length import truncate_text
from memrecall.types import NAME_LENGTH, check_id, check_text

DEFAULT_NAME = "default"
SPACE_PREFIX = "space:"  # of the owner ids of spaces; no user id begins with it
KEY_MEMBER = "key:"  # of members that are keys
MOST_SPACES = 16  # of one scope: each is ranked for every search
TRUSTED = "*"  # the member that sweeps, restores and other work of the service acts as


class Permission(StrEnum):
    """Permissions beyond reading and writing the user's ordinary rows."""

    SENSITIVE = "sensitive"  # read memories marked as sensitive
    KNOWLEDGE = "knowledge"  # change the knowledge that all users of an agent share
    OPERATOR = "operator"  # service status, workspaces, dump, backup and restore


class SpaceRole(StrEnum):
    """What a member of a space may do; each role may also do what the one before it may."""

    READER = "reader"  # search and recall
    CONTRIBUTOR = "contributor"  # add, and correct their own
    ADMIN = "admin"  # correct and erase anything, change members, export, delete the space

    def includes(self, other: "SpaceRole") -> bool:
        """Return True if this role may do everything that the other may."""
        roles = list(SpaceRole)
        return roles.index(self) >= roles.index(other)

    def require(self, least: "SpaceRole") -> None:
        """Raise Forbidden if this role may do less than another."""
        if not self.includes(least):
            raise Forbidden(
                f"this needs the role {least.value!r} in the space, and yours is {self.value!r}",
                hint="Ask an admin of the space",
                reason="space_role",
                role=self.value,
            )


def space_owner(space_id: str) -> str:
    """Return the owner id of a space's rows; InvalidArgument if it cannot be the id of a space."""
    owner = f"{SPACE_PREFIX}{check_text('space', space_id)}"
    is_odd = "/" in space_id or space_id != space_id.strip() or space_of(space_id) is not None
    if not space_id.strip() or is_odd:
        raise InvalidArgument(
            f"space {truncate_text(space_id, 80)!r} is not the id of a space",
            hint="Use letters, digits and dashes, such as team-x",
        )
    return check_id("space", owner)


def parse_spaces(texts: Iterable[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the spaces that a client may read, and those named as `team-x:write`."""
    pairs = [(text.strip().removesuffix(":write"), text.strip()) for text in texts]
    writable = frozenset(name for name, text in pairs if name != text)
    return tuple(dict.fromkeys(name for name, _ in pairs)), writable


def space_of(owner: str) -> str | None:
    """Return the space that an owner id is of; None for the id of a user."""
    return owner.removeprefix(SPACE_PREFIX) if owner.startswith(SPACE_PREFIX) else None


def qualify_key(space_id: str, key: str) -> str:
    """Return the key of a space's row as it is named outside of the space."""
    return f"{SPACE_PREFIX}{space_id}/{key}"


def space_not_found() -> NotFound:
    """Return the error for a space that is unknown, or that the caller is no member of."""
    # The same for all of these: it must not tell strangers which spaces exist.
    return NotFound("there is no such space, or you are not a member of it")


def reserved_prefix(name: str) -> str | None:
    """Return how the id of a space or a key begins, if this one begins so in any case or width."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    prefixes = (prefix for prefix in (SPACE_PREFIX, KEY_MEMBER) if plain.startswith(prefix))
    return next(prefixes, None)


def check_user_id(user_id: str) -> str:
    """Return `user_id` if it can be the id of a user, and not of a space or a key."""
    if prefix := reserved_prefix(check_id("user_id", user_id)):
        raise InvalidArgument(
            f"user_id {truncate_text(user_id, 80)!r} begins with {prefix!r}",
            hint="Spaces are reached by their members: memory.space(…)",
        )
    return user_id


def check_member(member: str) -> str:
    """Return `member` if it is the id of a user, or `key:` and the id of a key."""
    if not check_id("member", member).startswith(KEY_MEMBER):
        check_user_id(member)
    if member == TRUSTED:
        raise InvalidArgument(f"member {member!r} is reserved", hint="Pass the id of a user")
    return member


def parse_space_role(role: SpaceRole | str) -> SpaceRole:
    """Return a role by its name."""
    if role not in list(SpaceRole):
        raise InvalidArgument(f"role {role!r} is not known", hint=f"Use {', '.join(SpaceRole)}")
    return SpaceRole(role)


@dataclass(frozen=True, slots=True)
class Scope:
    """One user's data, optionally of one agent, one session and one project.

    The user always filters, the agent if it is set. The session labels what is written and filters
    only where a caller requests it. The project labels what is written; what is read belongs to it
    or to none, unless `all_projects` are read. Reads also cover `spaces`, of which the user or the
    `member`, a key, must be a member. The scope of a space itself has the owner id of the space,
    its member and their role: only the store makes one, from a membership.
    """

    user_id: str
    agent_id: str | None = None
    session_id: str | None = None
    permissions: frozenset[Permission] = frozenset()
    project: str | None = None
    all_projects: bool = False
    spaces: tuple[str, ...] = ()
    member: str | None = None
    role: SpaceRole | None = None

    def __post_init__(self) -> None:
        if self.user_id in (None, ""):
            raise InvalidArgument("a scope needs a user_id", hint="Pass the id of one user")
        if self.role is None and self.user_id != self.member:  # a key may act as itself
            check_user_id(self.user_id)
        for name in ("user_id", "agent_id", "session_id"):
            if getattr(self, name) is not None:
                check_id(name, getattr(self, name))
        for space_id in self.spaces:
            space_owner(space_id)
        if len(self.spaces) > MOST_SPACES or len(set(self.spaces)) < len(self.spaces):
            raise InvalidArgument(
                f"a scope cannot cover these {len(self.spaces)} spaces",
                hint=f"Use at most {MOST_SPACES}, each once",
            )
        if self.role is None and self.member and not self.member.startswith(KEY_MEMBER):
            raise InvalidArgument(
                f"member {self.member!r} is not a key", hint="A user acts in spaces as themselves"
            )
        project = self.project
        if project is not None and not 1 <= len(check_text("project", project)) <= NAME_LENGTH:
            raise InvalidArgument(
                f"project {truncate_text(project, 80)!r} has {len(project)} characters",
                hint=f"Use 1 to {NAME_LENGTH}, such as github.com/acme/shop",
            )

    @property
    def read_project(self) -> str | None:
        """The project that reads are restricted to; None if they are not."""
        return None if self.all_projects else self.project

    def reader(self) -> list[str | None]:
        """Return what decides which rows are read, for cursors and caches."""
        project = [] if self.read_project is None else [self.read_project]
        return [self.user_id, self.agent_id, *project]

    @property
    def space(self) -> str | None:
        """The space that this is the scope of; None for a user's own scope."""
        return space_of(self.user_id)

    @property
    def is_shared(self) -> bool:
        """Whether reads in this scope cover a space."""
        return bool(self.spaces) or self.space is not None

    @property
    def author(self) -> str | None:
        """The member who writes in this scope, if it is the scope of a space."""
        return None if self.space is None or self.member == TRUSTED else self.member

    @classmethod
    def of_owner(cls, owner: str, agent_id: str | None = None, **fields: Any) -> "Scope":
        """Return the scope of a user or a space for the work of the service itself."""
        if reserved_prefix(owner):  # which an older version accepted
            fields |= {"member": TRUSTED, "role": SpaceRole.ADMIN}
        return cls(owner, agent_id, **fields)

    @property
    def own(self) -> "Scope":
        """The same scope without spaces."""
        return replace(self, spaces=()) if self.spaces else self

    def personal(self) -> "Scope | None":
        """Return the member's own scope, where what they asked is kept; None for other members."""
        if self.space is None:
            return self
        if self.member is None or self.member == TRUSTED or self.member.startswith(KEY_MEMBER):
            return None
        return replace(self, user_id=self.member, member=None, role=None)

    def split_key(self, key: str) -> tuple[str | None, str]:
        """Return the space of a key that names one which this scope covers, and the key in it."""
        name, slash, rest = key.removeprefix(SPACE_PREFIX).partition("/")
        is_shared = slash and key.startswith(SPACE_PREFIX) and name in self.spaces
        return (name, rest) if is_shared else (None, key)

    def require_role(self, least: SpaceRole) -> None:
        """Raise Forbidden if this is the scope of a space, and of a member with a lower role."""
        if self.role is not None:
            self.role.require(least)

    def allows(self, permission: Permission) -> bool:
        """Return True if the scope has a permission."""
        return permission in self.permissions

    def with_session(self, session_id: str) -> "Scope":
        """Return a scope of the same user and agent in another session."""
        return replace(self, session_id=session_id)


@dataclass(frozen=True, slots=True)
class ScopeBinding:
    """The part of the scope that trusted code has fixed; a call may add to it, not change it."""

    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    permissions: frozenset[Permission] = frozenset()
    project: str | None = None
    all_projects: bool = False
    spaces: tuple[str, ...] = ()
    member: str | None = None
    role: SpaceRole | None = None

    def __post_init__(self) -> None:
        # Checks the ids now, not at the first call.
        self.scope(DEFAULT_NAME if self.user_id is None else None)

    @property
    def has_user(self) -> bool:
        """True if calls need not name a user."""
        return self.user_id is not None

    def scope(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        project: str | None = None,
        run_id: str | None = None,
    ) -> Scope:
        """Return the scope of a call; without a user it is the user `default`.

        Raises InvalidArgument if neither the binding nor the call names a user, agent or session.
        """
        user = _join("user_id", self.user_id, user_id)
        agent = _join("agent_id", self.agent_id, agent_id)
        session = _join("session_id", self.session_id, named_session(session_id, run_id))
        if user is None and agent is None and session is None:
            raise InvalidArgument(
                "user_id, agent_id and session_id are all missing",
                hint="Pass user_id, or bind one: Memory(user_id=…)",
            )
        return Scope(
            DEFAULT_NAME if user is None else user,
            agent,
            session,
            self.permissions,
            _join("project", self.project, project),
            self.all_projects,
            self.spaces,
            self.member,
            self.role,
        )

    def narrow(
        self,
        user_id: str | None,
        agent_id: str | None,
        session_id: str | None,
        permissions: Iterable[Permission] | None,
        project: str | None,
        all_projects: bool,
        spaces: Iterable[str] | None,
        member: str | None,
    ) -> "ScopeBinding":
        """Return a binding with more ids bound and no permission that this one lacks."""
        granted = (
            self.permissions if permissions is None else frozenset(map(Permission, permissions))
        )
        if extra := sorted(granted - self.permissions):
            raise InvalidArgument(
                f"this memory does not have the permission {extra[0].value!r}",
                hint="Create the Memory with that permission",
            )
        return ScopeBinding(
            _join("user_id", self.user_id, user_id),
            _join("agent_id", self.agent_id, agent_id),
            _join("session_id", self.session_id, session_id),
            granted,
            _join("project", self.project, project),
            self.all_projects if self.project is not None else all_projects,
            self.spaces if spaces is None else tuple(dict.fromkeys(spaces)),
            _join("member", self.member, member),
            self.role,
        )


def _join(name: str, bound: str | None, value: str | None) -> str | None:
    if bound is not None and value is not None and value != bound:
        raise InvalidArgument(
            f"this memory is bound to {name} {bound!r} and cannot serve {value!r}",
            hint="Create another Memory for it",
        )
    return value if bound is None else bound


def named_session(session_id: str | None, run_id: str | None) -> str | None:
    """Return the session that a call names, as `session_id` or as `run_id`."""
    if session_id is not None and run_id is not None and session_id != run_id:
        raise InvalidArgument(
            f"session_id {session_id!r} and run_id {run_id!r} differ",
            hint="They mean the same: pass one of them",
        )
    return run_id if session_id is None else session_id
