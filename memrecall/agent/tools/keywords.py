"""`extract_search_keywords`, and the expansion of a query that searching does by itself."""

from memrecall.agent.offline.keywords import expand_terms, extract_typed_keywords
from memrecall.agent.phrases import say
from memrecall.agent.state import RecallState
from memrecall.agent.tools.models import (
    ExtractKeywordsInput,
    ExtractKeywordsOutput,
    KeywordExtractionItem,
)

_KINDS = ("entity", "action", "concept", "time")


async def extract_search_keywords(
    desk: RecallState, asked: ExtractKeywordsInput
) -> ExtractKeywordsOutput:
    """Keywords by the model if there is one, else by rules."""
    desk.notes.in_a_row = 0
    if desk.keyword_model is None:
        return _by_rules(desk, asked, None)
    reply = await desk.keyword_model(asked)
    if reply.value is None:
        return _by_rules(desk, asked, reply.problem)
    items = [
        item.model_copy(update={"type": item.type if item.type in _KINDS else "concept"})
        for item in reply.value.keywords[: asked.max_keywords]
    ]
    return ExtractKeywordsOutput(
        success=True, keywords=items, expanded_query=reply.value.expanded_query
    )


def _by_rules(
    desk: RecallState, asked: ExtractKeywordsInput, problem: str | None
) -> ExtractKeywordsOutput:
    words = extract_typed_keywords(
        asked.query, asked.context, asked.max_keywords, desk.now, desk.zone
    )
    message = None
    if problem is not None:
        message = say(desk.language, "keywords_by_rules", problem=problem)
    elif not words:
        message = say(desk.language, "no_keywords")
    return ExtractKeywordsOutput(
        success=True,
        keywords=[
            KeywordExtractionItem(keyword=word.word, weight=word.weight, type=word.type)
            for word in words
        ],
        expanded_query=" ".join(word.word for word in words) or None,
        message=message,
    )


async def expand_query(desk: RecallState, query: str) -> tuple[str, ...]:
    """More words for a search, which need not match; kept for five minutes."""

    async def make() -> tuple[str, ...]:
        if desk.keyword_model is None or not desk.expand_with_model:
            return expand_terms(query)
        reply = await desk.keyword_model(ExtractKeywordsInput(query=query))
        if reply.value is None:
            return expand_terms(query)
        words = [item.keyword for item in reply.value.keywords]
        found = dict.fromkeys([*words, reply.value.expanded_query or ""])
        return tuple(word for word in found if word)

    by = "model" if desk.keyword_model is not None and desk.expand_with_model else "rules"
    return await desk.caches.keywords.get((by, desk.language, query), make)
