"""One member's view of a group: what the others said since it last spoke.

Read from the end of the session backwards, in growing steps, until the member itself is met: a turn
costs what its view costs, however long the history is.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)

from memrecall.agent.prompt_view import to_json
from memrecall.chat.phrases import say
from memrecall.model.prompts import Language
from memrecall.store import Timeline
from memrecall.text_length import truncate_text
from memrecall.types import Message, format_time


def fit_texts(texts: Sequence[str], room: int, shortest: int) -> list[str]:
    """The texts, the long ones cut so that all together have about so many characters.

    What the short ones leave free is the long ones' to share. None is cut below `shortest`.
    """
    share = max(_share([len(text) for text in texts], room), shortest)
    return [truncate_text(text, share) for text in texts]


def _share(lengths: Sequence[int], room: int) -> int:
    """The most that each may have, so that all together keep to the room."""
    left = room
    for place, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - place)
        if length > share:
            return share
        left -= length
    return max(lengths, default=0)


ASSISTANT, USER = "assistant", "user"  # AutoGen sends sources as names, which must be plain
_ID_LENGTH = 24


def forge_call(turn: str, name: str, arguments: str) -> FunctionCall:
    """A call with an id of its own: the same turn and tool, the same id."""
    digest = hashlib.sha256(f"{turn}\0{name}\0{arguments}".encode()).hexdigest()
    return FunctionCall(id=f"call_{digest[:_ID_LENGTH]}", name=name, arguments=arguments)


def call_items(
    calls: Sequence[FunctionCall],
    results: Sequence[FunctionExecutionResult],
    thought: str | None = None,
) -> list[LLMMessage]:
    """Calls and their outputs as two items of a context, forged or real."""
    return [
        AssistantMessage(content=list(calls), thought=thought, source=ASSISTANT),
        FunctionExecutionResultMessage(content=list(results)),
    ]


def without_calls(
    messages: Sequence[LLMMessage], said: str, language: Language
) -> list[LLMMessage]:
    """The context for a request without tools: outputs as data, calls left out.

    A context with calls in it and no tools beside it is what makes models write calls as text.
    What the reader has seen of the answer already stands at the end, before the demand for words.
    """
    plain: list[LLMMessage] = []
    for message in messages:
        if isinstance(message, FunctionExecutionResultMessage):
            plain += [_as_data(result, language) for result in message.content]
        elif not isinstance(message, AssistantMessage) or isinstance(message.content, str):
            plain.append(message)
    if said:
        plain.append(AssistantMessage(content=said, source=ASSISTANT))
    plain.append(UserMessage(content=say(language, "answer_in_words"), source=USER))
    return plain


def _as_data(result: FunctionExecutionResult, language: Language) -> UserMessage:
    text = say(language, "as_data", tool=result.name, content=result.content)
    return UserMessage(content=text, source=USER)


MEMBER_ID, MENTIONS = "member_id", "mentions"  # in the metadata of a group's messages
VIEW_CHARACTERS = 12_000
ASKING_CHARACTERS = 24_000  # of the message that the member is to answer
FURTHEST = 10_000  # messages back, in which a mention that is not answered yet is looked for
_FIRST_STEP = 16
_SHORTEST = 100  # of a text, when many share the room


@dataclass(frozen=True, slots=True)
class View:
    """What a member is shown: the others' messages since it spoke, and some of what was before."""

    member_id: str
    others: tuple[Message, ...]
    before: tuple[Message, ...]  # the member's own last message is the last of them, if any
    cut: bool  # the others said more than is shown
    recalled: bool = False  # the first of the others was said long before the rest

    @property
    def is_mentioned(self) -> bool:
        """Whether the others mentioned the member since it last spoke."""
        return any(mentions(message, self.member_id) for message in self.others)

    @property
    def asked(self) -> Message:
        """What the member is to answer: the latest that mentions it, else the latest."""
        meant = [message for message in self.others if mentions(message, self.member_id)]
        return (meant or self.others)[-1]

    def texts(self) -> list[str]:
        """The others' words as they are shown: what asks the member first of all, then the rest."""
        asked = self.asked
        words = truncate_text(asked.content, ASKING_CHARACTERS)
        rest = [message.content for message in self.others if message is not asked]
        room = max(VIEW_CHARACTERS - len(words), VIEW_CHARACTERS // 2)
        fitted = iter(fit_texts(rest, room, _SHORTEST))
        return [words if message is asked else next(fitted) for message in self.others]

    def shown_whole(self) -> list[Message]:
        """Those of the others' messages of which nothing is left out."""
        return whole(self.others, self.texts())

    def tell(self, language: Language) -> str:
        """The others' messages as the tool gives them: who said what, and when."""
        texts = self.texts()
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
        if note := self._note(len(self.others) - len(whole(self.others, texts)), language):
            told["note"] = note
        return to_json(told)

    def _note(self, shortened: int, language: Language) -> str:
        """What is missing: messages, or the ends of some."""
        notes = []
        if self.cut:
            phrase = "omitted_but_asking" if self.recalled else "omitted"
            notes.append(say(language, phrase, shown=len(self.others) - self.recalled))
        if shortened:
            notes.append(say(language, "shortened", count=shortened))
        return say(language, "note_joint").join(notes)


def mentions(message: Message, member_id: str) -> bool:
    """Whether a message mentions a member."""
    return member_id in message.metadata.get(MENTIONS, ())


def whole(messages: Sequence[Message], texts: Sequence[str]) -> list[Message]:
    """Those of the messages that are shown with all their words."""
    shown = zip(messages, texts, strict=True)
    return [message for message, text in shown if message.content == text]


async def read_view(
    timeline: Timeline,
    session_id: str,
    member_id: str,
    *,
    most: int,
    before: int,
    up_to: Message | None = None,
) -> View:
    """The view of a member: at most so many messages of the others, and so many before them.

    With `up_to`, as it was when that message had been said.
    """
    last = [] if up_to is None else [up_to]
    end = None if up_to is None else up_to.message_id
    step = min(_FIRST_STEP, most)
    while True:
        said = await timeline.thread(end, session_id=session_id, limit=step + before) + last
        after = _place_after(said, member_id)
        is_whole = len(said) < step + before
        if (after is not None and after >= before) or is_whole or step == most:
            break
        step = min(step * 2, most)
    start = max(after or 0, len(said) - most)
    cut = start > after if after is not None else start > 0 or not is_whole
    return View(member_id, tuple(said[start:]), tuple(said[max(start - before, 0) : start]), cut)


async def with_old_mention(view: View, timeline: Timeline, session_id: str) -> View:
    """The view, with the latest message that mentions its member if that lies further back."""
    if not view.cut or view.is_mentioned:
        return view
    about = await timeline.find_labelled(view.member_id, session_id=session_id, depth=FURTHEST)
    for message in about:  # the latest first
        if message.metadata.get(MEMBER_ID) == view.member_id:
            break
        if mentions(message, view.member_id):
            before = tuple(m for m in view.before if m.message_id != message.message_id)
            return replace(view, others=(message, *view.others), before=before, recalled=True)
    return view


def _place_after(said: Sequence[Message], member_id: str) -> int | None:
    """Behind what the member said last; None if it said nothing here."""
    for place in range(len(said), 0, -1):
        if said[place - 1].metadata.get(MEMBER_ID) == member_id:
            return place
    return None
