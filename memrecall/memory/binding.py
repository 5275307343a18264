"""Whose memory a call is about: what was bound when the object was made, and what the call says."""

from collections.abc import Iterable
from dataclasses import dataclass

from memrecall.errors import InvalidArgument
from memrecall.scope import DEFAULT_NAME, Permission, Scope


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
