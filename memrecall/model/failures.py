"""The kinds of failures of models and their servers."""

import re

from memrecall.errors import ModelFailed, ModelFailure

# The order matters: quota messages mention tokens too and are not an overflow.
_QUOTA = re.compile(r"insufficient|quota|balance|billing|credit|exceeded your (current|monthly)")
_RATE_LIMIT = re.compile(
    r"rate.?limit|too many requests|(tokens|requests) per (min|second|hour|day)"
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
    "no_tools": "Set MEMRECALL_TOOL_CALLS=json, or use a model that calls tools",
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
