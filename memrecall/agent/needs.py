"""Whether a message needs a recall at all: rules first, a model only if one is given for it."""

import asyncio
import logging
import re
from collections.abc import Sequence

from autogen_core.models import ChatCompletionClient, LLMMessage, SystemMessage, UserMessage
from pydantic import BaseModel

from memrecall.agent.offline.needs import needs_recall
from memrecall.agent.prompt_view import SOURCE, to_json
from memrecall.errors import CallerError
from memrecall.model.prompts import Language, load_prompt
from memrecall.model.structured import ask_json

_log = logging.getLogger(__name__)

SECONDS = 10.0  # a parent waits for the answer
# What frameworks say in a user's place: AutoGen's transfers and selectors, and our own handoff.
_BY_A_FRAMEWORK = re.compile(
    r"\s*Transferred to \w+, adopting the role of "
    r"|(?s:.*)Then select the next role from \["
    r"|\s*## (?:Memory search finished|记忆搜索完成)"
)
_SHOWN = 5
_LONGEST = 1_000


class Need(BaseModel):
    """What a model answers to the prompt `needs_recall`."""

    needed: bool


class NeedJudge:
    """Decides whether the last of some texts needs a recall."""

    def __init__(
        self, model_client: ChatCompletionClient | None = None, seconds: float = SECONDS
    ) -> None:
        self._client = model_client
        self._seconds = seconds

    async def needs_recall(self, texts: Sequence[str], language: Language) -> bool:
        """What the rules say; where they see no need, the model's word counts if it gives one.

        What a framework wrote needs none, whatever words are in it.
        """
        if _BY_A_FRAMEWORK.match(texts[-1]):
            return False
        verdict = needs_recall(texts[-1], texts[:-1])
        if verdict.needed or self._client is None:
            return verdict.needed
        answer = await self._ask(self._client, texts, language)
        # No answer, or one that cannot be read, is neither yes nor no: the rules' word stands.
        return verdict.needed if answer is None else answer.needed

    async def _ask(
        self, client: ChatCompletionClient, texts: Sequence[str], language: Language
    ) -> Need | None:
        lines = [to_json({"text": text[:_LONGEST]}) for text in texts[-_SHOWN:]]
        messages: list[LLMMessage] = [
            SystemMessage(content=load_prompt("needs_recall", language)),
            UserMessage(content="\n".join(lines), source=SOURCE),
        ]
        try:
            async with asyncio.timeout(self._seconds):
                return (await ask_json(client, messages, Need)).value
        except CallerError:
            raise  # a cassette that does not fit and a script that ran out are the caller's to see
        except Exception as error:  # clients of others raise what they like
            name = type(error).__name__  # its words may quote what was said
            _log.warning("whether a recall is needed was left to the rules: %s", name)
            return None
