"""Recall for the last user message of a parent's context, as a block for the parent's model."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from pydantic import BaseModel

from memrecall.agent.conversation import is_framework_text
from memrecall.agent.driver import Recaller
from memrecall.agent.offline.needs import needs_recall
from memrecall.agent.prompt_view import (
    BLOCK_CHARACTERS,
    BlockPlace,
    is_block_message,
    to_json,
    write_block,
    write_failure,
)
from memrecall.agent.result import RecallResult
from memrecall.agent.trace import Observer
from memrecall.errors import CassetteMismatch, InvalidArgument, MemrecallError, ScriptExhausted
from memrecall.messages import is_from_user, name_sources, parse_messages
from memrecall.model import protocol
from memrecall.model.prompts import answers_by_rules
from memrecall.model.structured import ask_prompt
from memrecall.text.language import language_of
from memrecall.types import Language

_log = logging.getLogger(__name__)

DECISION_SECONDS = 10.0  # a parent waits for the answer
_MAX_TEXTS = 5
_MAX_CHARACTERS = 1_000


class Need(BaseModel):
    """The answer of a model to the prompt `needs_recall`."""

    needed: bool


class NeedJudge:
    """Decides whether the last of some texts needs a recall."""

    def __init__(
        self,
        model_client: protocol.ChatCompletionClient | None = None,
        seconds: float = DECISION_SECONDS,
    ) -> None:
        self._client = None if answers_by_rules(model_client) else model_client
        self._seconds = seconds

    async def needs_recall(self, texts: Sequence[str], language: Language) -> bool:
        """Return True if the rules see a need, or else if the model does.

        Texts of a framework never need a recall.
        """
        if is_framework_text(texts[-1]):
            return False
        if needs_recall(texts[-1], texts[:-1]):
            return True
        if self._client is None:
            return False
        lines = [to_json({"text": text[:_MAX_CHARACTERS]}) for text in texts[-_MAX_TEXTS:]]
        answer = await ask_prompt(
            self._client, "needs_recall", language, lines, Need, seconds=self._seconds
        )
        # Without a readable answer of the model, the verdict of the rules stands.
        return answer.value is not None and answer.value.needed


class BlockRecaller:
    """Recalls for the last user message of a context and writes the block for its model."""

    def __init__(
        self,
        recaller: Recaller,
        judge: NeedJudge,
        user_sources: Iterable[object],
        characters: int = BLOCK_CHARACTERS,
        place: BlockPlace = "before",
    ) -> None:
        self.recaller = recaller
        self.user_sources = name_sources(user_sources)
        self._judge = judge
        self._characters = characters
        self._place = place

    def last_request(self, messages: Sequence[protocol.LLMMessage]) -> int | None:
        """Return the index of the user's last message."""
        by_user = (is_from_user(message, self.user_sources) for message in messages)
        return max((index for index, is_user in enumerate(by_user) if is_user), default=None)

    async def recall_block(
        self,
        messages: Sequence[object],
        token: protocol.CancellationToken | None = None,
        observer: Observer | None = None,
    ) -> tuple[str, RecallResult | None]:
        """Return the block and the result for the last message; no block if it needs no recall.

        A failed recall becomes a block that says so, because it must not fail the parent.
        """
        try:
            (request,) = parse_messages(messages[-1:])
        except InvalidArgument:  # a message without text, such as a picture
            return "", None
        conversation = parse_messages(
            [each for each in messages if not is_block_message(each)],
            user_sources=self.user_sources,
        )
        language = language_of(request.text)
        texts = [message.text for message in conversation]
        if not await self._judge.needs_recall(texts, language):
            return "", None
        try:
            result = await self.recaller.recall(
                conversation, observer=observer, cancellation_token=token
            )
        except (CassetteMismatch, ScriptExhausted):
            raise  # an error of whoever records or scripts the run
        except MemrecallError as error:
            _log.warning("no recall: %s", error)
            return write_failure(error.message, language), None
        return write_block(result, self._characters, place=self._place), result
