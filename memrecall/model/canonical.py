"""One way to write a request, so that two can be compared by text and by digest.

What the model is not told is left out: who a message's `source` was, and secrets among the
options.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autogen_core.models import LLMMessage

from memrecall.model.base import AnyTool, JsonOutput, Request, tool_schema

SECRET_NAME = re.compile(
    r"api.?key|authori[sz]ation|headers?$|(^|_)(token|auth)$|secret|password|cookie|credential",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(r"\s*(Bearer\s|Basic\s|sk-)", re.IGNORECASE)


def write_canonical(value: object) -> str:
    """The one JSON text of a value: sorted, without needless space, in plain UTF-8."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """A short fingerprint of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def plain_message(message: LLMMessage) -> dict[str, Any]:
    """A message as JSON, with what the model is told of it."""
    return message.model_dump(mode="json", exclude={"source"}, exclude_none=True)


def plain_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options without what may be secret, whatever depth it hides at."""
    return {
        str(name): _plain(value)
        for name, value in (options or {}).items()
        if not SECRET_NAME.search(str(name)) and not _is_secret(value)
    }


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return plain_options(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value if not _is_secret(item)]
    if value is None or isinstance(value, str | int | float):
        return value
    return getattr(value, "__name__", type(value).__name__)


def _is_secret(value: object) -> bool:
    return isinstance(value, str) and SECRET_VALUE.match(value) is not None


class Fingerprints:
    """The parts of requests as digests; a history that only grows is read only where it is new."""

    def __init__(self) -> None:
        self.texts: list[str] = []  # of the last request's messages
        self.kept = 0  # how many of them the request before began with too
        self._messages: list[LLMMessage] = []
        self._chain: list[str] = []  # of each message, with all before it
        self._tools: tuple[AnyTool, ...] = ()
        self._tools_digest = digest("[]")

    def read(self, request: Request) -> dict[str, str]:
        """The digest of each part. Afterwards `texts` and `kept` are this request's."""
        self._read_messages(request.messages)
        return {
            "messages": self._chain[-1] if self._chain else "",
            "tools": self._read_tools(request.tools),
            "tool_choice": request.tool_choice,
            "json_output": _name_output(request.json_output),
            "options": digest(write_canonical(plain_options(request.options))),
        }

    def _read_messages(self, messages: Sequence[LLMMessage]) -> None:
        kept = 0
        for mine, theirs in zip(self._messages, messages, strict=False):
            if mine is not theirs and mine != theirs:
                break
            kept += 1
        del self.texts[kept:], self._chain[kept:]
        self.kept = kept
        self._messages = list(messages)
        for message in messages[kept:]:
            text = write_canonical(plain_message(message))
            before = self._chain[-1] if self._chain else ""
            self.texts.append(text)
            self._chain.append(digest(before + text))

    def _read_tools(self, tools: tuple[AnyTool, ...]) -> str:
        known = len(tools) == len(self._tools)
        if not known or any(a is not b for a, b in zip(tools, self._tools, strict=True)):
            self._tools_digest = digest(write_canonical([tool_schema(tool) for tool in tools]))
            self._tools = tools
        return self._tools_digest


def _name_output(json_output: JsonOutput) -> str:
    if json_output is None or isinstance(json_output, bool):
        return str(json_output).lower()
    schema = digest(write_canonical(json_output.model_json_schema()))
    return f"{json_output.__name__} {schema}"
