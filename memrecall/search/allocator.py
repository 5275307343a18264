"""Memory that was freed, given back to the system.

Building an index makes and frees many arrays of some megabytes. The C library keeps such blocks
for later use, which can double what a process seems to need. Asked to, glibc gives them back.
"""

import ctypes
import sys
from functools import cache
from typing import Any


@cache
def _trim() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except AttributeError:  # another C library, musl for one
        return None


def release_freed_memory() -> None:
    """Give freed blocks back to the system where the C library can."""
    trim = _trim()
    if trim is not None:
        trim(0)
