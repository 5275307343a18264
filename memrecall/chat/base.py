"""The base of single and group chats: how a turn is set up and stored."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from memrecall.agent import Recaller
from memrecall.agent.conversation import is_greeting
from memrecall.agent.driver import utc_now
from memrecall.agent.tools.search import ANSWERED_BY, BY_RULES, RECALLED
from memrecall.agent.trace import Observer
from memrecall.chat.events import TRUNCATED, ChatEvent, Failed, Final, TextDelta, TextRetracted
from memrecall.chat.offline import offline_chat_client
from memrecall.chat.turn import ASSISTANT, USER, ChatOptions, Turn, TurnRecalls, tell
from memrecall.errors import Conflict, InvalidArgument, MemrecallError, describe_validation_error
from memrecall.library.library import Caches, Library
from memrecall.messages import (
    ConversationMessage,
    MessageContent,
    join_content_parts,
    parse_message,
)
from memrecall.model import protocol
from memrecall.model.prompts import answers_by_rules, load_prompt
from memrecall.scope import DEFAULT_NAME, KEY_MEMBER, Scope
from memrecall.store import WriteStatus
from memrecall.text.language import is_question
from memrecall.types import EXTRACTION, Language, Message, NewMessage, Role

_log = logging.getLogger(__name__)

FINISH_REASON = "finish_reason"  # in the metadata of truncated answers
_ID_LENGTH = 32


class ChatArguments(TypedDict, total=False):
    """The keyword arguments that every chat accepts; see `Chat`."""

    recall_client: protocol.ChatCompletionClient | None
    options: ChatOptions
    caches: Caches | None
    clock: Callable[[], datetime]
    as_of: datetime | None
    observer: Observer | None
    on_leak: Callable[[str], None] | None


class Chat:
    """A chat in one scope.

    Without a `model_client`, answers quote what was recalled. Without a `recall_client`, recalls
    search offline, which takes milliseconds and no model call, unless the options say
    `recall_with_model`. `as_of` is the time of the turns: their recalls see nothing later.
    `observer` gets each trace event of the recalls. `on_leak` is called with the family of every
    tool call that a model writes as text, in a turn or in its recalls.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        model_client: protocol.ChatCompletionClient | None = None,
        *,
        recall_client: protocol.ChatCompletionClient | None = None,
        options: ChatOptions = ChatOptions(),  # noqa: B008 -- frozen
        caches: Caches | None = None,
        clock: Callable[[], datetime] = utc_now,
        as_of: datetime | None = None,
        observer: Observer | None = None,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self._library = library
        self._session = scope.session_id or DEFAULT_NAME
        self._scope = scope.with_session(self._session)
        self._client = model_client or offline_chat_client()
        if recall_client is None and options.recall_with_model:
            recall_client = model_client
        self._recall_client = recall_client
        self._options = options
        self._caches = caches
        self._clock = clock if as_of is None else lambda: as_of
        self._as_of = as_of
        self._observer = observer
        self._on_leak = on_leak

    def _recalls(
        self, visible: Sequence[Message], request: ConversationMessage, language: Language
    ) -> TurnRecalls:
        """Return the recalls of a turn, which skip messages that the model sees in full.

        Without a model only what is recalled is read, so that statements are not skipped.
        Questions are: they have the words of what is asked later, and would be quoted as answers.
        """
        if self._is_offline:
            visible = [m for m in visible if m.role is Role.ASSISTANT or is_question(m.content)]
        history = [parse_message(message) for message in visible]
        messages = [message for message in history if message.message_id != request.message_id]
        recaller = Recaller(
            self._library,
            self._scope,
            self._recall_client,
            self._options.recall_options(language),
            caches=self._caches,
            clock=self._clock,
            as_of=self._as_of,
            observer=self._observer,
        )
        return TurnRecalls(recaller, [*messages, request], self._options, language, self._on_leak)

    async def _stored_answer(self, answer_id: str, language: Language) -> Final | None:
        """Return the end of an earlier turn, if its answer is stored."""
        timeline = self._library.store.timeline(self._scope)
        for message in await timeline.get_many([answer_id]):
            return Final(
                text=message.content,
                message_id=message.message_id,
                parent_message_id=message.parent_message_id,
                finish_reason=message.metadata.get(FINISH_REASON, "stop"),
                degraded=bool(message.metadata.get("degraded")),
                language=language,
            )
        return None

    @property
    def _is_offline(self) -> bool:
        return answers_by_rules(self._client)

    async def _prompt(
        self, name: str, language: Language, facts: Sequence[str], instructions: str
    ) -> list[protocol.LLMMessage]:
        """Return the system messages: the prompt, then what varies between turns."""
        version = await self._library.store.feed(self._scope.user_id).version()
        now = self._clock()
        local = now.astimezone(ZoneInfo(version.time_zone)) if version else now
        left = self._options.own_recalls
        context = [
            *facts,
            tell(language, "now", now=local.isoformat(" ", "minutes")),
            tell(language, "cap_left" if left else "cap_none", left=left),
        ]
        return [
            protocol.SystemMessage(content=load_prompt(name, language)),
            protocol.SystemMessage(content="\n".join(filter(None, [*context, instructions]))),
        ]

    async def _dated(self, message: NewMessage, scope: Scope) -> NewMessage:
        """Return a message with the time of the caller's clock, if there is one.

        A message that is stored already keeps its time, so that a repeat is the same message.
        """
        if self._clock is utc_now or message.ts is not None:
            return message
        ids = [message.message_id] if message.message_id else []
        stored = await self._library.store.timeline(scope).get_many(ids)
        return message.model_copy(update={"ts": stored[0].ts if stored else self._clock()})

    async def _play_turn(
        self,
        turn: Turn,
        language: Language,
        describe: Callable[[str], dict[str, Any]],
        request: NewMessage | None = None,
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of a turn; `describe` returns the fields of its answer.

        What a `request` states is remembered. The answer is stored before the final event. If
        another turn has answered the same message first, its answer replaces this one.
        """
        async with aclosing(turn.play()) as events:
            async for event in events:
                yield event
        fields = describe(turn.visible.text)
        try:
            final = await self._store_answer(turn, language, fields)
        except Conflict:
            stored = await self._stored_answer(str(fields["message_id"]), language)
            if stored is None:
                raise
            yield TextRetracted("")
            yield TextDelta(stored.text)
            final = stored
        if request is not None:
            await self._remember(request, self._scope)
        yield final

    async def _remember(self, message: NewMessage, scope: Scope) -> None:
        """Store the facts of a stored message, if the options say so; log what fails."""
        if not self._options.extract or is_greeting(message.content):
            return
        # Imported here because most chats do not extract.
        from memrecall.memory import AsyncMemory
        from memrecall.memory.ingest import Addition, note_memory

        if self._is_offline:  # `add` makes no memory of the message, which is stored already
            note = note_memory(message, Addition(scope=scope, messages=[message]))
            if note is not None:
                source = {"source_message_ids": (message.message_id,)}
                new = [note[0].model_copy(update=source)]
                await self._library.add_memories(scope, new, origin=note[1], actor=EXTRACTION)
            return
        user = scope.member if scope.space else scope.user_id
        key = scope.member if scope.member and scope.member.startswith(KEY_MEMBER) else None
        memory = AsyncMemory(library=self._library, model_client=self._client)
        memory = memory.bind(
            user_id=user, agent_id=scope.agent_id, session_id=self._session, member=key
        )
        result = await (memory.space(scope.space) if scope.space else memory).add([message])
        for problem in result["problems"]:  # without the details, which may quote the message
            _log.warning("a chat could not extract %s", problem.partition(":")[0])

    async def _store_answer(self, turn: Turn, language: Language, answer: dict[str, Any]) -> Final:
        """Store the answer of a turn, without its tool calls, and return the final event."""
        message_id = None
        if not turn.silent:
            metadata = dict(answer.get("metadata", {}))
            if turn.degraded:
                metadata["degraded"] = True
            if turn.finish_reason in TRUNCATED:
                metadata[FINISH_REASON] = turn.finish_reason
            if self._is_offline:
                metadata[ANSWERED_BY] = BY_RULES
            else:
                metadata[RECALLED] = list(turn.sources)  # empty: said without evidence
            message = new_message(
                **{**answer, "metadata": metadata},
                role=Role.ASSISTANT,
                content=turn.visible.text,
                ts=self._clock() if self._clock is not utc_now else None,
            )
            message_id = (await self._library.add_messages(self._scope, [message])).ids[0]
        return Final(
            text=turn.visible.text,
            message_id=message_id,
            parent_message_id=answer.get("parent_message_id"),
            finish_reason=turn.finish_reason,
            degraded=turn.degraded,
            silent=turn.silent,
            language=language,
            model=turn.model,
            model_calls=turn.model_calls,
            leaks=tuple(turn.visible.leaks),
            usage=turn.usage,
            recalls=turn.recalls,
        )


async def errors_as_events(
    events: AsyncGenerator[ChatEvent, None],
) -> AsyncGenerator[ChatEvent, None]:
    """Yield a turn's events, ending with an error event if the turn fails."""
    try:
        async with aclosing(events):
            async for event in events:
                yield event
    except MemrecallError as error:
        yield Failed(error)


async def with_status(
    events: AsyncGenerator[ChatEvent, None], status: WriteStatus
) -> AsyncGenerator[ChatEvent, None]:
    """Yield a turn's events; the last one says what became of the message that it answers."""
    async with aclosing(events):
        async for event in events:
            yield replace(event, status=status) if isinstance(event, Final) else event


async def final_of(events: AsyncGenerator[ChatEvent, None]) -> Final:
    """Return the final event of a turn; raise the error if it fails."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Final):
                return event
            if isinstance(event, Failed):
                raise event.error
    raise AssertionError("a turn always ends with Final or Failed")


def read_content(content: MessageContent) -> dict[str, Any]:
    """Return the fields of a message: its text and, of pictures, what is stored of them."""
    fields: dict[str, Any] = join_content_parts({"content": content})
    if not isinstance(fields["content"], str) or not fields["content"].strip():
        raise InvalidArgument("the message is empty", hint="Pass a text")
    return fields


def new_message(**fields: Any) -> NewMessage:
    """Return a message to store; raise InvalidArgument if it cannot be stored."""
    try:
        return NewMessage(**fields)
    except ValidationError as error:
        # Errors may be logged, and contents must not be.
        raise InvalidArgument(describe_validation_error(error, quote_value=False)) from None


def answer_id(request_id: str, member_id: str = "") -> str:
    """Return the id of the answer to a message, so that a repeat stores no second one."""
    digest = hashlib.sha256(f"{request_id}\0{member_id}".encode()).hexdigest()
    return f"a_{digest[:_ID_LENGTH]}"


def to_model_message(role: Role, text: str) -> protocol.LLMMessage:
    """Return a message of the history in the form that the model reads."""
    if role is Role.ASSISTANT:
        return protocol.AssistantMessage(content=text, source=ASSISTANT)
    return protocol.UserMessage(content=text, source=USER)
