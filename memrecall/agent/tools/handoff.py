"""`handoff`: the typed end of a recall."""

from memrecall.agent.phrases import say
from memrecall.agent.state import RecallState
from memrecall.agent.tools.models import HandoffInput, HandoffOutput


async def handoff(desk: RecallState, asked: HandoffInput) -> HandoffOutput:
    """Accept a handoff: keys that were not seen are dropped, listed, and lower the confidence."""
    named = list(dict.fromkeys(asked.relevant_memory_keys))
    kept = [key for key in named if _was_found(desk, key)]
    dropped = [key for key in named if key not in kept]
    desk.notes.dropped += dropped
    confidence = asked.confidence
    if dropped:
        confidence = round(confidence * len(kept) / len(named), 4)
    desk.handoff = asked.model_copy(
        update={
            "relevant_memory_keys": kept,
            "confidence": confidence,
            "iteration_used": desk.window.iteration,
            "context_window_used": desk.window.size,
        }
    )
    return HandoffOutput(success=True, message=write_message(desk, desk.handoff))


def _was_found(desk: RecallState, key: str) -> bool:
    return key in desk.notes.shown and not desk.conversation.has_message(key, "")


def write_message(desk: RecallState, handed: HandoffInput) -> str:
    """The handoff as a text with the sections that a parent expects."""
    language = desk.language
    parts = [
        say(language, "handoff_title", confidence=handed.confidence),
        "",
        say(language, "handoff_summary"),
        handed.search_summary,
        "",
        say(language, "handoff_relevance"),
        handed.reasoning or handed.reason,
    ]
    if handed.relevant_memory_keys:
        count = len(handed.relevant_memory_keys)
        parts += ["", say(language, "handoff_keys"), say(language, "handoff_count", count=count)]
        parts += [f"- {key}" for key in handed.relevant_memory_keys]
    if desk.notes.dropped:
        keys = ", ".join(desk.notes.dropped)
        parts += ["", say(language, "handoff_dropped", keys=keys)]
    if desk.notes.withheld:
        parts += ["", say(language, "handoff_withheld", count=desk.notes.withheld)]
    if handed.needs_more_info and handed.follow_up_question:
        parts += ["", say(language, "handoff_question"), handed.follow_up_question]
    return "\n".join(parts)
