"""What an extractor can do. `RuleExtractor` needs no model, `ModelExtractor` uses one."""

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Protocol

from memrecall.memory.extraction.facts import (
    Decided,
    Extracted,
    Fact,
    Known,
    Related,
    Summary,
    Utterance,
)
from memrecall.model.prompts import Language


class Extractor(Protocol):
    """Reads conversations. Nothing is stored, and no method raises because of what was said."""

    async def facts(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
    ) -> Extracted:
        """The facts that the utterances tell, in order.

        `now` and `zone` resolve relative dates of utterances without a time. `context` is what was
        said before: it resolves "it" and short answers, and gives no facts. `prompt` guides a model
        in words of the application; rules have no use for it.
        """
        ...

    async def decide(self, facts: Sequence[Fact], known: Sequence[Known]) -> Decided:
        """What to do for each fact, given what is known; nothing for no facts."""
        ...

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        """The entities that the utterances name and how they relate."""
        ...

    async def summarise(
        self,
        lines: str | Sequence[Utterance | str],
        limit_characters: int,
        language: Language | None = None,
    ) -> Summary:
        """A summary of at most so many characters; in the language of the text if none is given."""
        ...
