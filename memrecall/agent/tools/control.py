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
from memrecall.text_length import truncate_text

_MAX_DROPPED_KEYS = 10  # that are listed
_MAX_KEY = 100  # characters of a dropped key
_LIKELY = 0.5  # the confidence from which a handoff claims to have found something


async def expand_context_window(
    state: RecallState, arguments: ExpandContextWindowInput
) -> ExpandContextWindowOutput:
    """Grant a larger window if an iteration is left and older messages exist."""
    window, requested = state.window, arguments.requested_size
    size, iteration = window.shown, window.iteration
    if requested <= size:
        raise InvalidArgument(state.say("window_not_larger", requested=requested, size=size))
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
    """Accept a handoff; keys that were not seen are dropped, listed, and lower the confidence.

    Without any key the confidence is 0, and the model's own words are not passed on: nothing
    supports them.
    """
    keys = list(dict.fromkeys(arguments.relevant_memory_keys))
    accepted = [key for key in keys if _can_hand_off(state, key)]
    dropped = [key for key in keys if key not in accepted]
    state.dropped_keys = [truncate_text(key, _MAX_KEY) for key in dropped[:_MAX_DROPPED_KEYS]]
    state.dropped_unlisted = len(dropped) - len(state.dropped_keys)
    share = len(accepted) / len(keys) if keys else 0.0
    update: dict[str, object] = {
        "relevant_memory_keys": accepted,
        "confidence": round(arguments.confidence * share, 4),
        "iteration_used": state.window.iteration,
        "context_window_used": state.window.size,
    }
    if state.checks_keys and not accepted and (dropped or not state.uses_rules):
        says_nothing_fits = arguments.needs_more_info or arguments.confidence < _LIKELY
        state.is_unsupported = bool(dropped) or not says_nothing_fits
        text = _describe_absence(state)
        update |= {"reason": text, "search_summary": text, "reasoning": None}
    state.handoff = arguments.model_copy(update=update)
    return HandoffOutput(success=True, message=write_handoff_message(state, state.handoff))


def _describe_absence(state: RecallState) -> str:
    """Return what is true of a handoff without keys; a failure is not an absence."""
    if state.is_unsupported:
        return state.say("handoff_unsupported")
    if state.failures and not state.has_results:
        return state.say("end_failed", reason=", ".join(dict.fromkeys(state.failures)))
    if state.withheld:
        return state.say("handoff_withheld", count=state.withheld)
    return state.say("handoff_nothing" if state.searches else "handoff_unsearched")


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
        if state.dropped_unlisted:
            keys = state.say("and_more", items=keys, count=state.dropped_unlisted)
        parts += ["", state.say("handoff_dropped", keys=keys)]
    if state.withheld:
        parts += ["", state.say("handoff_withheld", count=state.withheld)]
    if handoff.needs_more_info and handoff.follow_up_question:
        parts += ["", state.say("handoff_question"), handoff.follow_up_question]
    return "\n".join(parts)
