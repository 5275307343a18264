"""How a turn, and how a recall, can end: closed lists that the loop matches on."""

from dataclasses import dataclass
from enum import StrEnum

from memrecall.agent.tools.models import HandoffInput


class StopReason(StrEnum):
    """Why a recall ended. Those after `HANDOFF` end in a handoff that the code forced or wrote."""

    HANDOFF = "handoff"
    ITERATIONS = "iterations"
    MODEL_CALLS = "model_calls"
    TOOL_CALLS = "tool_calls"
    TOKENS = "tokens"
    SECONDS = "seconds"
    NO_OLDER_MESSAGES = "no_older_messages"
    TEXT_ANSWER = "text_answer"
    LEAKED_CALL = "leaked_call"
    SILENCE = "silence"
    REPEATED_SEARCH = "repeated_search"
    BAD_CALLS = "bad_calls"
    NO_TOOL_SUPPORT = "no_tool_support"
    MODEL_FAILED = "model_failed"
    STORAGE_FAILED = "storage_failed"
    NOTHING_STORED = "nothing_stored"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Finish:
    """The agent handed off; `forced_by` names the limit that left it no other choice."""

    handoff: HandoffInput
    forced_by: StopReason | None = None


@dataclass(frozen=True, slots=True)
class Widen:
    """The agent asked for a larger window and got it."""

    size: int


@dataclass(frozen=True, slots=True)
class Proceed:
    """Tools were called; the agent goes on."""


@dataclass(frozen=True, slots=True)
class Steer:
    """The agent strayed: it is told so once, and the second time the reason ends the run."""

    reason: StopReason
    phrase: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The run cannot go on; the code writes the handoff, or the rules go on from there."""

    reason: StopReason
    problem: str = ""
    never_called: bool = False  # the model has called no tool at all


TurnOutcome = Finish | Widen | Proceed | Steer | Stop
IterationOutcome = Finish | Widen | Stop
