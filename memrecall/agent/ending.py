"""The handoff that the code writes when the agent could not: with the best of what was found."""

from memrecall.agent.desk import Desk
from memrecall.agent.outcome import Stop, StopReason
from memrecall.agent.phrases import say
from memrecall.agent.tools.models import HandoffInput

_UNJUDGED = 0.5  # a score that nobody has judged is worth half
_QUOTED = 160
_FAILURES = frozenset(
    {StopReason.MODEL_FAILED, StopReason.STORAGE_FAILED, StopReason.NO_TOOL_SUPPORT}
)


def write_ending(desk: Desk, stop: Stop) -> HandoffInput:
    """A handoff from the notes: the good hits, else a question; a failure is told as a failure."""
    best = desk.notes.best()
    reason = f"{stop.reason.value}: {stop.problem}" if stop.problem else stop.reason.value
    if best:
        summary = "\n".join(
            [say(desk.language, "end_best", reason=stop.reason.value)]
            + [f"- {desk.local(hit.ts)} {_quote(hit.summary or hit.content)}" for hit in best]
        )
        confidence = round(best[0].score * _UNJUDGED, 4)
    else:
        summary, confidence = _explain(desk, stop), 0.0
    empty = stop.reason is StopReason.NOTHING_STORED
    asks = not best and (empty or (bool(desk.notes.searches) and not _failed(desk, stop)))
    question = say(desk.language, "ask_first" if empty else "ask_details")
    return HandoffInput(
        reason=say(desk.language, "end_reason", reason=reason),
        search_summary=summary,
        relevant_memory_keys=[hit.key for hit in best],
        confidence=confidence,
        needs_more_info=asks,
        follow_up_question=question if asks else None,
        iteration_used=desk.window.iteration,
        context_window_used=desk.window.size,
    )


def _failed(desk: Desk, stop: Stop) -> bool:
    """Whether nothing was found because nothing could be searched."""
    searched = any(note.returned for note in desk.notes.searches)
    return stop.reason in _FAILURES or (bool(desk.notes.failures) and not searched)


def _explain(desk: Desk, stop: Stop) -> str:
    if stop.reason is StopReason.NOTHING_STORED:
        return say(desk.language, "end_empty")
    if not desk.notes.searches and not _failed(desk, stop):
        return say(desk.language, "end_unsearched", reason=stop.reason.value)
    phrase = "end_failed" if _failed(desk, stop) else "end_nothing"
    return say(desk.language, phrase, reason=stop.problem or stop.reason.value)


def _quote(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _QUOTED else flat[:_QUOTED] + "…"
