"""The scope of a request, set by trusted code and never by a tool or a model."""

from dataclasses import dataclass, replace
from enum import StrEnum

from memrecall.errors import InvalidArgument
from memrecall.text_length import truncate_text
from memrecall.types import NAME_LENGTH, check_id, check_text

DEFAULT_NAME = "default"


class Permission(StrEnum):
    """Permissions beyond reading and writing the user's ordinary rows."""

    SENSITIVE = "sensitive"  # read memories marked as sensitive
    KNOWLEDGE = "knowledge"  # change the knowledge that all users of an agent share
    OPERATOR = "operator"  # service status, workspaces, dump, backup and restore


@dataclass(frozen=True, slots=True)
class Scope:
    """One user's data, optionally of one agent, one session and one project.

    The user always filters, the agent if it is set. The session labels what is written and filters
    only where a caller requests it. The project labels what is written; what is read belongs to it
    or to none, unless `all_projects` are read.
    """

    user_id: str
    agent_id: str | None = None
    session_id: str | None = None
    permissions: frozenset[Permission] = frozenset()
    project: str | None = None
    all_projects: bool = False

    def __post_init__(self) -> None:
        if self.user_id in (None, ""):
            raise InvalidArgument("a scope needs a user_id", hint="Pass the id of one user")
        for name in ("user_id", "agent_id", "session_id"):
            if getattr(self, name) is not None:
                check_id(name, getattr(self, name))
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

    def allows(self, permission: Permission) -> bool:
        """Return True if the scope has a permission."""
        return permission in self.permissions

    def with_session(self, session_id: str) -> "Scope":
        """Return a scope of the same user and agent in another session."""
        return replace(self, session_id=session_id)
