"""One member's view of a group: what the others said since it last spoke.

Read from the end of the session backwards, in growing steps, until the member itself is met: a turn
costs what its view costs, however long the history is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from memrecall.agent.rendering import to_json
from memrecall.chat.phrases import say
from memrecall.model.prompts import Language
from memrecall.store import Timeline
from memrecall.types import Message, format_time

MEMBER_ID, MENTIONS = "member_id", "mentions"  # in the metadata of a group's messages
VIEW_CHARACTERS = 12_000
_FIRST_STEP = 16
_SHORTEST = 100  # of a text, when many share the room


@dataclass(frozen=True, slots=True)
class View:
    """What a member is shown: the others' messages since it spoke, and some of what was before."""

    others: tuple[Message, ...]
    before: tuple[Message, ...]  # the member's own last message is the last of them, if any
    cut: bool  # the others said more than is shown

    @property
    def mentions(self) -> frozenset[str]:
        """The ids of all who are mentioned in what the others said."""
        return frozenset(
            member_id for message in self.others for member_id in message.metadata.get(MENTIONS, ())
        )

    def asked_of(self, member_id: str) -> Message:
        """What a member is to answer: the latest that mentions it, else the latest."""
        meant = [m for m in self.others if member_id in m.metadata.get(MENTIONS, ())]
        return (meant or self.others)[-1]

    def tell(self, language: Language) -> str:
        """The others' messages as the tool gives them: who said what, and when."""
        texts = fit_texts([message.content for message in self.others], VIEW_CHARACTERS, _SHORTEST)
        told: dict[str, object] = {
            "messages": [
                {
                    "time": format_time(message.ts),
                    "speaker": message.speaker or message.role.value,
                    "text": text,
                }
                for message, text in zip(self.others, texts, strict=True)
            ]
        }
        if self.cut:
            told["note"] = say(language, "omitted", shown=len(self.others))
        return to_json(told)


async def read_view(
    timeline: Timeline, session_id: str, member_id: str, *, most: int, before: int
) -> View:
    """The view of a member: at most so many messages of the others, and so many before them."""
    step = min(_FIRST_STEP, most)
    while True:
        said = await timeline.thread(session_id=session_id, limit=step + before)
        after = _place_after(said, member_id)
        is_whole = len(said) < step + before
        if (after is not None and after >= before) or is_whole or step == most:
            break
        step = min(step * 2, most)
    start = max(after or 0, len(said) - most)
    cut = start > after if after is not None else start > 0 or not is_whole
    return View(tuple(said[start:]), tuple(said[max(start - before, 0) : start]), cut)


def fit_texts(texts: Sequence[str], room: int, shortest: int) -> list[str]:
    """The texts, the long ones cut so that all together have about so many characters."""
    if sum(map(len, texts)) <= room:
        return list(texts)
    share = max(room // len(texts), shortest)
    return [text if len(text) <= share else f"{text[:share]}…" for text in texts]


def _place_after(said: Sequence[Message], member_id: str) -> int | None:
    """Behind what the member said last; None if it said nothing here."""
    for place in range(len(said), 0, -1):
        if said[place - 1].metadata.get(MEMBER_ID) == member_id:
            return place
    return None
