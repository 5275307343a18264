"""A tool call that the recall agent's model wrote as text. It is never run: it may be quoted."""

import logging

from memrecall.agent.tools.table import MEMRECALL_TOOLS
from memrecall.agent.trace import TextEvent, TraceEvent
from memrecall.text.leaks import Leak, filter_leaks

_log = logging.getLogger(__name__)


def is_leaked_call(text: str, model: str) -> bool:
    """Whether an answer of a model holds a call of a tool; if so, it is logged."""
    leaks = _leaks(text)
    for leak in leaks:
        name = leak.name if leak.name in MEMRECALL_TOOLS else "a tool"
        _log.error("%s wrote a call of %s as text (%s); it was not run", model, name, leak.family)
    return bool(leaks)


def leaked_families(event: TraceEvent) -> list[str]:
    """The families of the calls that an event of a trace tells as text, for whoever counts them."""
    if not isinstance(event, TextEvent):
        return []
    return [leak.family for leak in _leaks(event.text)]


def _leaks(text: str) -> list[Leak]:
    return filter_leaks(text, MEMRECALL_TOOLS, reasoning="strip").leaks
