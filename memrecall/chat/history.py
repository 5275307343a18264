"""The history that a turn shows the model; in a group, one member's view of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from memrecall.agent.phrases import to_json
from memrecall.chat.phrases import tell
from memrecall.store import Timeline
from memrecall.text_length import truncate_text
from memrecall.types import Language, Message, format_time

MEMBER_ID, MENTIONS = "member_id", "mentions"  # in the metadata of a group's messages
VIEW_CHARACTERS = 12_000
REQUEST_CHARACTERS = 24_000  # of the message to be answered


def fit_texts(texts: Sequence[str], budget: int, shortest: int = 200) -> list[str]:
    """Truncate the longest texts so that all fit a budget of characters.

    What short texts do not use is shared by the long ones. No text is cut below `shortest`.
    """
    limit = max(_length_limit([len(text) for text in texts], budget), shortest)
    return [truncate_text(text, limit) for text in texts]


def _length_limit(lengths: Sequence[int], budget: int) -> int:
    """Return the largest length per text with which all texts fit the budget."""
    for index, length in enumerate(sorted(lengths)):
        share = budget // (len(lengths) - index)
        if length > share:
            return share
        budget -= length
    return max(lengths, default=0)


def untruncated(messages: Sequence[Message], texts: Sequence[str]) -> list[Message]:
    """Return the messages whose texts are shown in full."""
    pairs = zip(messages, texts, strict=True)
    return [message for message, text in pairs if message.content == text]


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member's view: the others' messages since it last spoke, and some earlier ones."""

    member_id: str
    others: tuple[Message, ...]
    before: tuple[Message, ...]  # ends with the member's own last message, if any
    is_cut: bool  # not all messages of the others are shown

    @property
    def is_mentioned(self) -> bool:
        """True if the others mentioned the member since it last spoke."""
        return any(_mentions(message, self.member_id) for message in self.others)

    @property
    def request(self) -> Message:
        """The message to answer: the latest that mentions the member, else the latest."""
        mentions = [message for message in self.others if _mentions(message, self.member_id)]
        return (mentions or self.others)[-1]

    def texts(self) -> list[str]:
        """Return the others' texts as they are shown, the request with the most space."""
        request = self.request
        request_text = truncate_text(request.content, REQUEST_CHARACTERS)
        rest = [message.content for message in self.others if message is not request]
        budget = max(VIEW_CHARACTERS - len(request_text), VIEW_CHARACTERS // 2)
        fitted = iter(fit_texts(rest, budget, shortest=100))
        return [request_text if message is request else next(fitted) for message in self.others]

    def to_json(self, language: Language) -> str:
        """Return the others' messages as the tool result: speaker, time and text."""
        texts = self.texts()
        view: dict[str, object] = {
            "messages": [
                {
                    "time": format_time(message.ts),
                    "speaker": message.speaker or message.role.value,
                    "text": text,
                }
                for message, text in zip(self.others, texts, strict=True)
            ]
        }
        if note := self._note(len(self.others) - len(untruncated(self.others, texts)), language):
            view["note"] = note
        return to_json(view)

    def _note(self, truncated: int, language: Language) -> str:
        notes = []
        if self.is_cut:
            notes.append(tell(language, "omitted", shown=len(self.others)))
        if truncated:
            notes.append(tell(language, "shortened", count=truncated))
        return tell(language, "note_joint").join(notes)


def _mentions(message: Message, member_id: str) -> bool:
    return member_id in message.metadata.get(MENTIONS, ())


async def load_view(
    timeline: Timeline,
    session_id: str,
    member_id: str,
    *,
    most: int,
    before: int,
    up_to: Message | None = None,
) -> MemberView:
    """Return a member's view: up to `most` messages of the others, `before` ones before them.

    With `up_to` the view ends with that message.
    """
    # In a group the parent of an answer is what it replies to: nothing is left out for it.
    end = None if up_to is None else up_to.message_id
    limit = most + before
    messages = await timeline.thread(end, session_id=session_id, limit=limit, branches=False)
    is_complete = len(messages) < limit
    messages += [] if up_to is None else [up_to]
    start_of_others = _index_after_own(messages, member_id)
    start = max(start_of_others or 0, len(messages) - most)
    is_cut = start > (start_of_others or 0) or (start_of_others is None and not is_complete)
    earlier = messages[max(start - before, 0) : start]
    return MemberView(member_id, tuple(messages[start:]), tuple(earlier), is_cut)


def _index_after_own(messages: Sequence[Message], member_id: str) -> int | None:
    """Return the index after the member's last message, or None if there is none."""
    own = (message.metadata.get(MEMBER_ID) == member_id for message in messages)
    return max((index for index, is_own in enumerate(own, 1) if is_own), default=None)
