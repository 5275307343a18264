"""A chat of several members, some of which are played by models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Unpack

from memrecall.agent.phrases import to_json
from memrecall.agent.tools import IS_MENTIONED, OTHER_MESSAGES, RECALL_MEMORY
from memrecall.agent.tools.search import MAX_QUERY
from memrecall.chat.base import (
    Chat,
    ChatArguments,
    answer_id,
    errors_as_events,
    final_of,
    new_message,
    read_content,
    to_model_message,
)
from memrecall.chat.events import ChatEvent, Final, TextDelta
from memrecall.chat.mentions import Member, Members, find_mentions, remove_mentions, remove_names
from memrecall.chat.turn import (
    TextAnswer,
    Turn,
    TurnStart,
    TurnTools,
    chat_language,
    fit_texts,
    forge_call,
    tell,
    untruncated,
)
from memrecall.errors import InvalidArgument, NotFound
from memrecall.library.library import Library
from memrecall.messages import ConversationMessage, MessageContent
from memrecall.model import protocol
from memrecall.scope import Scope
from memrecall.store import Timeline, WriteStatus
from memrecall.text_length import truncate_text
from memrecall.types import Language, Message, Role, format_time

GROUP_PROMPT = "chat_group"
MEMBER_ID, MENTIONS = "member_id", "mentions"  # in the metadata of a group's messages
VIEW_CHARACTERS = 12_000
REQUEST_CHARACTERS = 24_000  # of the message to be answered


@dataclass(frozen=True, slots=True)
class Posted:
    """A stored message of a member."""

    message_id: str
    mentions: tuple[str, ...]
    status: WriteStatus


class NothingToAnswer(InvalidArgument):
    """No other member has posted since the member's last message."""


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
        notes = []
        if self.is_cut:
            notes.append(tell(language, "omitted", shown=len(self.others)))
        if truncated := len(self.others) - len(untruncated(self.others, texts)):
            notes.append(tell(language, "shortened", count=truncated))
        if notes:
            view["note"] = tell(language, "note_joint").join(notes)
        return to_json(view)


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
    own = [n for n, message in enumerate(messages) if message.metadata.get(MEMBER_ID) == member_id]
    start_of_others = own[-1] + 1 if own else 0
    start = max(start_of_others, len(messages) - most)
    is_cut = start > start_of_others or not (own or is_complete)
    earlier = messages[max(start - before, 0) : start]
    return MemberView(member_id, tuple(messages[start:]), tuple(earlier), is_cut)


