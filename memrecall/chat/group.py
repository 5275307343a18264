"""A chat of several members, some of whom models play."""

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from autogen_core.models import ChatCompletionClient, LLMMessage

from memrecall.agent.prompt_view import to_json
from memrecall.chat.base import (
    Chat,
    answer_id,
    as_context,
    errors_as_events,
    final_of,
    new_message,
    require_words,
)
from memrecall.chat.events import ChatEvent, Final, TextDelta
from memrecall.chat.history import (
    MEMBER_ID,
    MENTIONS,
    View,
    fit_texts,
    forge_call,
    read_view,
    whole,
    with_old_mention,
)
from memrecall.chat.mentions import Member, Members, find_mentions, without_mentions, without_names
from memrecall.chat.options import ChatOptions
from memrecall.chat.phrases import chat_language, say
from memrecall.chat.recalls import LONGEST_QUERY, ToolAnswer
from memrecall.chat.tools import MENTIONED, OTHERS, RECALL, Toolbox
from memrecall.chat.turn import Turn, TurnStart
from memrecall.errors import InvalidArgument
from memrecall.library.caches import Caches
from memrecall.library.library import Library
from memrecall.messages import ConversationMessage
from memrecall.model.prompts import Language
from memrecall.scope import Scope
from memrecall.types import Message, Role

PROMPT = "chat_group"
_SHORTEST = 200  # of a message of the history, when many share the room


@dataclass(frozen=True, slots=True)
class Posted:
    """A message of a member, as it was stored."""

    message_id: str
    mentions: tuple[str, ...]


class NothingToAnswer(InvalidArgument):
    """A member is to take its turn, and nobody has said anything since its last one."""


