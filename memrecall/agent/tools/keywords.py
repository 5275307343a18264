"""`extract_search_keywords`, and the query expansion of `search_memories`."""

from memrecall.agent.offline.keywords import expand_terms, extract_typed_keywords
from memrecall.agent.state import RecallState
from memrecall.agent.tools.models import ExtractKeywordsInput, ExtractKeywordsOutput

_TYPES = ("entity", "action", "concept", "time")


async def extract_search_keywords(
    state: RecallState, arguments: ExtractKeywordsInput
) -> ExtractKeywordsOutput:
    """Extract keywords with the model if there is one, else by rules."""
    if state.keyword_model is None:
        return _extract_by_rules(state, arguments, None)
    reply = await state.keyword_model(arguments)
    if reply.value is None:
        return _extract_by_rules(state, arguments, reply.problem)
    items = [
        item.model_copy(update={"type": item.type if item.type in _TYPES else "concept"})
        for item in reply.value.keywords[: arguments.max_keywords]
    ]
    return ExtractKeywordsOutput(
        success=True, keywords=items, expanded_query=reply.value.expanded_query
    )


def _extract_by_rules(
    state: RecallState, arguments: ExtractKeywordsInput, problem: str | None
) -> ExtractKeywordsOutput:
    words = extract_typed_keywords(
        arguments.query, arguments.context, arguments.max_keywords, state.now, state.zone
    )
    message = None
    if problem is not None:
        message = state.say("keywords_by_rules", problem=problem)
    elif not words:
        message = state.say("no_keywords")
    return ExtractKeywordsOutput(
        success=True,
        keywords=words,
        expanded_query=" ".join(word.keyword for word in words) or None,
        message=message,
    )


async def expand_query(state: RecallState, query: str) -> tuple[str, ...]:
    """Return optional words for a search, cached for five minutes."""
    model = state.keyword_model if state.expand_with_model else None

    async def expand() -> tuple[str, ...]:
        reply = None if model is None else await model(ExtractKeywordsInput(query=query))
        if reply is None or reply.value is None:
            return expand_terms(query)
        words = [item.keyword for item in reply.value.keywords]
        unique = dict.fromkeys([*words, reply.value.expanded_query or ""])
        return tuple(word for word in unique if word)

    source = "rules" if model is None else "model"
    return await state.caches.keywords.get((source, state.language, query), expand)
