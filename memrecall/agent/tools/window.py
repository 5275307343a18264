"""`expand_context_window`: more of the conversation, in a new iteration."""

from memrecall.agent.conversation import LARGEST_WINDOW
from memrecall.agent.phrases import say
from memrecall.agent.state import RecallState
from memrecall.agent.tools.models import ExpandContextWindowInput, ExpandContextWindowOutput
from memrecall.errors import InvalidArgument


async def expand_context_window(
    desk: RecallState, asked: ExpandContextWindowInput
) -> ExpandContextWindowOutput:
    """Grant a larger window if an iteration is left and something older exists."""
    desk.notes.in_a_row = 0
    window = desk.window
    if asked.requested_size <= window.size:
        raise InvalidArgument(
            say(
                desk.language,
                "window_not_larger",
                requested=asked.requested_size,
                size=window.size,
            )
        )
    if window.iteration >= window.max_iterations:
        refusal = say(desk.language, "window_no_iterations", count=window.max_iterations)
        return _refuse(desk, refusal)
    wanted = min(asked.requested_size, LARGEST_WINDOW)
    size = len(await desk.conversation.window(wanted))
    if size <= window.size:
        return _refuse(desk, say(desk.language, "window_nothing_older", size=window.size))
    window.granted = size
    following = window.iteration + 1
    return ExpandContextWindowOutput(
        approved=True,
        new_size=size,
        iteration=following,
        max_iterations=window.max_iterations,
        message=say(desk.language, "window_approved", size=size, iteration=following),
    )


def _refuse(desk: RecallState, message: str) -> ExpandContextWindowOutput:
    desk.window.refusals += 1
    return ExpandContextWindowOutput(
        approved=False,
        new_size=desk.window.size,
        iteration=desk.window.iteration,
        max_iterations=desk.window.max_iterations,
        message=message,
    )
