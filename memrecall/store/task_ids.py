"""What a task may be called: a name that is safe as a directory on every system."""

import re

from memrecall.errors import InvalidArgument

LONGEST = 64
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?", re.ASCII)
# Names that mean a device on Windows, with any ending.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9])(?:\..*)?", re.I)


def is_task_id(name: str) -> bool:
    """Whether this can be a task's id, and so a directory's name."""
    if not 1 <= len(name) <= LONGEST or not _NAME.fullmatch(name):
        return False
    return not _DEVICE.fullmatch(name)


def check_task_id(name: str) -> str:
    """Return the name if it can be a task's id; no other ever becomes part of a path."""
    if not is_task_id(name):
        raise InvalidArgument(
            f"task_id {name[:80]!a} is not a name for a workspace",
            hint=f"Use 1 to {LONGEST} of A-Z, a-z, 0-9, '.', '_' and '-', beginning with a letter"
            " or digit, not ending with '.', and no name of a device",
        )
    return name
