"""The file of a cassette: one line of JSON for the model, one for every call.

The first line tells the format and the model. Every further line is one call: its number, the
digests of the request's parts, the messages that are new since the call before (so many are
`kept`), and the answer, its pieces if it was a stream, or the failure. Log probabilities are not
kept, and of the options nothing that looks secret.
"""

import json
from pathlib import Path
from typing import Any, Self, TypeVar

from autogen_core.models import CreateResult, ModelInfo
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from memrecall.errors import InvalidArgument, ModelFailure

VERSION = 1


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Header(_Line):
    """The first line."""

    cassette: int
    model: str
    model_info: ModelInfo


class Failure(_Line):
    """A call that ended in `ModelFailed`."""

    kind: ModelFailure
    message: str
    hint: str = ""


class Call(_Line):
    """Every further line: one call."""

    call: int
    digests: dict[str, str]
    kept: int
    messages: list[dict[str, Any]]
    tools: list[str]
    options: dict[str, Any]
    stream: bool = False
    chunks: list[str] = []
    response: CreateResult | None = None
    failure: Failure | None = None

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if (self.response is None) == (self.failure is None):
            raise ValueError("a call has either a response or a failure")
        return self


L = TypeVar("L", bound=_Line)


def write_line(path: Path, line: Header | Call, mode: str) -> None:
    """Write one line to the file, and let go of it: what was recorded survives a crash."""
    plain = line.model_dump(mode="json", exclude_none=True, exclude={"response": {"logprobs"}})
    text = json.dumps(plain, ensure_ascii=False)
    try:
        # A lone surrogate, which UTF-8 has not, is written as the escape that JSON has for it.
        with path.open(mode, encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text + "\n")
    except FileExistsError:
        hint = "Pass overwrite=True to record it anew"
        raise InvalidArgument(f"the cassette {path} exists already", hint=hint) from None
    except OSError as error:
        raise InvalidArgument(f"the cassette {path} cannot be written: {error}") from None


def read_cassette(path: Path) -> tuple[Header, list[Call]]:
    """The model and the calls, in the order in which they were made."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the cassette {path} cannot be read: {error}") from None
    header = _parse(Header, path, 1, lines[0])
    if header.cassette != VERSION:
        raise InvalidArgument(
            f"{path} line 1: a cassette of version {header.cassette}, and this reads {VERSION}",
            hint="Record it again",
        )
    calls = [_parse(Call, path, i, line) for i, line in enumerate(lines[1:], 2) if line.strip()]
    calls.sort(key=lambda call: call.call)  # calls that overlapped were written as they ended
    if [call.call for call in calls] != list(range(1, len(calls) + 1)):
        numbers = [call.call for call in calls]
        raise InvalidArgument(f"{path} has the calls {numbers}: one is missing or there twice")
    return header, calls


def _parse(kind: type[L], path: Path, number: int, line: str) -> L:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(map(str, problem["loc"]))
        told = f"{place}: {problem['msg']}" if place else problem["msg"]
        raise InvalidArgument(f"{path} line {number} is no line of a cassette: {told}") from None
