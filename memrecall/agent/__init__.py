"""The recall agent: five tools, a bounded loop, and the faces that parents use.

The names load when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memrecall.agent.agent import MemRecallAgent
    from memrecall.agent.autogen_memory import RecallMemory
    from memrecall.agent.context import MemoryContext
    from memrecall.agent.delegate import RecallTool
    from memrecall.agent.desk import Sources
    from memrecall.agent.driver import Recaller, RecallOptions
    from memrecall.agent.keeping import memory_tools
    from memrecall.agent.outcome import StopReason
    from memrecall.agent.result import RecalledMemory, RecallHandoff, RecallResult
    from memrecall.agent.rules import offline_client
    from memrecall.agent.streaming import stream_recall
    from memrecall.agent.tools.registry import MEMRECALL_TOOLS
    from memrecall.agent.trace import EventKind, Trace, TraceEvent

__all__ = [
    "MEMRECALL_TOOLS",
    "EventKind",
    "MemRecallAgent",
    "MemoryContext",
    "RecallHandoff",
    "RecallMemory",
    "RecallOptions",
    "RecallResult",
    "RecallTool",
    "RecalledMemory",
    "Recaller",
    "Sources",
    "StopReason",
    "Trace",
    "TraceEvent",
    "memory_tools",
    "offline_client",
    "stream_recall",
]

_HOMES = {
    "agent": ("MemRecallAgent",),
    "autogen_memory": ("RecallMemory",),
    "context": ("MemoryContext",),
    "delegate": ("RecallTool",),
    "desk": ("Sources",),
    "driver": (
        "RecallOptions",
        "Recaller",
    ),
    "keeping": ("memory_tools",),
    "outcome": ("StopReason",),
    "result": (
        "RecallHandoff",
        "RecallResult",
        "RecalledMemory",
    ),
    "rules": ("offline_client",),
    "streaming": ("stream_recall",),
    "tools.registry": ("MEMRECALL_TOOLS",),
    "trace": (
        "EventKind",
        "Trace",
        "TraceEvent",
    ),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
