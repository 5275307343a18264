"""A chat of one user with one assistant."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from autogen_core.models import ChatCompletionClient

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
from memrecall.chat.history import fit_texts, forge_call, whole
from memrecall.chat.options import ChatOptions
from memrecall.chat.phrases import chat_language
from memrecall.chat.recalls import LONGEST_QUERY
from memrecall.chat.tools import RECALL, Toolbox
from memrecall.chat.turn import Turn, TurnStart
from memrecall.library.caches import Caches
from memrecall.library.library import Library
from memrecall.messages import ConversationMessage
from memrecall.model.prompts import Language
from memrecall.scope import Scope
from memrecall.types import Message, Role

PROMPT = "chat_single"
_SHORTEST = 200  # of a message of the history, when many share the room


class SingleChat(Chat):
    """Answers one user, turn by turn; what was said is kept in the store, nothing in here.

    Several turns may run at once. `instructions` say who the assistant is.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        model_client: ChatCompletionClient | None = None,
        *,
        instructions: str = "",
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
        self._instructions = instructions

    def stream(
        self, text: str, *, message_id: str | None = None, speaker: str | None = None
    ) -> AsyncGenerator[ChatEvent, None]:
        """Answer a message of the user; the events end in `Final` or `Failed`.

        The message is stored first, and the answer before the end is told. Whoever closes the
        stream ends the turn, and no answer is stored. A `message_id` that was answered already
        gets the same answer again.
        """
        return errors_as_events(self._play(text, message_id, speaker))

    async def answer(
        self, text: str, *, message_id: str | None = None, speaker: str | None = None
    ) -> Final:
        """Answer a message of the user; what fails is raised."""
        return await final_of(self.stream(text, message_id=message_id, speaker=speaker))

    async def _play(
        self, text: str, message_id: str | None, speaker: str | None
    ) -> AsyncGenerator[ChatEvent, None]:
        message = new_message(
            role=Role.USER, content=require_words(text), message_id=message_id, speaker=speaker
        )
        written = await self._library.add_messages(self._scope, [message])
        (asked_id,) = written.ids
        history = await self._history(asked_id)
        language = self._options.language or chat_language([text], [m.content for m in history])
        again = None if written.stored else await self._stored_answer(answer_id(asked_id), language)
        if again is not None:
            yield TextDelta(again.text)
            yield again
            return
        asked = ConversationMessage(Role.USER, text, speaker, message_id=asked_id)
        start = await self._start(asked, asked_id, history, language)
        turn = Turn(self._client, start, self._options, self._on_leak)
        async with aclosing(turn.play()) as events:
            async for event in events:
                yield event
        yield await self._end(turn, language, {"message_id": answer_id(asked_id)})

    async def _start(
        self,
        asked: ConversationMessage,
        asked_id: str,
        history: Sequence[Message],
        language: Language,
    ) -> TurnStart:
        messages = await self._prompt(PROMPT, language, (), self._instructions)
        texts = fit_texts([m.content for m in history], self._options.history_characters, _SHORTEST)
        messages += [as_context(m.role, text) for m, text in zip(history, texts, strict=True)]
        messages.append(as_context(Role.USER, asked.text))
        arguments = to_json({"query": asked.text[:LONGEST_QUERY]})
        recalls = self._recalls(whole(history, texts), asked, language)
        return TurnStart(
            messages=messages,
            tools=Toolbox(recalls, language, log_contents=self._options.log_contents),
            forged=[forge_call(asked_id, RECALL, arguments)],
            language=language,
        )

    async def _history(self, asked_id: str) -> list[Message]:
        """What led up to the message, in its session."""
        if not self._options.history:
            return []
        said = await self._library.store.timeline(self._scope).thread(
            asked_id, session_id=self._session, limit=self._options.history
        )
        return [m for m in said if m.role is not Role.SYSTEM and m.content.strip()]
