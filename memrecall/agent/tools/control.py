"""The tools that end an iteration: `expand_context_window` and `handoff`."""

from memrecall.agent.conversation import LARGEST_WINDOW
from memrecall.agent.state import RecallState
from memrecall.agent.tools.models import (
    ExpandContextWindowInput,
    ExpandContextWindowOutput,
    HandoffInput,
    HandoffOutput,
)
from memrecall.errors import InvalidArgument


async def expand_context_window(
    state: RecallState, arguments: ExpandContextWindowInput
) -> ExpandContextWindowOutput:
    """Grant a larger window if an iteration is left and older messages exist."""
    window, requested = state.window, arguments.requested_size
    if requested <= window.size:
        raise InvalidArgument(state.say("window_not_larger", requested=requested, size=window.size))
    size, iteration = window.size, window.iteration
    if iteration >= window.max_iterations:
        message = state.say("window_no_iterations", count=window.max_iterations)
    elif (found := len(await state.conversation.window(min(requested, LARGEST_WINDOW)))) <= size:
        message = state.say("window_nothing_older", size=size)
    else:
        window.granted, size, iteration = found, found, iteration + 1
        message = state.say("window_approved", size=size, iteration=iteration)
    window.refusals += window.granted is None
    return ExpandContextWindowOutput(
        approved=window.granted is not None,
        new_size=size,
        iteration=iteration,
        max_iterations=window.max_iterations,
        message=message,
    )


async def handoff(state: RecallState, arguments: HandoffInput) -> HandoffOutput:
    """Accept a handoff; keys that were not seen are dropped, listed, and lower the confidence."""
    keys = list(dict.fromkeys(arguments.relevant_memory_keys))
    accepted = [key for key in keys if _can_hand_off(state, key)]
    dropped = [key for key in keys if key not in accepted]
    state.dropped_keys += dropped
    confidence = arguments.confidence
    if dropped:
        confidence = round(confidence * len(accepted) / len(keys), 4)
    state.handoff = arguments.model_copy(
        update={
            "relevant_memory_keys": accepted,
            "confidence": confidence,
            "iteration_used": state.window.iteration,
            "context_window_used": state.window.size,
        }
    )
    return HandoffOutput(success=True, message=write_handoff_message(state, state.handoff))


def _can_hand_off(state: RecallState, key: str) -> bool:
    if not state.checks_keys:
        return True
    return key in state.seen_keys and not state.conversation.has_message(key, "")


def write_handoff_message(state: RecallState, handoff: HandoffInput) -> str:
    """Return the handoff as text with the sections that a parent expects."""
    parts = [
        state.say("handoff_title", confidence=handoff.confidence),
        "",
        state.say("handoff_summary"),
        handoff.search_summary,
        "",
        state.say("handoff_relevance"),
        handoff.reasoning or handoff.reason,
    ]
    if handoff.relevant_memory_keys:
        count = len(handoff.relevant_memory_keys)
        parts += ["", state.say("handoff_keys"), state.say("handoff_count", count=count)]
        parts += [f"- {key}" for key in handoff.relevant_memory_keys]
    if state.dropped_keys:
        keys = ", ".join(state.dropped_keys)
        parts += ["", state.say("handoff_dropped", keys=keys)]
    if state.withheld:
        parts += ["", state.say("handoff_withheld", count=state.withheld)]
    if handoff.needs_more_info and handoff.follow_up_question:
        parts += ["", state.say("handoff_question"), handoff.follow_up_question]
    return "\n".join(parts)
