"""What a server's refusal means.

Servers say the same thing with different codes and words. What they say may quote the messages or
the key, so it decides the kind and is never shown.
"""

import re

from memrecall.errors import ModelFailed, ModelFailure

# Read in this order: a quota counts tokens too and must not pass for an overflow.
QUOTA = re.compile(r"insufficient|quota|balance|billing|credit|exceeded your (current|monthly)")
RATE = re.compile(r"rate.?limit|too many requests|(tokens|requests) per (min|second|hour|day)")
OVERFLOW = re.compile(
    r"context.?(length|window|size)|maximum context|exceed_context|string_above_max_length"
    r"|(prompt|input|request) is too (long|large)|too many (input )?tokens"
    r"|(reduce|exceeds?).{0,40}tokens"
)
TOOLS = re.compile(r"\btools?\b|tool.?(choice|call|use)|function.?call")
UNABLE = re.compile(
    r"not.{0,12}(support|implement|permit|allow|enable|available)|unsupported|requires?\b"
    r"|no endpoints|unknown|unrecogni[sz]ed|unexpected|--jinja|cannot|can't"
)
NAMES_NO_TOOLS = (400, 404, 405, 422, 500, 501)

HINTS: dict[ModelFailure, str] = {
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


def classify(status: int, said: str) -> ModelFailure:
    """Tell what a refusal means from its status and its words."""
    words = said.lower()
    if status in (401, 403):
        return "authentication"
    if status == 402 or (400 <= status < 500 and QUOTA.search(words)):
        return "quota"
    if status == 429 or (status < 500 and RATE.search(words)):
        return "rate_limited"
    if status in (408, 504):
        return "timeout"
    if status == 413 or OVERFLOW.search(words):
        return "overflow"
    if status in NAMES_NO_TOOLS and TOOLS.search(words) and UNABLE.search(words):
        return "no_tools"
    return "unreachable" if status >= 500 else "refused"


def make_failure(kind: ModelFailure, message: str) -> ModelFailed:
    """An error of that kind, with the way out."""
    return ModelFailed(message, kind=kind, hint=HINTS[kind])


def failure_of(error: Exception) -> ModelFailed:
    """What an exception of somebody else's client means, without its words.

    Clients that stand on OpenAI's library pass on the server's refusal: its status tells.
    """
    status = getattr(error, "status_code", None)
    kind = classify(status, str(error)) if isinstance(status, int) else "malformed"
    return ModelFailed(f"the model's client failed: {type(error).__name__}", kind=kind)