class GroupChat(Chat):
    """A group's conversation, stored once under the group's id, which is the scope's user.

    With a `space` it is stored under the space, where members of the space find it. Who posts is
    the author if they are a member of the space, by the same id; else it is the scope's user, who
    must be a contributor. Members of the chat post messages; in a turn one member answers what the
    others said since it last spoke.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        members: Sequence[Member],
        model_client: protocol.ChatCompletionClient | None = None,
        *,
        space: str | None = None,
        **arguments: Unpack[ChatArguments],
    ) -> None:
        super().__init__(library, scope, model_client, **arguments)
        self.members = Members(members)
        self._space, self._outside = space, self._scope

    async def _enter(self) -> None:
        """Read the membership in the group's space, which may have changed since the last call."""
        if self._space is not None:
            self._scope = await self._library.store.spaces.enter(self._outside, self._space)

    async def _enter_as(self, member: Member) -> Scope:
        """Return the scope that a member's message is stored in: in a space their own, if any."""
        await self._enter()
        if self._space is not None and not member.ai:
            own = replace(self._outside, user_id=member.member_id, member=None)
            with suppress(NotFound):
                return await self._library.store.spaces.enter(own, self._space)
        return self._scope

    async def post(
        self,
        member_id: str,
        text: MessageContent,
        *,
        mentions: Collection[str] | None = None,
        message_id: str | None = None,
        ts: datetime | None = None,
    ) -> Posted:
        """Store a member's message; without `mentions` they are found in the text."""
        member = self.members.get(member_id)
        scope = await self._enter_as(member)
        fields = read_content(text)
        mentioned = self._mentioned(member, fields["content"], mentions)
        own = {MEMBER_ID: member_id, MENTIONS: list(mentioned)}
        message = new_message(
            **{**fields, "metadata": {**fields.get("metadata", {}), **own}},
            role=Role.ASSISTANT if member.ai else Role.USER,
            message_id=message_id,
            ts=ts,
            speaker=member.name,
        )
        message = await self._dated(message, scope)
        result = await self._library.add_messages(scope, [message])
        if result.stored and not member.ai:
            await self._remember(message.model_copy(update={"message_id": result.ids[0]}), scope)
        return Posted(result.ids[0], mentioned, result.statuses[0])

    def stream(
        self, member_id: str, *, mentions: Collection[str] | None = None, answers: str | None = None
    ) -> AsyncGenerator[ChatEvent, None]:
        """Let a member answer; yield events that end with `Final` or `Failed`.

        A member that is not mentioned may stay silent. Without `mentions`, it is mentioned if the
        others mentioned it since it last spoke. `answers` is the id of the message to answer: if
        the member has already answered it, the stored answer is returned again.
        """
        return errors_as_events(self._play(member_id, mentions, answers))

    async def answer(
        self, member_id: str, *, mentions: Collection[str] | None = None, answers: str | None = None
    ) -> Final:
        """Let a member answer; raise the error if the turn fails."""
        return await final_of(self.stream(member_id, mentions=mentions, answers=answers))

    def _mentioned(
        self, author: Member, text: str, mentions: Collection[str] | None
    ) -> tuple[str, ...]:
        if mentions is not None:
            return tuple(self.members.get(member_id).member_id for member_id in mentions)
        member_ids = find_mentions(text, self.members)
        return tuple(member_id for member_id in member_ids if member_id != author.member_id)

    async def _play(
        self, member_id: str, mentions: Collection[str] | None, answers: str | None
    ) -> AsyncGenerator[ChatEvent, None]:
        await self._enter()
        member = self.members.get_ai(member_id)
        for mention in mentions or ():
            self.members.get(mention)  # raises NotFound for an unknown member
        view = await self._view(member, answers)
        language = self._options.language or chat_language(
            [message.content for message in view.others],
            [message.content for message in view.before],
            lambda text: remove_names(text, self.members),
        )
        final_id = answer_id(answers, member_id) if answers is not None else None
        final = await self._stored_answer(final_id, language) if final_id else None
        if final is not None:
            yield TextDelta(final.text)
            yield final
            return
        if not view.others:
            raise NothingToAnswer(
                f"no other member has posted since {member.name!r} last spoke",
                hint="Post a message first",
            )
        is_mentioned = view.is_mentioned if mentions is None else member_id in mentions
        start = await self._start(member, view, is_mentioned, language)
        turn = Turn(self._client, start, self._options, self._on_leak)

        def describe(text: str) -> dict[str, Any]:
            metadata = {MEMBER_ID: member_id, MENTIONS: list(self._mentioned(member, text, None))}
            return {
                "speaker": member.name,
                "metadata": metadata,
                "message_id": final_id,
                "parent_message_id": answers or view.request.message_id,
            }

        async with aclosing(self._play_turn(turn, language, describe)) as events:
            async for event in events:
                yield event

    async def _view(self, member: Member, answers: str | None) -> MemberView:
        """Return what is new to the member, else its view when `answers` was posted."""
        timeline = self._library.store.timeline(self._scope)
        load = partial(
            load_view,
            timeline,
            self._session,
            member.member_id,
            most=self._options.view,
            before=self._options.history,
        )
        view = await load()
        if not view.others and answers is not None:
            for message in await timeline.get_many([answers]):
                view = await load(up_to=message)
        return view

    async def _start(
        self, member: Member, view: MemberView, is_mentioned: bool, language: Language
    ) -> TurnStart:
        facts = self._facts(member, language)
        messages = await self._prompt(GROUP_PROMPT, language, facts, member.instructions)
        texts = [message.content for message in view.before]
        history = fit_texts(texts, self._options.history_characters)
        for message, text in zip(view.before, history, strict=True):
            if message.metadata.get(MEMBER_ID) == member.member_id:
                messages.append(to_model_message(Role.ASSISTANT, text))
            else:
                speaker = message.speaker or message.role.value
                messages.append(to_model_message(Role.USER, f"{speaker}: {text}"))
        messages.append(to_model_message(Role.USER, tell(language, "your_turn", name=member.name)))
        # To a member every other member is a user.
        request = ConversationMessage(
            Role.USER,
            remove_mentions(view.request.content, self.members),
            view.request.speaker,
            view.request.ts,
            view.request.message_id,
        )
        mentioned = tell(language, "mentioned" if is_mentioned else "not_mentioned")
        answers = {
            OTHER_MESSAGES: TextAnswer(content=view.to_json(language), results=len(view.others)),
            IS_MENTIONED: TextAnswer(content=mentioned, results=1),
        }
        query = to_json({"query": request.text[:MAX_QUERY]})
        calls = ((OTHER_MESSAGES, "{}"), (IS_MENTIONED, "{}"), (RECALL_MEMORY, query))
        turn = f"{member.member_id}\0{view.others[-1].message_id}"
        visible = untruncated(view.before, history) + untruncated(view.others, view.texts())
        recalls = self._recalls(visible, request, language)
        return TurnStart(
            messages=messages,
            tools=TurnTools(recalls, answers),
            forged=[forge_call(turn, name, arguments) for name, arguments in calls],
            language=language,
            names=member.names,
            others=[name for other in self.members if other != member for name in other.names],
            may_pass=not is_mentioned,
        )

    def _facts(self, member: Member, language: Language) -> list[str]:
        joint = tell(language, "also_joint")
        members = [
            tell(language, "also_called", name=m.name, nicknames=joint.join(m.nicknames))
            if m.nicknames
            else m.name
            for m in self.members
        ]
        return [
            tell(language, "you_are", name=member.name, id=member.member_id),
            tell(language, "members", members=joint.join(members)),
        ]
