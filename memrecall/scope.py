"""The scope of a request, set by trusted code and never by a tool or a model."""

from dataclasses import dataclass, replace
from enum import StrEnum

from memrecall.errors import InvalidArgument
from memrecall.types import check_id

DEFAULT_NAME = "default"


class Permission(StrEnum):
    """Permissions beyond reading and writing the user's ordinary rows."""

    SENSITIVE = "sensitive"  # read memories marked as sensitive
    KNOWLEDGE = "knowledge"  # change the knowledge that all users of an agent share
    OPERATOR = "operator"  # service status, workspaces, dump, backup and restore


@dataclass(frozen=True, slots=True)
class Scope:
    """One user's data, optionally of one agent and one session.

    The user always filters, the agent if it is set. The session labels what is written and filters
    only where a caller requests it.
    """

    user_id: str
    agent_id: str | None = None
    session_id: str | None = None
    permissions: frozenset[Permission] = frozenset()

    def __post_init__(self) -> None:
        if self.user_id in (None, ""):
            raise InvalidArgument("a scope needs a user_id", hint="Pass the id of one user")
        for name in ("user_id", "agent_id", "session_id"):
            if getattr(self, name) is not None:
                check_id(name, getattr(self, name))

    def allows(self, permission: Permission) -> bool:
        """Return True if the scope has a permission."""
        return permission in self.permissions

    def with_session(self, session_id: str) -> "Scope":
        """Return a scope of the same user and agent in another session."""
        return replace(self, session_id=session_id)
