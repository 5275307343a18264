"""Who is in a group."""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from memrecall.errors import InvalidArgument, NotFound
from memrecall.types import Content, Id, Name

MOST_MEMBERS = 200


class Member(BaseModel):
    """A member of a group: a person, or (`ai`) one whose turns a model plays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    member_id: Id
    name: Name = Field(min_length=1)
    nicknames: tuple[Name, ...] = Field(default=(), max_length=20)
    ai: bool = False
    instructions: Content = ""  # who an `ai` is, for its own turns alone

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that the member can be called by."""
        return (self.member_id, self.name, *self.nicknames)


class Members:
    """The members of one group, by their ids."""

    def __init__(self, members: Sequence[Member]) -> None:
        if not 1 <= len(members) <= MOST_MEMBERS:
            raise InvalidArgument(
                f"a group of {len(members)} members", hint=f"A group has 1 to {MOST_MEMBERS}"
            )
        self._by_id = {member.member_id: member for member in members}
        if len(self._by_id) < len(members):
            raise InvalidArgument("two members have the same id", hint="Give each its own")

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def get(self, member_id: str) -> Member:
        """The member of that id; NotFound if the group has none."""
        try:
            return self._by_id[member_id]
        except KeyError:
            raise NotFound(
                f"the group has no member {member_id!r}", hint=f"It has: {', '.join(self._by_id)}"
            ) from None
