"""The file of a cassette: one line of JSON for every call.

A line has the call's number, the digests of the request's parts, the messages that are new since
the call before (so many are `kept`), and the answer, its pieces if it was a stream, or the failure.
The line of the first call also tells the format, the model and what the recording was about. Log
probabilities are not kept, and of the options nothing that looks secret.
"""

import json
from pathlib import Path
from typing import Any, Self

from autogen_core.models import CreateResult, ModelInfo
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from memrecall.errors import InvalidArgument, ModelFailure

VERSION = 1


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Header(_Line):
    """What holds for all calls; `about` is the recorder's own, such as the time it counted from."""

    cassette: int
    model: str
    model_info: ModelInfo
    about: dict[str, Any] = {}


class Failure(_Line):
    """A call that ended in `ModelFailed`."""

    kind: ModelFailure
    message: str
    hint: str = ""


class Call(_Line):
    """A line: one call."""

    call: int
    header: Header | None = None  # of the first call
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


NOTHING_RECORDED = Header(
    cassette=VERSION,
    model="",
    model_info=ModelInfo(
        vision=False,
        function_calling=True,
        json_output=True,
        family="unknown",
        structured_output=False,
    ),
)


def write_line(path: Path, line: Call) -> None:
    """Write one line to the file, and let go of it: what was recorded survives a crash."""
    plain = line.model_dump(mode="json", exclude_none=True, exclude={"response": {"logprobs"}})
    _write(path, json.dumps(plain, ensure_ascii=False) + "\n", "a")


def start_file(path: Path, *, overwrite: bool) -> None:
    """Make an empty cassette; one that exists is kept unless it may be overwritten."""
    _write(path, "", "w" if overwrite else "x")


def _write(path: Path, text: str, mode: str) -> None:
    try:
        # A lone surrogate, which UTF-8 has not, is written as the escape that JSON has for it.
        with path.open(mode, encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        hint = "Pass overwrite=True to record it anew"
        raise InvalidArgument(f"the cassette {path} exists already", hint=hint) from None
    except OSError as error:
        raise InvalidArgument(f"the cassette {path} cannot be written: {error}") from None


def read_cassette(path: Path) -> tuple[Header, list[Call]]:
    """What holds for all calls, and the calls in the order in which they were made."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the cassette {path} cannot be read: {error}") from None
    calls = [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    calls.sort(key=lambda call: call.call)  # calls that overlapped were written as they ended
    if [call.call for call in calls] != list(range(1, len(calls) + 1)):
        numbers = [call.call for call in calls]
        raise InvalidArgument(f"{path} has the calls {numbers}: one is missing or there twice")
    header = calls[0].header if calls else NOTHING_RECORDED
    if header is None:
        raise InvalidArgument(f"{path}: its first call does not tell the model")
    if header.cassette != VERSION:
        raise InvalidArgument(
            f"{path}: a cassette of version {header.cassette}, and this reads {VERSION}",
            hint="Record it again",
        )
    return header, calls


def _parse(path: Path, number: int, line: str) -> Call:
    try:
        return Call.model_validate(json.loads(line))
    except ValueError as error:
        if not isinstance(error, ValidationError):
            raise InvalidArgument(
                f"{path} line {number} is no line of a cassette: {error}"
            ) from None
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(map(str, problem["loc"]))
        told = f"{place}: {problem['msg']}" if place else problem["msg"]
        raise _bad_line(path, number, told) from None


def _bad_line(path: Path, number: int, told: str) -> InvalidArgument:
    return InvalidArgument(f"{path} line {number} is no line of a cassette: {told}")
