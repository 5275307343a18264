"""`.memrecallignore`: folders whose sessions are neither stored nor recalled for.

The syntax is that of gitignore. A file applies to its own folder and those below it; the nearest
file decides first. Standard library only: see the package.
"""

import os
import re
from collections.abc import Callable, Iterator
from functools import partial

NAME = ".memrecallignore"
_MAX_BYTES = 100_000
_WHOLE_FOLDER = ("*", "**", "/", "/*", "/**", ".")
_WILDCARDS = {
    "**/": "(?:.*/)?",
    "/**/": "/(?:.*/)?",
    "/**": "/.*",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
}
_TOKENS = re.compile(r"^\*\*/|/\*\*/|/\*\*$|\*\*|\*|\?|\[!?\]?[^\]/]*\]|\\.|.", re.DOTALL)


def is_ignored(folder: str) -> bool:
    """Return whether a `.memrecallignore` of the folder or of one above it excludes the folder."""
    folder = os.path.realpath(folder)
    return any(_excludes(root, folder) for root in _parents(folder))


def _parents(folder: str) -> Iterator[str]:
    """Yield a folder and those above it."""
    while True:
        yield folder
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _excludes(root: str, folder: str) -> bool:
    """Return whether the file in `root` excludes a folder or one between the two."""
    lines = _read_lines(os.path.join(root, NAME))
    if not lines:
        return False
    relative = os.path.relpath(folder, root).replace(os.sep, "/")
    if relative == ".":
        return _last_match(lines, lambda pattern: pattern in _WHOLE_FOLDER)
    parts = relative.split("/")
    # As in git, nothing below an excluded folder can be included again.
    paths = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return any(_last_match(lines, partial(_matches, path)) for path in paths)


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return []
    # Another error (no permission) is raised: the event is then left alone.
    lines = (re.sub(r"(?<!\\)\s+$", "", line) for line in text.removeprefix("\ufeff").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _last_match(lines: list[str], matches: Callable[[str], bool]) -> bool:
    """Return whether the last line that matches excludes; `!` includes again."""
    for line in reversed(lines):
        if matches(line.removeprefix("!")):
            return not line.startswith("!")
    return False


def _matches(path: str, pattern: str) -> bool:
    pattern = pattern.rstrip("/") or "/*"
    is_anchored = "/" in pattern
    name = path if is_anchored else path.rpartition("/")[2]
    return re.fullmatch(_translate(pattern.removeprefix("/")), name, re.DOTALL) is not None


def _translate(pattern: str) -> str:
    return "".join(map(_translate_token, _TOKENS.findall(pattern)))


def _translate_token(token: str) -> str:
    if token in _WILDCARDS:
        return _WILDCARDS[token]
    if token.startswith("[") and len(token) > 2:
        content = re.sub(r"([\\\[])", r"\\\1", token[1:-1])
        return f"[^{content[1:]}]" if content.startswith("!") else f"[{content}]"
    return re.escape(token[1:] if token.startswith("\\") else token)
