"""Ordinary and adversarial texts for the leak filter, read in small chunks."""

import argparse
from pathlib import Path

from memrecall.text import LeakFilter, filter_leaks
from memrecall.text.leaks import LeakMode

ROOT = Path(__file__).parents[2]
TOOLS = ("recall_memory", "get_other_members_messages", "is_mentioned", "search_memory")
CHUNK = 4

ADVERSARIAL = {
    "<": "<",
    "{": "{",
    "[": "[",
    "`": "`",
    "runs of `": "` `` ``` ",
    "newlines": "\n",
    "blanks": " ",
    "openers without structure": "<tool_call> tags ",
    "nested openers": "<tool_call <tool_call ",
    "cut openers": "<|tool_ca <｜DSM [TOOL_CAL commentary to ",
    "closers": "</parameter> ",
    "nested arguments": '{"arguments": ',
    "names of no tool": '{"name": "search_memor", ',
    "open strings": '{"arguments": "',
    "long open strings": '{"arguments": "' + "x" * 3_000 + " ",
    "undecided spans": "a ` b <tool_call> c\n",
    "half fences": "```x`\n",
    "thoughts without an answer": "analysisWe need more. ",
    "ends of sentences": ". : 。 ",
    "calls of some length": "search_memory(query='x' ",
    "code and lists": "- a\n\n    b\n",
}
MODES: tuple[LeakMode, ...] = ("lenient", "strict")


def fill(pattern: str, size: int) -> str:
    """Return a text of that size that repeats a pattern."""
    return (pattern * (size // len(pattern) + 1))[:size]


def is_ordinary(path: Path) -> bool:
    """Return True if a document has no calls in its code."""
    text = path.read_text("utf-8")
    return filter_leaks(text, TOOLS, mode="strict").visible == text


def read_ordinary() -> dict[str, str]:
    """Return texts of several kinds: prose, documents, code, data."""
    english = (ROOT / "LICENSE").read_text("utf-8").split()  # docs change, and calls with them
    documents = [path for path in sorted((ROOT / "docs").glob("*.md")) if is_ordinary(path)]
    return {
        "English prose": " ".join(word for word in english if word.isalpha()),
        "Chinese document": (ROOT / "README.zh.md").read_text("utf-8"),
        "Markdown": "".join(path.read_text("utf-8") for path in documents),
        "Python": Path(argparse.__file__).read_text("utf-8"),
        "JSON lines": (ROOT / "fixtures/eval/corpus.jsonl").read_text("utf-8"),
        "list of spans": "- `name`: the `value` of it, or `None`\n",
        "stray backticks": "it`s a stray mark on this line, and the only one of them\n",
    }


def stream(text: str, mode: LeakMode = "lenient") -> str:
    """Do the same through a filter."""
    leaks = LeakFilter(TOOLS, reasoning="auto", mode=mode)
    pieces = []
    for at in range(0, len(text), CHUNK):
        pieces.append(leaks.feed(text[at : at + CHUNK]))  # noqa: PERF401
    pieces.append(leaks.close())
    return "".join(pieces)
