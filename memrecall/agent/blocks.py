"""Recall for the last user message of a parent's context, as a block for the parent's model."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from memrecall.agent.conversation import is_framework_text
from memrecall.agent.driver import Recaller
from memrecall.agent.offline.needs import RecallWhen, check_when, needs_recall
from memrecall.agent.prompt_view import (
    BLOCK_CHARACTERS,
    BlockPlace,
    is_block_message,
    write_block,
    write_failure,
)
from memrecall.agent.result import RecallResult
from memrecall.agent.trace import Observer
from memrecall.errors import (
    CassetteMismatch,
    InvalidArgument,
    MemrecallError,
    ScriptExhausted,
    describe_for_log,
)
from memrecall.messages import is_from_user, name_sources, parse_messages, strip_markers
from memrecall.model import protocol
from memrecall.text.language import language_of

_log = logging.getLogger(__name__)


class BlockRecaller:
    """Recalls for the last user message of a context and writes the block for its model."""

    def __init__(
        self,
        recaller: Recaller,
        user_sources: Iterable[object],
        characters: int = BLOCK_CHARACTERS,
        place: BlockPlace = "before",
        when: RecallWhen = "auto",
    ) -> None:
        check_when(when)
        self.recaller = recaller
        self.user_sources = name_sources(user_sources)
        self._characters = characters
        self._place = place
        self._when = when

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
        except InvalidArgument:  # a message without text
            return "", None
        conversation = parse_messages(
            [each for each in messages if not is_block_message(each)],
            user_sources=self.user_sources,
        )
        text = strip_markers(request.text)
        if is_framework_text(text) or not needs_recall(text, self._when):
            return "", None
        try:
            result = await self.recaller.recall(
                conversation, observer=observer, cancellation_token=token
            )
        except (CassetteMismatch, ScriptExhausted):
            raise  # an error of whoever records or scripts the run
        except MemrecallError as error:
            _log.warning("no recall: %s", describe_for_log(error))
            return write_failure(error.message, language_of(text)), None
        return write_block(result, self._characters, place=self._place), result
