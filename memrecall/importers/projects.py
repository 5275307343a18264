"""Which project a folder belongs to, and whether its sessions are left alone.

A project is named by its git remote, so that clones, worktrees and machines share it, and by the
folder of its repository where there is no remote. Sessions in folders that a `.memrecallignore`
excludes are left alone. Its syntax is that of gitignore: a file applies to the folders below it,
the nearest one first, and with a line such as `*` or `/` also to its own folder.
"""

import configparser
import hashlib
import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

_SCP_FORM = re.compile(r"(?:[^@/\s]+@)?(?P<host>[^:/\s]{2,}):(?!//)(?P<path>\S+)")  # git@host:a/b
_MAX_FILE = 100_000  # bytes of a git configuration, or of patterns
_MAX_NAME = 255  # what the store takes
IGNORE_FILE = ".memrecallignore"
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


def find_project(folder: str) -> str:
    """Return the normalised remote of a folder's repository, else the repository or the folder."""
    root = find_root(folder)
    return _shorten(_read_remote(_read_shared_folder(find_git_folder(root))) or root)


def find_root(folder: str) -> str:
    """Return the repository that a folder belongs to, else the folder itself."""
    folder = os.path.realpath(folder)
    return _find_repository(folder) or folder


def _shorten(name: str) -> str:
    """Return a name that can be stored; of a long one, the end tells most."""
    if len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return f"{digest}…{name[-200:]}"


def normalise_remote(url: str) -> str:
    """Return host and path of a remote, without user, port and ".git"; "" for a path or nonsense.

    The host is without case; the path keeps its case, which some hosts distinguish.
    """
    scp = None if "://" in url else _SCP_FORM.fullmatch(url)
    if scp is not None:
        host, path = scp["host"], scp["path"]
    else:
        try:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
        except ValueError:  # a bracket that is never closed
            return ""
    path = path.strip("/").removesuffix(".git").strip("/")
    return f"{host.lower()}/{path}" if host and path else ""


def _find_repository(folder: str) -> str | None:
    tops = (top for top in _folders_above(folder) if os.path.exists(os.path.join(top, ".git")))
    return next(tops, None)


def find_git_folder(top: str) -> str:
    """Return the folder of git that belongs to a repository, worktree or submodule."""
    git = os.path.join(top, ".git")
    if os.path.isdir(git):
        return git
    return os.path.join(top, _read(git).removeprefix("gitdir:").strip())


def _read_shared_folder(git: str) -> str:
    """Return the folder with the configuration, which the worktrees of a repository share."""
    return os.path.normpath(os.path.join(git, _read(os.path.join(git, "commondir")).strip()))


def _read_remote(git: str) -> str:
    """Return the remote called origin, else the only one there is."""
    config = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters=("=",))
    try:
        config.read_string(_read(os.path.join(git, "config")))
    except configparser.Error:
        return ""
    remotes = {
        section: normalise_remote(config.get(section, "url", fallback="") or "")
        for section in config.sections()
        if section.startswith("remote ")
    }
    if len(remotes) == 1:
        return next(iter(remotes.values()))
    return remotes.get('remote "origin"', "")


def _read(path: str) -> str:
    """Return a small text file; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_FILE)
    except OSError:
        return ""


def is_ignored(folder: str) -> bool:
    """Return whether a `.memrecallignore` of the folder or of one above it excludes the folder."""
    folders = list(_folders_above(os.path.realpath(folder)))[::-1]
    found = {root: _read_patterns(os.path.join(root, IGNORE_FILE)) for root in folders}
    files = {root: lines for root, lines in found.items() if lines}
    # As in git, nothing below an excluded folder can be included again.
    session = folders[-1]
    return bool(files) and any(
        _is_excluded(each, files, is_session=each == session) for each in folders
    )


def _folders_above(folder: str) -> Iterator[str]:
    """Yield a folder and those above it."""
    while True:
        yield folder
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _is_excluded(folder: str, files: dict[str, list[str]], *, is_session: bool) -> bool:
    """Return what the nearest file with a matching line says of a folder."""
    for root in _folders_above(folder):
        path = os.path.relpath(folder, root).replace(os.sep, "/")
        if path == "." and not is_session:
            continue
        # The last line that matches decides; `!` includes again.
        for line in reversed(files.get(root, ())):
            if _matches(path, line.removeprefix("!")):
                return not line.startswith("!")
    return False


def _read_patterns(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_FILE).decode(errors="replace")
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
