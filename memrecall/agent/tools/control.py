"""The tools that end an iteration: `expand_context_window` and `handoff`."""

import re
from collections.abc import Mapping, Sequence

from memrecall.agent.blocks import fit_keys, write_handoff_message
from memrecall.agent.conversation import LARGEST_WINDOW
from memrecall.agent.state import RecallState
from memrecall.agent.tools.models import (
    ExpandContextWindowInput,
    ExpandContextWindowOutput,
    HandoffInput,
    HandoffOutput,
    SearchMemoriesOutput,
)
from memrecall.errors import InvalidArgument
from memrecall.text_length import truncate_text

_MAX_DROPPED_KEYS = 10  # that are listed
_MAX_KEY = 100  # characters of a dropped key
_SEPARATORS = re.compile(r"[,;，；、\n]")
_LONGEST_SLIP = 300  # characters of a text in which keys are looked for
_CORRECTION_CHARACTERS = 1_000  # of the keys that a correction lists
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
    supports them. A model that can still answer is told of its slips first.
    """
    keys = arguments.relevant_memory_keys
    keys = _repair_keys(keys, state.seen_keys) if state.checks_keys else keys
    keys = list(dict.fromkeys(keys))
    if state.can_correct:
        _refuse_slips(state, keys)
    accepted = [
        key
        for key in keys
        if not state.checks_keys
        or (key in state.seen_keys and not state.conversation.has_message(key, ""))
    ]
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
    if state.checks_keys and not accepted and (dropped or not state.is_offline):
        says_nothing_fits = arguments.needs_more_info or arguments.confidence < _LIKELY
        state.is_unsupported = bool(dropped) or not says_nothing_fits
        text = _describe_absence(state)
        update |= {"reason": text, "search_summary": text, "reasoning": None}
    state.handoff = arguments.model_copy(update=update)
    return HandoffOutput(success=True, message=write_handoff_message(state, state.handoff))


def _repair_keys(texts: Sequence[str], seen: Mapping[str, object]) -> list[str]:
    """Return the seen keys that texts name, and each other part of a text as it is.

    Models add quotes, brackets and prefixes, change the case, and write two keys as one.
    """
    if not seen:
        return list(texts)
    names = "|".join(map(re.escape, sorted(seen, key=len, reverse=True)))
    find = re.compile(rf"(?<![\w./-])(?:{names})(?![\w/-]|[.:=]\w)", re.IGNORECASE).findall
    keys = {key.lower(): key for key in seen} | {key: key for key in seen}

    def repair(text: str) -> list[str]:
        if text in seen or len(text) > _LONGEST_SLIP:
            return [text]
        parts = [part for part in _SEPARATORS.split(text) if re.search(r"\w", part)]
        found = [find(part) or find("".join(part.split())) or [part.strip()] for part in parts]
        return [keys.get(key) or keys.get(key.lower(), key) for names in found for key in names]

    return [key for text in texts for key in repair(text)]


def _refuse_slips(state: RecallState, keys: Sequence[str]) -> None:
    """Raise InvalidArgument for a handoff that ignores its own search, or names unknown keys once.

    The loop stops the model when it has handed off twice without reading what it found.
    """
    unread = [run.output for run in state.runs[state.read_runs :]]
    if not keys and any(isinstance(o, SearchMemoriesOutput) and o.total_found for o in unread):
        state.blind_handoffs += 1
        raise InvalidArgument(state.say("handoff_unread"))
    unknown = [key for key in keys if key not in state.seen_keys]
    if unknown and state.seen_keys and not state.has_corrected_keys:
        state.has_corrected_keys = True
        seen = fit_keys(state.language, list(state.seen_keys), _CORRECTION_CHARACTERS)
        named = [truncate_text(key, _MAX_KEY) for key in unknown[:_MAX_DROPPED_KEYS]]
        texts = {"keys": ", ".join(named), "seen": ", ".join(seen)}
        raise InvalidArgument(state.say("handoff_unknown", **texts))


def _describe_absence(state: RecallState) -> str:
    """Return what is true of a handoff without keys; a failure is not an absence."""
    if state.is_unsupported:
        return state.say("handoff_unsupported")
    if state.failures and not state.has_results:
        return state.say("end_failed", reason=state.say_codes(*dict.fromkeys(state.failures)))
    if state.withheld:
        return state.say("matches_withheld", count=state.withheld)
    return state.say("handoff_nothing" if state.searches else "handoff_unsearched")
