"""What was said around a message, as far as it may be shown."""

from memrecall.agent.desk import Desk
from memrecall.types import Message


async def look_around(
    desk: Desk, message: Message, reach: int
) -> tuple[list[Message], list[Message]]:
    """The messages before and after it in its session, at most `reach` each, earliest first."""
    timeline = desk.sources.store.timeline(desk.scope)
    page = await timeline.neighbors(message.message_id, before=reach, after=reach)
    place = next(at for at, near in enumerate(page.items) if near.message_id == message.message_id)
    before = [near for near in page.items[:place] if _is_shown(desk, near, message)]
    after = [near for near in page.items[place + 1 :] if _is_shown(desk, near, message)]
    return before, after


def _is_shown(desk: Desk, near: Message, anchor: Message) -> bool:
    """Of the same session, not too late, and nothing that the caller has already."""
    if near.session_id != anchor.session_id:
        return False
    if desk.conversation.gave(near.message_id, near.content):
        return False
    return desk.horizon is None or near.ts < desk.horizon
