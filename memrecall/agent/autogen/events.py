"""Trace events as events of AutoGen."""

from autogen_agentchat import messages as autogen_messages
from autogen_agentchat.messages import BaseAgentEvent, ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult

from memrecall.agent.trace_events import CallEvent, ResultEvent, ThoughtEvent, TraceEvent


def to_agent_event(event: TraceEvent, source: str) -> BaseAgentEvent | None:
    """Return a trace event as AutoGen's event; None for kinds that AutoGen does not have."""
    match event:
        case CallEvent():
            call = FunctionCall(id=event.id, arguments=event.arguments, name=event.tool)
            return ToolCallRequestEvent(content=[call], source=source)
        case ResultEvent():
            result = FunctionExecutionResult(
                content=event.text,
                name=event.tool,
                call_id=event.id,
                is_error=event.error is not None,
            )
            return ToolCallExecutionEvent(content=[result], source=source)
        case ThoughtEvent():
            return autogen_messages.ThoughtEvent(content=event.text, source=source)
    return None
