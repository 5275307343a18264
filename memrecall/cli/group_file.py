"""A group chat from a file: its members, what they say, and who answers."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from memrecall.chat import Member
from memrecall.errors import InvalidArgument
from memrecall.types import Content, Id, Moment

_SHAPE = (
    'Write {"group_id": "…", "members": [{"member_id": "…", "name": "…"}], '
    '"messages": [{"speaker": "…", "content": "…"}]}'
)


class GroupMessage(BaseModel):
    """What a member says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    speaker: Id
    content: Annotated[Content, StringConstraints(pattern=r"\S")]
    message_id: Id | None = None
    ts: Moment | None = None
    mentions: list[Id] | None = None


class GroupFile(BaseModel):
    """A group, what is said in it, and who answers: by default every member that is an `ai`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group_id: Id
    members: list[Member] = Field(min_length=1)
    messages: list[GroupMessage] = []
    answers: list[Id] | None = None

    @property
    def who_answers(self) -> list[str]:
        """The ids of the members who take a turn, in order."""
        if self.answers is not None:
            return self.answers
        return [member.member_id for member in self.members if member.ai]


def read_group(file: Path) -> GroupFile:
    """The group of a file; what is wrong is named by its place."""
    try:
        value: Any = json.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidArgument(f"the file {file} cannot be read: {reason}") from None
    except (ValueError, RecursionError):
        raise InvalidArgument(f"{file} is not JSON", hint=_SHAPE) from None
    try:
        return GroupFile.model_validate(value)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, fault["loc"])) or "the whole"
        raise InvalidArgument(f"{file}: {place}: {fault['msg']}", hint=_SHAPE) from None
