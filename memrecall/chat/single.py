"""A chat between one user and one assistant."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Unpack

from memrecall.agent.phrases import to_json
from memrecall.agent.tools import RECALL_MEMORY
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
    with_status,
)
from memrecall.chat.events import ChatEvent, Final, TextDelta
from memrecall.chat.offline import find_latest
from memrecall.chat.turn import (
    Turn,
    TurnStart,
    TurnTools,
    chat_language,
    fit_texts,
    forge_call,
    untruncated,
)
from memrecall.library.library import Library
from memrecall.messages import ConversationMessage, MessageContent
from memrecall.model import protocol
from memrecall.scope import Scope
from memrecall.types import Language, Message, NewMessage, Role

SINGLE_PROMPT = "chat_single"


class SingleChat(Chat):
    """A chat between one user and one assistant, whose messages are in the store alone.

    Several turns may run at once. `instructions` describe the assistant.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        model_client: protocol.ChatCompletionClient | None = None,
        *,
        instructions: str = "",
        **arguments: Unpack[ChatArguments],
    ) -> None:
        super().__init__(library, scope, model_client, **arguments)
        self._instructions = instructions

    def stream(
        self, text: MessageContent, *, message_id: str | None = None, speaker: str | None = None
    ) -> AsyncGenerator[ChatEvent, None]:
        """Answer a user message; yield events that end with `Final` or `Failed`.

        `text` may be content parts, such as a text and a picture, of which the model sees the
        caption. The message is stored first, the answer before `Final`. Closing the stream ends the
        turn without storing an answer. A `message_id` that was already answered gets the same
        answer.
        """
        return errors_as_events(self._play(text, message_id, speaker))

    async def answer(
        self, text: MessageContent, *, message_id: str | None = None, speaker: str | None = None
    ) -> Final:
        """Answer a user message; raise the error if the turn fails."""
        return await final_of(self.stream(text, message_id=message_id, speaker=speaker))

    async def _play(
        self, text: MessageContent, message_id: str | None, speaker: str | None
    ) -> AsyncGenerator[ChatEvent, None]:
        message = new_message(
            role=Role.USER, **read_content(text), message_id=message_id, speaker=speaker
        )
        message = await self._dated(message, self._scope)
        result = await self._library.add_messages(self._scope, [message])
        (request_id,) = result.ids
        message = message.model_copy(update={"message_id": request_id})
        answer = with_status(self._answer(message, request_id), result.statuses[0])
        async with aclosing(answer) as events:
            async for event in events:
                yield event

    async def _answer(
        self, message: NewMessage, request_id: str
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of the turn, or the answer that an earlier turn has stored."""
        history: list[Message] = []
        if self._options.history:
            messages = await self._library.store.timeline(self._scope).thread(
                request_id, session_id=self._session, limit=self._options.history
            )
            history = [m for m in messages if m.role is not Role.SYSTEM and m.content.strip()]
        earlier = [message.content for message in history]
        language = self._options.language or chat_language([message.content], earlier)
        final = await self._stored_answer(answer_id(request_id), language)
        if final is not None:
            yield TextDelta(final.text)
            yield final
            return
        request = ConversationMessage(
            Role.USER, message.content, message.speaker, message_id=request_id
        )
        start = await self._start(request, request_id, history, language)
        turn = Turn(self._client, start, self._options, self._on_leak)
        fields = {"message_id": answer_id(request_id), "parent_message_id": request_id}
        played = self._play_turn(turn, language, lambda _: fields, message)
        async with aclosing(played) as events:
            async for event in events:
                yield event

    async def _start(
        self,
        request: ConversationMessage,
        request_id: str,
        history: Sequence[Message],
        language: Language,
    ) -> TurnStart:
        messages = await self._prompt(SINGLE_PROMPT, language, (), self._instructions)
        texts = fit_texts([m.content for m in history], self._options.history_characters)
        messages += [to_model_message(m.role, text) for m, text in zip(history, texts, strict=True)]
        messages.append(to_model_message(Role.USER, request.text))
        arguments = to_json({"query": request.text[:MAX_QUERY]})
        recalls = self._recalls(untruncated(history, texts), request, language)
        if self._is_offline:
            recalls.latest = await find_latest(
                self._library, self._scope, request.text, request_id=request_id, as_of=self._as_of
            )
        return TurnStart(
            messages=messages,
            tools=TurnTools(recalls),
            forged=[forge_call(request_id, RECALL_MEMORY, arguments)],
            language=language,
        )
