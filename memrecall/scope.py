"""Who is asking: bound by trusted code when an object is made, never named by a tool or a model."""

from dataclasses import dataclass, replace
from enum import StrEnum

from memrecall.errors import InvalidArgument
from memrecall.types import check_id

DEFAULT_NAME = "default"


class Permission(StrEnum):
    """What a scope may do beyond reading and writing its own user's ordinary rows."""

    SENSITIVE = "sensitive"  # see memories that are marked as sensitive
    KNOWLEDGE = "knowledge"  # change what all users of an agent share
    OPERATOR = "operator"  # look at the service itself; workspaces, dump, backup and restore


@dataclass(frozen=True, slots=True)
class Scope:
    """One user's data, perhaps seen through one agent, perhaps labelled with one session.

    The user always filters. An agent filters when bound. A session labels what is written and
    filters only where a caller asks for it.
    """

    user_id: str
    agent_id: str | None = None
    session_id: str | None = None
    permissions: frozenset[Permission] = frozenset()

    def __post_init__(self) -> None:
        if not self.user_id:
            raise InvalidArgument("a scope needs a user_id", hint="Pass the id of one user")
        check_id("user_id", self.user_id)
        if self.agent_id is not None:
            check_id("agent_id", self.agent_id)
        if self.session_id is not None:
            check_id("session_id", self.session_id)

    def allows(self, permission: Permission) -> bool:
        """Whether trusted code granted this permission."""
        return permission in self.permissions

    def with_session(self, session_id: str) -> "Scope":
        """The same user and agent, in another session."""
        return replace(self, session_id=session_id)
