"""What single and group chat have in common: how a turn is set up, stored and told."""

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from pydantic import ValidationError

from memrecall.agent import Recaller
from memrecall.agent.tools.search import ANSWERED_BY, RECALLED, RULES
from memrecall.chat.events import ChatEvent, Failed, Final
from memrecall.chat.history import ASSISTANT, USER
from memrecall.chat.offline import offline_chat_client
from memrecall.chat.options import ChatOptions
from memrecall.chat.phrases import say, say_count
from memrecall.chat.recalls import TurnRecalls
from memrecall.chat.turn import Turn
from memrecall.errors import InvalidArgument, MemrecallError
from memrecall.library.caches import Caches
from memrecall.library.library import Library
from memrecall.messages import ConversationMessage
from memrecall.model.offline import OFFLINE_FAMILY
from memrecall.model.prompts import Language, load_prompt
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.types import Message, NewMessage, Role

_ID_LENGTH = 32


class Chat:
    """The ground of both chats: one scope, one model, and one way to end a turn.

    Without a `model_client` rules answer. Without a `recall_client` rules recall, which takes
    milliseconds and no call of a model. `on_leak` is told the family of every call that a model
    wrote as text, in a turn or in its recalls, when it happens.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        model_client: ChatCompletionClient | None = None,
        *,
        recall_client: ChatCompletionClient | None = None,
        options: ChatOptions = ChatOptions(),  # noqa: B008 -- frozen
        caches: Caches | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self._library = library
        self._session = scope.session_id or DEFAULT_NAME
        self._scope = scope.with_session(self._session)
        self._client = model_client or offline_chat_client()
        self._recall_client = recall_client
        self._options = options
        self._caches = caches or Caches()
        self._clock = clock
        self._on_leak = on_leak

    def _recalls(
        self, shown: Sequence[Message], asked: ConversationMessage, language: Language
    ) -> TurnRecalls:
        """The recalls of a turn. What the model is shown whole anyway need not be recalled.

        The rules read nothing but what is recalled: for them nothing is left out.
        """
        known = () if self._by_rules else [as_utterance(message) for message in shown]
        said = [*(each for each in known if each.message_id != asked.message_id), asked]
        recaller = Recaller(
            self._library,
            self._scope,
            self._recall_client,
            self._options.recall_options(language),
            caches=self._caches,
            clock=self._clock,
        )
        return TurnRecalls(recaller, said, self._options, language, self._on_leak)

    async def _stored_answer(self, answer_id: str, language: Language) -> Final | None:
        """The end of a turn that was played before, if its answer is stored."""
        timeline = self._library.store.timeline(self._scope)
        for message in await timeline.get_many([answer_id]):
            return Final(
                text=message.content,
                message_id=message.message_id,
                degraded=bool(message.metadata.get("degraded")),
                language=language,
            )
        return None

    @property
    def _by_rules(self) -> bool:
        return bool(self._client.model_info["family"] == OFFLINE_FAMILY)

    async def _prompt(
        self, name: str, language: Language, facts: Sequence[str], instructions: str
    ) -> list[LLMMessage]:
        """The prompt as it is written, then what varies: who, when, how many recalls."""
        context = [
            *facts,
            say(language, "now", now=await self._now()),
            self._cap(language),
        ]
        return [
            SystemMessage(content=load_prompt(name, language)),
            SystemMessage(content="\n".join(filter(None, [*context, instructions]))),
        ]

    def _cap(self, language: Language) -> str:
        options = self._options
        if not options.own_recalls:
            return say(language, "cap_none")
        phrase = "cap_counted" if options.count_forced else "cap_beside"
        left = options.own_recalls
        return say_count(language, phrase, left, cap=options.recalls, left=left)

    async def _now(self) -> str:
        """The time where the user is."""
        mark = await self._library.store.feed(self._scope.user_id).version()
        now = self._clock()
        return (now.astimezone(ZoneInfo(mark.time_zone)) if mark else now).isoformat(" ", "minutes")

    async def _end(self, turn: Turn, language: Language, answer: dict[str, Any]) -> Final:
        """Store the answer of a turn and tell its end. Of the calls nothing is stored."""
        message_id = None
        if not turn.silent:
            metadata = dict(answer.pop("metadata", {}))
            if turn.degraded:
                metadata["degraded"] = True
            if self._by_rules:
                metadata[ANSWERED_BY] = RULES
            elif turn.sources:
                metadata[RECALLED] = list(turn.sources)
            message = new_message(
                role=Role.ASSISTANT, content=turn.speech.text, metadata=metadata, **answer
            )
            message_id = (await self._library.add_messages(self._scope, [message])).ids[0]
        return Final(
            text=turn.speech.text,
            message_id=message_id,
            degraded=turn.degraded,
            silent=turn.silent,
            language=language,
            model=turn.model,
            model_calls=turn.cost.model_calls,
            leaks=tuple(turn.speech.leaks),
            usage=turn.cost.usage,
            recalls=turn.recalls,
        )


async def errors_as_events(
    events: AsyncGenerator[ChatEvent, None],
) -> AsyncGenerator[ChatEvent, None]:
    """The events of a turn; what memrecall raises on purpose becomes the last of them."""
    try:
        async with aclosing(events):
            async for event in events:
                yield event
    except MemrecallError as error:
        yield Failed(error)


async def final_of(events: AsyncGenerator[ChatEvent, None]) -> Final:
    """The end of a turn that nobody watches; what fails is raised."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Final):
                return event
            if isinstance(event, Failed):
                raise event.error
    raise AssertionError("a turn always ends in an end")


def require_words(text: str) -> str:
    """Refuse a message that says nothing."""
    if not text.strip():
        raise InvalidArgument("the message is empty", hint="Say something")
    return text


def new_message(**fields: Any) -> NewMessage:
    """A message to be stored; what no database can keep is a mistake of the caller."""
    try:
        return NewMessage(**fields)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(map(str, fault["loc"]))
        raise InvalidArgument(f"{name}: {fault['msg']}") from None


def answer_id(asked_id: str, member_id: str = "") -> str:
    """The id of the answer to a message: asking for it again cannot store a second one."""
    digest = hashlib.sha256(f"{asked_id}\0{member_id}".encode()).hexdigest()
    return f"a_{digest[:_ID_LENGTH]}"


def as_utterance(message: Message) -> ConversationMessage:
    """A stored message as a recall takes it."""
    return ConversationMessage(
        message.role, message.content, message.speaker, message.ts, message.message_id
    )


def as_context(role: Role, text: str) -> LLMMessage:
    """A message of the history as the model reads it."""
    if role is Role.ASSISTANT:
        return AssistantMessage(content=text, source=ASSISTANT)
    return UserMessage(content=text, source=USER)
