"""What servers of models refuse: the kinds of their failures, and the options they accept."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from memrecall.errors import ModelFailed, ModelFailure
from memrecall.model import protocol

_log = logging.getLogger(__name__)

# The order matters: quota messages mention tokens too and are not an overflow.
_QUOTA = re.compile(r"insufficient|quota|balance|billing|credit|exceeded your (current|monthly)")
_RATE_LIMIT = re.compile(
    r"rate.?limit|throttl|too many requests|(tokens|requests) per (min|second|hour|day)"
)
_OVERFLOW = re.compile(
    r"context.?(length|window|size)|maximum context|exceed_context|string_above_max_length"
    r"|(prompt|input|request) is too (long|large)|too many (input )?tokens"
    r"|(reduce|exceeds?).{0,40}tokens"
)
_TOOLS = re.compile(r"\btools?\b|tool.?(choice|call|use)|function.?call")
_UNSUPPORTED = re.compile(
    r"not.{0,12}(support|implement|permit|allow|enable|available)|unsupported|incompatible"
    r"|requires?\b|no endpoints|unknown|unrecogni[sz]ed|unexpected|--jinja|cannot|can't"
    r"|(must|should) be ['\"`]?auto|(?<!temporarily )unavailable"
    r"|不支持|仅支持|只支持|不允许|无法识别"
)
_NO_TOOLS_STATUS = (400, 404, 405, 422, 500, 501)

_HINTS: dict[ModelFailure, str] = {
    "unreachable": "Check MEMRECALL_BASE_URL and whether the server runs",
    "timeout": "Raise MEMRECALL_MODEL_TIMEOUT or use a faster model",
    "rate_limited": "Try again later",
    "quota": "The account has no quota left: check its billing",
    "authentication": "Check MEMRECALL_API_KEY",
    "overflow": "Send less, or use a model that reads more",
    "no_tools": "Use a model that calls tools",
    "refused": "Check MEMRECALL_MODEL and MEMRECALL_BASE_URL",
    "malformed": "Check that MEMRECALL_BASE_URL speaks OpenAI's API",
}


def classify_failure(status: int, message: str) -> ModelFailure:
    """Return the kind of a failure from the HTTP status and the server's message."""
    words = message.lower()
    if status in (401, 403):
        return "authentication"
    if status == 402 or (400 <= status < 500 and _QUOTA.search(words)):
        return "quota"
    if status == 429 or (status < 500 and _RATE_LIMIT.search(words)):
        return "rate_limited"
    if status in (408, 504):
        return "timeout"
    if status == 413 or _OVERFLOW.search(words):
        return "overflow"
    if status in _NO_TOOLS_STATUS and _TOOLS.search(words) and _UNSUPPORTED.search(words):
        return "no_tools"
    return "unreachable" if status >= 500 else "refused"


def read_error(body: object) -> tuple[str, str]:
    """Return the code and message of an error in the form of any provider, "" for a missing one."""
    code = message = ""
    for _ in range(5):  # objects inside each other; an outer one has a general message, or none
        body = body[0] if isinstance(body, list) and body else body
        if not isinstance(body, Mapping):
            break
        code = _first_text(body, "code", "error_code", "status_code", "type") or code
        message = _first_text(body, "message", "msg", "error_msg", "status_msg") or message
        inner = (body.get(name) for name in ("error", "errors", "base_resp", "detail"))
        body = next(filter(None, inner), None)
    return code, message or (body if isinstance(body, str) else "")


def _first_text(fields: Mapping[str, Any], *names: str) -> str:
    values = (fields.get(name) for name in names)
    return next((str(v) for v in values if isinstance(v, str | int) and v not in ("", True)), "")


def refuses_option(status: int, message: str) -> bool:
    """Return True if a server's message says that it does not support a part of the request."""
    return status in _NO_TOOLS_STATUS and bool(_UNSUPPORTED.search(message.lower()))


def make_failure(kind: ModelFailure, message: str) -> ModelFailed:
    """Return an error of a kind, with its hint."""
    return ModelFailed(message, kind=kind, hint=_HINTS[kind])


def to_model_failure(error: Exception) -> ModelFailed:
    """Return the failure for an exception of another client, without its message.

    Clients based on OpenAI's library expose the HTTP status of the server.
    """
    status = getattr(error, "status_code", None)
    message = f"the model's client failed: {type(error).__name__}"
    if not isinstance(status, int):
        return ModelFailed(message, kind="malformed")
    return make_failure(classify_failure(status, str(error)), message)


FORCED_CHOICE = "tool_choice=forced"  # among refused options

