"""Whether a message needs a recall at all: rules first, then a model if there is one for it."""

import re
from collections.abc import Sequence

from pydantic import BaseModel

from memrecall.agent.offline.needs import needs_recall
from memrecall.agent.prompt_view import to_json
from memrecall.model.protocol import ChatCompletionClient
from memrecall.model.structured import ask_prompt
from memrecall.types import Language

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
