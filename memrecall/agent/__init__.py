"""The recall agent: tools, a bounded loop, and the classes for parent agents.

Names are imported on first use.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.agent.autogen.agent import MemRecallAgent
    from memrecall.agent.autogen.context import MemoryContext
    from memrecall.agent.autogen.memory import RecallMemory, RecallTool, memory_tools
    from memrecall.agent.driver import Recaller, RecallOptions
    from memrecall.agent.prompt_view import write_block
    from memrecall.agent.result import (
        Certainty,
        RecalledMemory,
        RecallHandoff,
        RecallResult,
        StopReason,
    )
    from memrecall.agent.tools.table import MEMRECALL_TOOLS
    from memrecall.agent.trace import Trace
    from memrecall.agent.trace_events import TraceEvent

__all__ = [
    "MEMRECALL_TOOLS",
    "Certainty",
    "MemRecallAgent",
    "MemoryContext",
    "RecallHandoff",
    "RecallMemory",
    "RecallOptions",
    "RecallResult",
    "RecallTool",
    "RecalledMemory",
    "Recaller",
    "StopReason",
    "Trace",
    "TraceEvent",
    "memory_tools",
    "write_block",
]

__getattr__ = lazy_exports(
    __name__,
    {
        ".autogen.agent": ("MemRecallAgent",),
        ".autogen.context": ("MemoryContext",),
        ".autogen.memory": ("RecallMemory", "RecallTool", "memory_tools"),
        ".driver": ("RecallOptions", "Recaller"),
        ".prompt_view": ("write_block",),
        ".result": ("Certainty", "RecallHandoff", "RecallResult", "RecalledMemory", "StopReason"),
        ".tools.table": ("MEMRECALL_TOOLS",),
        ".trace": ("Trace",),
        ".trace_events": ("TraceEvent",),
    },
)
