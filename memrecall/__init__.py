"""memrecall: a colleague that recalls, for LLM agents.

The names below are what applications use. They load when first asked for: importing the package
costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memrecall.version import __version__

if TYPE_CHECKING:
    from memrecall.agent import (
        MEMRECALL_TOOLS,
        MemoryContext,
        MemRecallAgent,
        RecallMemory,
        RecallOptions,
        RecallResult,
        RecallTool,
        memory_tools,
    )
    from memrecall.budget import Limits
    from memrecall.chat import GroupChat, SingleChat
    from memrecall.errors import MemrecallError
    from memrecall.memory import AsyncMemory, Importer, Library, Memory, recall
    from memrecall.scope import Permission, Scope
    from memrecall.search import Hit, SearchPage, SearchRequest
    from memrecall.settings import Settings, load_settings
    from memrecall.types import Message, NewMemory, NewMessage, Origin, Role

__all__ = [
    "MEMRECALL_TOOLS",
    "AsyncMemory",
    "GroupChat",
    "Hit",
    "Importer",
    "Library",
    "Limits",
    "MemRecallAgent",
    "Memory",
    "MemoryContext",
    "MemrecallError",
    "Message",
    "NewMemory",
    "NewMessage",
    "Origin",
    "Permission",
    "RecallMemory",
    "RecallOptions",
    "RecallResult",
    "RecallTool",
    "Role",
    "Scope",
    "SearchPage",
    "SearchRequest",
    "Settings",
    "SingleChat",
    "__version__",
    "load_settings",
    "memory_tools",
    "recall",
]

_HOMES = {
    "memrecall.agent": (
        "MEMRECALL_TOOLS",
        "MemRecallAgent",
        "MemoryContext",
        "RecallMemory",
        "RecallOptions",
        "RecallResult",
        "RecallTool",
        "memory_tools",
    ),
    "memrecall.budget": ("Limits",),
    "memrecall.chat": ("GroupChat", "SingleChat"),
    "memrecall.errors": ("MemrecallError",),
    "memrecall.memory": ("AsyncMemory", "Importer", "Library", "Memory", "recall"),
    "memrecall.scope": ("Permission", "Scope"),
    "memrecall.search": ("Hit", "SearchPage", "SearchRequest"),
    "memrecall.settings": ("Settings", "load_settings"),
    "memrecall.types": ("Message", "NewMemory", "NewMessage", "Origin", "Role"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'memrecall' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
