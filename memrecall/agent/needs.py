"""Whether a message needs a recall at all: rules first, then a model if there is one for it."""

import asyncio
import logging
import re
from collections.abc import Sequence

from pydantic import BaseModel

from memrecall.agent.offline.needs import needs_recall
from memrecall.agent.prompt_view import SOURCE, to_json
from memrecall.errors import CallerError
from memrecall.model.prompts import load_prompt
from memrecall.model.protocol import ChatCompletionClient, LLMMessage, SystemMessage, UserMessage
from memrecall.model.structured import ask_json
from memrecall.types import Language

_log = logging.getLogger(__name__)

SECONDS = 10.0  # a parent waits for the answer
# Texts that frameworks write as the user: AutoGen's transfers and selectors, and our own handoff.
_FRAMEWORK_TEXT = re.compile(
    r"\s*Transferred to \w+, adopting the role of "
    r"|(?s:.*)Then select the next role from \["
    r"|\s*## (?:Memory search finished|记忆搜索完成)"
)
_MAX_TEXTS = 5
_MAX_CHARACTERS = 1_000


class Need(BaseModel):
    """The answer of a model to the prompt `needs_recall`."""

    needed: bool


class NeedJudge:
    """Decides whether the last of some texts needs a recall."""

    def __init__(
        self, model_client: ChatCompletionClient | None = None, seconds: float = SECONDS
    ) -> None:
        self._client = model_client
        self._seconds = seconds

    async def needs_recall(self, texts: Sequence[str], language: Language) -> bool:
        """Return True if the rules see a need, or else if the model does.

        Texts of a framework never need a recall.
        """
        if _FRAMEWORK_TEXT.match(texts[-1]):
            return False
        verdict = needs_recall(texts[-1], texts[:-1])
        if verdict.needed or self._client is None:
            return verdict.needed
        answer = await self._ask(self._client, texts, language)
        # Without a readable answer of the model, the verdict of the rules stands.
        return verdict.needed if answer is None else answer.needed

    async def _ask(
        self, client: ChatCompletionClient, texts: Sequence[str], language: Language
    ) -> Need | None:
        lines = [to_json({"text": text[:_MAX_CHARACTERS]}) for text in texts[-_MAX_TEXTS:]]
        messages: list[LLMMessage] = [
            SystemMessage(content=load_prompt("needs_recall", language)),
            UserMessage(content="\n".join(lines), source=SOURCE),
        ]
        try:
            async with asyncio.timeout(self._seconds):
                return (await ask_json(client, messages, Need)).value
        except CallerError:
            raise  # the caller has to fix a cassette mismatch or an exhausted test script
        except Exception as error:  # third-party clients raise errors of any type
            name = type(error).__name__  # the message may quote the conversation
            _log.warning(
                "the rules decided whether a recall is needed, because the model failed: %s", name
            )
            return None
