"""What hooks leave out: sessions in ignored folders, and secrets.

The syntax of `.memrecallignore` is that of gitignore. A file applies to the folders below it, the
nearest one first, and with a line such as `*` or `/` also to its own folder. Secrets are keys,
tokens and passwords of well-known forms; `Memory` also takes `redact_secrets` as `redact`.
"""

import os
import re
from collections.abc import Iterable, Iterator

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
# Repetitions are bounded, and a key without an end takes the rest of the text: the time to search
# a hostile text stays linear.
_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:.*?-----END [A-Z ]{0,40}PRIVATE KEY-----|.*)"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bAIza[0-9A-Za-z_-]{35}"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|npm_|pypi-|hf_|xox[abeoprs]-|sk-|mr_[0-9a-f]{16}_)"
    r"[0-9A-Za-z_-]{20,500}"
    r"|\b[rs]k_(?:live|test)_[0-9A-Za-z]{16,200}"
    r"|\beyJ[\w-]{10,2000}\.[\w-]{10,4000}\.[\w-]{5,1000}",
    re.DOTALL,
)
# The name or scheme before a secret stays, because it is worth remembering.
_NAMED_SECRETS = re.compile(
    r"(?P<url>://[^\s/:@]{1,100}:)[^\s/@]{1,200}(?=@)"
    r"|(?P<scheme>\b(?:bearer|basic)\s{1,3})[\w.~+/=-]{16,4000}"
    r"|(?P<name>(?:api[ _-]?key|access[ _-]?key|secret(?:\skey)?|token|passw(?:or)?d|passphrase"
    r"|密码|口令|密钥)"
    r"[A-Za-z0-9_-]{0,40}[\"']?\s{0,3}(?:[=:：]|是|为|\bis\b:?)\s{0,3}[\"']?)"
    r"(?=[^\s\"'，。；,;]{0,200}\d)[^\s\"'，。；,;()<>${}]{6,200}"
    # Without a digit: one long word of one case, which is no name in a program.
    r"|(?P<word>(?:api[ _-]?key|access[ _-]?key|secret[ _-]key|passw(?:or)?d|passphrase"
    r"|密码|口令|密钥)"
    r"[A-Za-z0-9_-]{0,40}[\"']?\s{0,3}[=:：]\s{0,3}[\"']?)"
    r"(?-i:[a-z-]{12,200}|[A-Z-]{12,200})(?=[.!?]?(?:[\s\"'，。；,;]|$))",
    re.IGNORECASE,
)


def redact_secrets(text: str) -> str:
    """Return the text with a mask in place of each secret."""
    text = _SECRETS.sub(MASK, text)
    return _NAMED_SECRETS.sub(lambda match: f"{match[match.lastgroup or 0]}{MASK}", text)


def redact_patterns(text: str, patterns: Iterable[str]) -> str:
    """Return the text with a mask in place of each match of a user's patterns."""
    for pattern in patterns:
        text = re.sub(pattern, MASK, text)
    return text
