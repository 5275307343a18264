"""A tool call that a model wrote as text. It is never run: it could be a quotation."""

import re

from memrecall.agent.tools.registry import MEMRECALL_TOOLS

_NAMES = "|".join(MEMRECALL_TOOLS)
_CALL = re.compile(
    rf"""
    <\|?/?(?:tool|function)[\w▁|\s-]*[=>|]      # <tool_call>, <|tool▁calls▁begin|>, <function=…>
    | \[/?TOOL_CALLS?\]
    | ["'](?:name|tool|function|tool_name)["']\s*:\s*["'](?:functions\.)?(?:{_NAMES})["']
    | \b(?:{_NAMES})\s*\(\s*(?:\w+\s*=|\{{|["'])   # search_memories(query=…
    | \b(?:functions\.|to=functions\.|Action:\s*)(?:{_NAMES})\b
    | ^\s*(?:{_NAMES})\s*\n?\s*\{{                # a name, then an object
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)


def is_leaked_call(text: str) -> bool:
    """Whether a text holds what looks like a call of one of the tools."""
    return _CALL.search(text) is not None
