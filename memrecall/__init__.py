"""Long-term memory and recall for LLM agents.

The names below are the public API. Each one is imported on first use, so that importing the package
itself is cheap.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

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
    from memrecall.integrations.openai_client import wrap_openai
    from memrecall.memory import AsyncMemory, Importer, Library, Memory
    from memrecall.memory.recall import recall
    from memrecall.scope import Permission, Scope
    from memrecall.search import Hit, SearchPage, SearchRequest
    from memrecall.settings import Settings, load_settings
    from memrecall.timing import deadline
    from memrecall.types import Message, NewMemory, NewMessage, Origin, Role

__version__ = "0.4.0.dev0"

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
    "deadline",
    "load_settings",
    "memory_tools",
    "recall",
    "wrap_openai",
]

__getattr__ = lazy_exports(
    __name__,
    {
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
        "memrecall.timing": ("deadline",),
        "memrecall.errors": ("MemrecallError",),
        "memrecall.integrations.openai_client": ("wrap_openai",),
        "memrecall.memory": ("AsyncMemory", "Importer", "Library", "Memory", "recall"),
        "memrecall.scope": ("Permission", "Scope"),
        "memrecall.search": ("Hit", "SearchPage", "SearchRequest"),
        "memrecall.settings": ("Settings", "load_settings"),
        "memrecall.types": ("Message", "NewMemory", "NewMessage", "Origin", "Role"),
    },
)


def __dir__() -> list[str]:
    return __all__
