"""Which project a folder belongs to.

A project is named by its git remote, so that clones, worktrees and machines share it, and by the
folder of its repository where there is no remote.
"""

import configparser
import hashlib
import os
import re
from urllib.parse import urlsplit

_SCP_FORM = re.compile(r"(?:[^@/\s]+@)?(?P<host>[^:/\s]{2,}):(?!//)(?P<path>\S+)")  # git@host:a/b
_MAX_FILE = 100_000  # bytes of a git configuration
_MAX_NAME = 255  # what the store takes


def find_project(folder: str) -> str:
    """Return the normalised remote of a folder's repository, else the repository or the folder."""
    root = find_root(folder)
    return _shorten(_read_remote(_git_folder(root)) or root)


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
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def _git_folder(top: str) -> str:
    """Return the folder with the configuration, which the worktrees of a repository share."""
    git = os.path.join(top, ".git")
    if os.path.isdir(git):
        return git
    pointer = _read(git).removeprefix("gitdir:").strip()  # a worktree or a submodule
    git = os.path.join(top, pointer)
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
