"""The recall agent: tools, a bounded loop, and the classes for parent agents.

Names are imported on first use.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.agent.autogen import (
        MemoryContext,
        MemRecallAgent,
        RecallMemory,
        RecallTool,
        memory_tools,
    )
    from memrecall.agent.blocks import write_block
    from memrecall.agent.driver import Recaller, RecallOptions
    from memrecall.agent.result import (
        Certainty,
        RecalledMemory,
        RecallHandoff,
        RecallResult,
        StopReason,
        Trace,
    )
    from memrecall.agent.tools.table import MEMRECALL_TOOLS
    from memrecall.agent.trace import TraceEvent

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
        ".autogen": (
            "MemRecallAgent",
            "MemoryContext",
            "RecallMemory",
            "RecallTool",
            "memory_tools",
        ),
        ".driver": ("RecallOptions", "Recaller"),
        ".blocks": ("write_block",),
        ".result": (
            "Certainty",
            "RecallHandoff",
            "RecallResult",
            "RecalledMemory",
            "StopReason",
            "Trace",
        ),
        ".tools.table": ("MEMRECALL_TOOLS",),
        ".trace": ("TraceEvent",),
    },
)
