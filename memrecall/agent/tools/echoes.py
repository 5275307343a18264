"""What was found because it is alike and tells nothing: the request said before, and its answers.

A chat stores what is asked and what is answered. Asked again, those would be the best matches, and
what they were about would be outdone by its own echo.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from memrecall.agent.conversation import Conversation
from memrecall.search import Hit, SearchRequest, all_terms, question_terms
from memrecall.types import Role

# In the metadata of a stored answer: who made it, and the keys that it was made from.
ANSWERED_BY, RULES = "answered_by", "rules"
RECALLED = "recalled"
MOST_ROUNDS = 5  # each asks for twice as many, so that a question of every day is soon left behind
_LARGEST_LIMIT = 200
_MOST_SOURCES = 10


class Echoes:
    """Tells the echoes of one recall's request from evidence."""

    def __init__(self, conversation: Conversation) -> None:
        asked = conversation.asked.text
        self._conversation = conversation
        self._words = all_terms(asked).keys()
        self._topics = question_terms(asked).keys()

    def among(self, hits: Iterable[Hit]) -> frozenset[str]:
        """The keys of those that are echoes."""
        return frozenset(hit.key for hit in hits if self.includes(hit))

    def includes(self, hit: Hit) -> bool:
        """Whether the caller has it already, it asks the same, or rules have quoted it together."""
        if self._conversation.gave(hit.key, hit.content):
            return True
        if hit.kind != "message":
            return False
        if hit.metadata.get(ANSWERED_BY) == RULES:
            return True  # what they quote is stored itself
        said = hit.content.rstrip()
        if said.endswith(("?", "？")):
            return question_terms(said).keys() <= self._topics
        return all_terms(said).keys() == self._words


def made_from(role: str | None, metadata: Mapping[str, object]) -> list[str]:
    """The keys that an assistant's stored answer says it was made from."""
    keys = metadata.get(RECALLED)
    if role != Role.ASSISTANT.value or not isinstance(keys, list):
        return []
    return [key for key in keys[:_MOST_SOURCES] if isinstance(key, str)]


def without(request: SearchRequest, echoes: frozenset[str]) -> SearchRequest:
    """The same search as if they had never been said."""
    limit = min(request.limit * 2, _LARGEST_LIMIT)
    return replace(request, exclude=request.exclude | echoes, limit=limit)