_REQUIRED = frozenset({"model", "messages", "tools", "stream"})
_STRICT = "strict"
# Weaker options for one that a server refuses; without any left, the option is not sent.
_WEAKER: dict[str, dict[str, Any]] = {
    FORCED_CHOICE: {"tool_choice": "auto"},
    "response_format=json_schema": {"response_format": {"type": "json_object"}},
}
# How servers name a forced tool choice in other words.
_FORCED_TOOL = re.compile(
    r"tool.?choice|forc(ed|ing) (a |the )?(function|tool)|(function|tool)s?.{0,20} forced"
    r"|强制.{0,6}(工具|函数)",
    re.IGNORECASE,
)


class AcceptedOptions:
    """The options that a server accepts, as far as it has not refused them."""

    def __init__(self) -> None:
        self.refused: set[str] = set()

    def adapt(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request with weaker options instead of refused ones."""
        adapted: dict[str, Any] = {}
        for name, value in body.items():
            option: dict[str, Any] = {name: value}
            while option and (label := _option_label(option)) in self.refused:
                # OpenAI's newer models know `max_tokens` by another name.
                renamed = {"max_completion_tokens": value} if label == "max_tokens" else {}
                option = renamed or _WEAKER.get(label, {})
            adapted |= option
        return _without_strict(adapted) if _STRICT in self.refused else adapted

    def learn(self, body: Mapping[str, Any], message: str) -> bool:
        """Note the option of a body that a refusal names; return True if there is one."""
        options = [name for name in body if name not in _REQUIRED]
        # Boundaries of ASCII words: Chinese messages have no spaces.
        names = [name for name in options if re.search(rf"(?a:\b{re.escape(name)}\b)", message)]
        if not names and "tool_choice" in options and _FORCED_TOOL.search(message):
            names = ["tool_choice"]
        if _STRICT in message and _without_strict(body) != body:
            self.refused.add(_STRICT)
        elif names:
            name = max(names, key=len)
            self.refused.add(_option_label({name: body[name]}))
        else:
            return False
        return True


def _option_label(option: Mapping[str, Any]) -> str:
    ((name, value),) = option.items()
    if name == "tool_choice":
        return f"{name}={'auto' if value in ('auto', 'none') else 'forced'}"
    if name == "response_format" and isinstance(value, Mapping):
        return f"{name}={value.get('type')}"
    return name


def _without_strict(value: Any) -> Any:
    """Return JSON without the field `strict` of schemas and tools."""
    if isinstance(value, Mapping):
        return {k: _without_strict(v) for k, v in value.items() if (k, v) != (_STRICT, True)}
    return [_without_strict(item) for item in value] if isinstance(value, list) else value


_accepted_by_client: WeakKeyDictionary[protocol.ChatCompletionClient, AcceptedOptions] = (
    WeakKeyDictionary()
)


async def create_accepted(
    client: protocol.ChatCompletionClient, messages: Sequence[protocol.LLMMessage], **arguments: Any
) -> protocol.CreateResult:
    """Call `create` of any client, again with a weaker option if its server refuses one.

    What a server refuses is remembered with the client. A `ServerClient` learns by itself, and its
    errors have no HTTP status.
    """
    accepted = _find_accepted(client)
    # AutoGen's arguments under the names that servers use.
    options: dict[str, Any] = {}
    if arguments.get("tools"):
        choice = arguments.get("tool_choice", "auto")
        options["tool_choice"] = choice if isinstance(choice, str) else {"type": "function"}
    if output := arguments.get("json_output"):
        options["response_format"] = {"type": "json_object" if output is True else "json_schema"}
    while True:
        body = accepted.adapt(options)
        adapted = dict(arguments)
        if body.get("tool_choice") != options.get("tool_choice"):
            adapted["tool_choice"] = "auto"
        if body.get("response_format") != options.get("response_format"):
            adapted["json_output"] = True if "response_format" in body else None
        try:
            return await client.create(messages, **adapted)
        except Exception as error:  # third-party clients raise errors of any type
            status, message = getattr(error, "status_code", None), str(error)
            if not isinstance(status, int) or not refuses_option(status, message):
                raise
            if not accepted.learn(body, message):
                raise
            refused = ", ".join(sorted(accepted.refused))
            _log.warning(
                "%s refuses %s: sent without it from now on", type(client).__name__, refused
            )


def find_refused(client: protocol.ChatCompletionClient) -> frozenset[str]:
    """Return the options that the server of a client has refused so far."""
    own: frozenset[str] = getattr(client, "refused_options", frozenset())
    return own | _find_accepted(client).refused


def _find_accepted(client: protocol.ChatCompletionClient) -> AcceptedOptions:
    try:
        return _accepted_by_client.setdefault(client, AcceptedOptions())
    except TypeError:  # a client that cannot be a key learns in each call
        return AcceptedOptions()
