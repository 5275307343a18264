"""What hooks leave out: sessions in ignored folders, and secrets.

The syntax of `.memrecallignore` is that of gitignore. A file applies to the folders below it, the
nearest one first, and with a line such as `*` or `/` also to its own folder. Secrets leave the
machine for no other.
"""

import os
import re
from collections.abc import Iterable, Iterator

from memrecall.text.privacy import SECRETS_ONLY

IGNORE_FILE = ".memrecallignore"
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
    folders = list(_parents(os.path.realpath(folder)))[::-1]
    files = {
        root: lines for root in folders if (lines := _read_lines(os.path.join(root, IGNORE_FILE)))
    }
    # As in git, nothing below an excluded folder can be included again.
    session = folders[-1]
    return bool(files) and any(
        _is_excluded(each, files, is_session=each == session) for each in folders
    )


def _parents(folder: str) -> Iterator[str]:
    """Yield a folder and those above it."""
    while True:
        yield folder
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _is_excluded(folder: str, files: dict[str, list[str]], *, is_session: bool) -> bool:
    """Return what the nearest file with a matching line says of a folder."""
    for root in _parents(folder):
        path = os.path.relpath(folder, root).replace(os.sep, "/")
        if path == "." and not is_session:
            continue
        # The last line that matches decides; `!` includes again.
        for line in reversed(files.get(root, ())):
            if _matches(path, line.removeprefix("!")):
                return not line.startswith("!")
    return False


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return []
    # Another error (no permission) is raised: the event is then left alone.
    lines = (re.sub(r"(?<!\\)\s+$", "", line) for line in text.removeprefix("\ufeff").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _matches(path: str, pattern: str) -> bool:
    if path == ".":  # the folder of the file itself, which no pattern of git can name
        return pattern in _WHOLE_FOLDER
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


MASK = "[redacted]"


def redact_secrets(text: str) -> str:
    """Return the text with a mask in place of each secret."""
    return SECRETS_ONLY.redact(text)


def redact_patterns(text: str, patterns: Iterable[str]) -> str:
    """Return the text with a mask in place of each match of a user's patterns."""
    for pattern in patterns:
        text = re.sub(pattern, MASK, text)
    return text