class GroupChat(Chat):
    """A group's conversation, stored once under the group's id, which is the scope's user.

    Members post; a turn lets one of them answer, who is shown what the others said since it last
    spoke. Nothing of a turn is kept in here.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        members: Sequence[Member],
        model_client: ChatCompletionClient | None = None,
        *,
        recall_client: ChatCompletionClient | None = None,
        options: ChatOptions = ChatOptions(),  # noqa: B008 -- frozen
        caches: Caches | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(
            library,
            scope,
            model_client,
            recall_client=recall_client,
            options=options,
            caches=caches,
            clock=clock,
            on_leak=on_leak,
        )
        self.members = Members(members)

    async def post(
        self,
        member_id: str,
        text: str,
        *,
        mentions: Collection[str] | None = None,
        message_id: str | None = None,
        ts: datetime | None = None,
    ) -> Posted:
        """Store what a member says. Without `mentions`, the text tells who is mentioned."""
        member = self.members.get(member_id)
        meant = self._mentioned(member, require_words(text), mentions)
        message = new_message(
            role=Role.ASSISTANT if member.ai else Role.USER,
            content=text,
            message_id=message_id,
            ts=ts,
            speaker=member.name,
            metadata={MEMBER_ID: member_id, MENTIONS: list(meant)},
        )
        written = await self._library.add_messages(self._scope, [message])
        return Posted(written.ids[0], meant)

    def stream(
        self,
        member_id: str,
        *,
        mentions: Collection[str] | None = None,
        answers: str | None = None,
    ) -> AsyncGenerator[ChatEvent, None]:
        """Let a member take its turn; the events end in `Final` or `Failed`.

        It is mentioned if `mentions` say so; without them, if the others mentioned it since it last
        spoke. Who is not mentioned may stay silent. `answers` is the id of the message that the
        turn was asked for with: if the member answered it already, the same answer is told again.
        """
        return errors_as_events(self._play(member_id, mentions, answers))

    async def answer(
        self,
        member_id: str,
        *,
        mentions: Collection[str] | None = None,
        answers: str | None = None,
    ) -> Final:
        """Let a member take its turn; what fails is raised."""
        return await final_of(self.stream(member_id, mentions=mentions, answers=answers))

    def _mentioned(
        self, by: Member, text: str, mentions: Collection[str] | None
    ) -> tuple[str, ...]:
        if mentions is not None:
            return tuple(self.members.get(member_id).member_id for member_id in mentions)
        found = find_mentions(text, self.members)
        return tuple(member_id for member_id in found if member_id != by.member_id)

    async def _play(
        self, member_id: str, mentions: Collection[str] | None, answers: str | None
    ) -> AsyncGenerator[ChatEvent, None]:
        member = self.members.get(member_id)
        for mentioned in mentions or ():
            self.members.get(mentioned)
        view = await self._view(member, mentions, answers)
        language = self._options.language or self._language(view)
        own_id = answer_id(answers, member_id) if answers is not None else None
        again = await self._stored_answer(own_id, language) if own_id else None
        if again is not None:
            yield TextDelta(again.text)
            yield again
            return
        if not view.others:
            raise NothingToAnswer(
                f"nobody has said anything since {member.name!r} last spoke",
                hint="Post a message first",
            )
        is_mentioned = view.is_mentioned if mentions is None else member_id in mentions
        start = await self._start(member, view, is_mentioned, language)
        turn = Turn(self._client, start, self._options, self._on_leak)
        async with aclosing(turn.play()) as events:
            async for event in events:
                yield event
        meant = self._mentioned(member, turn.speech.text, None)
        metadata = {MEMBER_ID: member_id, MENTIONS: list(meant)}
        answer = {"speaker": member.name, "metadata": metadata, "message_id": own_id}
        yield await self._end(turn, language, answer)

    async def _view(
        self, member: Member, mentions: Collection[str] | None, answers: str | None
    ) -> View:
        """What the member is shown: all that is new to it, else what was when it was asked."""
        timeline = self._library.store.timeline(self._scope)
        read = partial(
            read_view,
            timeline,
            self._session,
            member.member_id,
            most=self._options.view,
            before=self._options.history,
        )
        view = await read()
        if not view.others and answers is not None:
            for asked in await timeline.get_many([answers]):
                view = await read(up_to=asked)
        if mentions is None or member.member_id in mentions:
            view = await with_old_mention(view, timeline, self._session)
        return view

    async def _start(
        self, member: Member, view: View, is_mentioned: bool, language: Language
    ) -> TurnStart:
        facts = self._facts(member, language)
        messages = await self._prompt(PROMPT, language, facts, member.instructions)
        history = self._history(view)
        messages += self._as_told(member, view, history)
        messages.append(as_context(Role.USER, say(language, "your_turn", name=member.name)))
        asked = self._as_heard(view.asked)
        mentioned = say(language, "mentioned" if is_mentioned else "not_mentioned")
        answers = {
            OTHERS: ToolAnswer(view.tell(language), results=len(view.others)),
            MENTIONED: ToolAnswer(mentioned, results=1),
        }
        query = to_json({"query": asked.text[:LONGEST_QUERY]})
        calls = ((OTHERS, "{}"), (MENTIONED, "{}"), (RECALL, query))
        turn = f"{member.member_id}\0{view.others[-1].message_id}"
        shown = [*whole(view.before, history), *view.shown_whole()]
        recalls = self._recalls(shown, asked, language)
        return TurnStart(
            messages=messages,
            tools=Toolbox(recalls, language, answers, log_contents=self._options.log_contents),
            forged=[forge_call(turn, name, arguments) for name, arguments in calls],
            language=language,
            names=member.names,
            may_pass=not is_mentioned,
        )

    def _facts(self, member: Member, language: Language) -> list[str]:
        joint = say(language, "also_joint")
        members = [
            say(language, "also_called", name=m.name, nicknames=joint.join(m.nicknames))
            if m.nicknames
            else m.name
            for m in self.members
        ]
        return [
            say(language, "you_are", name=member.name, id=member.member_id),
            say(language, "members", members=joint.join(members)),
        ]

    def _history(self, view: View) -> list[str]:
        texts = [message.content for message in view.before]
        return fit_texts(texts, self._options.history_characters, _SHORTEST)

    def _as_told(self, member: Member, view: View, texts: Sequence[str]) -> list[LLMMessage]:
        """What was said before the view: the member's own words, and the others' by their names."""
        return [
            as_context(Role.ASSISTANT, text)
            if message.metadata.get(MEMBER_ID) == member.member_id
            else as_context(Role.USER, f"{message.speaker or message.role.value}: {text}")
            for message, text in zip(view.before, texts, strict=True)
        ]

    def _as_heard(self, message: Message) -> ConversationMessage:
        """To a member everybody else is somebody who asks, also another assistant."""
        text = without_mentions(message.content, self.members)
        return ConversationMessage(Role.USER, text, message.speaker, message.ts, message.message_id)

    def _language(self, view: View) -> Language:
        """The language of the chat, whatever its members are called."""
        latest = [message.content for message in view.others]
        earlier = [message.content for message in view.before]
        return chat_language(latest, earlier, lambda text: without_names(text, self.members))
