"""The sender's own words of a message: no code, data, quotations, documents or memories."""

import re
from bisect import bisect_left

from memrecall.agent.prompt_view import BLOCK_END, BLOCK_START
from memrecall.extraction.protocol import Utterance
from memrecall.extraction.rules.tables import load_table
from memrecall.types import Role

MAX_MESSAGE = 20_000
"""Characters of a message that are read."""

_TABLE = load_table("shared")
_TAG_NAME = r"[A-Za-z_][\w:\-]*"
_BLOCK_START = re.compile(
    rf"(?P<recalled>{re.escape(BLOCK_START)})|(?P<fence>```|~~~)|<(?P<tag>{_TAG_NAME})(?:\s[^<>]*)?>"
)
_CLOSING_TAG = re.compile(rf"</{_TAG_NAME}>")
_DATA_LINE = re.compile(
    r"""\s*(?:
        >                                                   # a quoted line
      | [\[{]\s*["'\[{\]}]                                  # JSON
      | \[?\d{4}-\d\d-\d\d[T\s]\d\d:\d\d | \[?\d\d:\d\d:\d\d
      | (?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b
      | Traceback\s\(most | File\s".*",\sline\s\d | at\s[\w.$<>]+\(.*\)
      | \w+(?:\.\w+)*(?:Error|Exception):\s
      | [$\#]\s\S | [+\-]{3}\s | @@\s
      | (?:def|class|import|from|function|const|let|var|return)\s\S.*[:;({]\s*$
      | (?:SELECT|INSERT|UPDATE|DELETE|CREATE)\s[\w*"(]
      | [})\];]+\s*$
    )""",
    re.VERBOSE,
)
_QUOTES = {"“": "”", '"': '"', "「": "」", "『": "』"}
_MAX_QUOTED_NAME = 30
# Not an apostrophe: it opens behind no letter and closes before none.
_SINGLE_QUOTED = re.compile(r"(?<!\w)'(?=\w)[^\n]{12,2000}?(?<=[\w.,!?])'(?!\w)")


def is_person(utterance: Utterance) -> bool:
    """Return True if a person said it: what assistants and tools write is no evidence."""
    return utterance.role in (Role.USER, Role.OTHER)


def own_words(text: str) -> str:
    """Return the sender's own words of a message."""
    return _drop_orders(unquoted_words(text)).strip()


def unquoted_words(text: str) -> str:
    """Return the words of a message that it neither quotes nor gives as data, orders included."""
    part = _drop_blocks(text[:MAX_MESSAGE].replace("’", "'").replace("‘", "'"))
    part = "\n".join(line for line in part.split("\n") if not _DATA_LINE.match(line))
    # What follows a task ("translate this:") or an introduction ("this email says:") is text to
    # work on, not what the sender says.
    if task := _TABLE.search("task", part):
        part = part[: task.start()]
    return _SINGLE_QUOTED.sub(" … ", _drop_quotations(part))


def _drop_blocks(text: str) -> str:
    """Drop recalled memories, code fences and tagged blocks, in time linear in the text."""
    closings: dict[str, list[int]] = {}
    for tag in _CLOSING_TAG.finditer(text):
        closings.setdefault(tag.group(), []).append(tag.start())
    parts: list[str] = []
    position = 0
    while block := _BLOCK_START.search(text, position):
        end = _block_end(text, block, closings)
        if end is None:
            parts.append(text[position : block.end()])
            position = block.end()
        else:
            parts += [text[position : block.start()], "\n"]
            position = end
    return "".join(parts) + text[position:]


def _block_end(text: str, block: re.Match[str], closings: dict[str, list[int]]) -> int | None:
    """Return where a block ends; None for a tag that is never closed."""
    if block["tag"] is None:
        closing = BLOCK_END if block["recalled"] else block["fence"]
        end = text.find(closing, block.end())
        return len(text) if end < 0 else end + len(closing)
    closing = f"</{block['tag']}>"
    starts = closings.get(closing, [])
    place = bisect_left(starts, block.end())
    return starts[place] + len(closing) if place < len(starts) else None


def _drop_orders(text: str) -> str:
    """Drop the rest of a text that orders in the name of the system or overrules the user.

    What such text claims may stand before the order, so all of its line goes.
    """
    order = _TABLE.search("overruling", f"\n{text}")
    return text[: text.rfind("\n", 0, max(0, order.start() - 1)) + 1] if order else text


def _drop_quotations(text: str) -> str:
    """Keep quoted names without their marks, and drop quoted speech."""
    parts: list[str] = []
    position = 0
    unclosed: set[str] = set()
    for mark in re.finditer('[“"「『]', text):
        if mark.start() < position or mark.group() in unclosed:
            continue
        closing = _QUOTES[mark.group()]
        end = text.find(closing, mark.end())
        inner = text[mark.end() : end]
        if end < 0:
            unclosed.add(mark.group())
        elif closing != '"' or "\n" not in inner:
            is_name = len(inner) <= _MAX_QUOTED_NAME and not _TABLE.search("somebody_speaks", inner)
            parts += [text[position : mark.start()], inner if is_name else " … "]
            position = end + 1
    return "".join(parts) + text[position:]
