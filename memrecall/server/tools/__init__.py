"""The memory tools: one table of them serves JSON-RPC over stdio and HTTP, and MCP."""

from memrecall.server.rpc.methods import dispatcher, fault_of, report_bug
from memrecall.server.tools.desk import ToolService
from memrecall.server.tools.registry import TOOLS, Needs, Tool, call

__all__ = ["TOOLS", "Needs", "Tool", "ToolService", "call", "dispatcher", "fault_of", "report_bug"]
