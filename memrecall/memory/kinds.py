"""What a call is about: memories, messages or both."""

from typing import Literal, get_args

from memrecall.errors import InvalidArgument

Kinds = Literal["all", "memories", "messages", "memory", "message"]
"""The singular means the same as the plural."""


def covered_kinds(kinds: str) -> frozenset[str]:
    """Return the kinds that `kinds` covers: "memory", "message" or both."""
    if kinds not in get_args(Kinds):
        raise InvalidArgument(f"kinds {kinds!r} is not known", hint="Use memories, messages or all")
    if kinds == "all":
        return frozenset({"memory", "message"})
    return frozenset({"memory" if kinds in ("memory", "memories") else "message"})
