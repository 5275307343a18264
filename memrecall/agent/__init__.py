"""The recall agent: five tools, a bounded loop, and the faces that parents use."""

from memrecall.agent.agent import MemRecallAgent
from memrecall.agent.autogen_memory import RecallMemory
from memrecall.agent.context import MemoryContext
from memrecall.agent.delegate import RecallTool
from memrecall.agent.desk import Sources
from memrecall.agent.driver import Recaller, RecallOptions
from memrecall.agent.memory_tools import memory_tools
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
